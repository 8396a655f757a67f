package dashboard

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// problemsPage is the dead runs, grouped by job and by likeness of their errors.
type problemsPage struct {
	operate.ProblemList

	Acknowledged bool // those that were acknowledged
	Runs         int  // in all groups
	Since        string
	Fixed        time.Time // what Since is as an instant; the zero time: none
	Jobs         []failingJob
	More         int // jobs that are not listed
}

// failingJob is a job whose attempts have failed, with the most frequent reason of its
// dead runs.
type failingJob struct {
	operate.JobFailures

	Why   string
	Group string // of that reason; empty: no run of it is among the problems
}

// failingMost bounds the jobs that are listed.
const failingMost = 10

func (d *dashboard) problems(ctx context.Context, r *request) (view, error) {
	shown := problemsPage{Acknowledged: r.form.Get("acknowledged") == "true", Since: strings.TrimSpace(r.form.Get("since"))}
	var err error
	if shown.Fixed, err = instantOf(shown.Since, r.now); err != nil {
		return view{}, fmt.Errorf("%w: since: %w", store.ErrInvalid, err)
	}
	var failures []operate.JobFailures
	err = together(ctx, func(ctx context.Context) (err error) {
		shown.ProblemList, err = r.do.Problems(ctx, operate.ProblemFilter{Acknowledged: shown.Acknowledged, Jobs: given(r.form["job"]), Queues: given(r.form["queue"]), Since: shown.Fixed})
		return err
	}, func(ctx context.Context) (err error) {
		if shown.Acknowledged {
			return nil
		}
		since := shown.Fixed
		if since.IsZero() {
			since = r.now.Add(-24 * time.Hour)
		}
		failures, err = d.operator.Failures(ctx, since)
		return err
	})
	shown.failing(failures)
	for i := range shown.Groups {
		shown.Runs += shown.Groups[i].Count
	}
	return view{page: "problems", title: "Problems", section: "problems", data: shown}, err
}

// failing adds which jobs fail most, and why.
func (shown *problemsPage) failing(failures []operate.JobFailures) {
	shown.More = max(len(failures)-failingMost, 0)
	for _, of := range failures[:len(failures)-shown.More] {
		job := failingJob{JobFailures: of}
		most := 0
		for i := range shown.Groups {
			if g := &shown.Groups[i]; g.Job == of.Job && g.Count > most {
				job.Why, job.Group, most = g.Like, g.ID, g.Count
			}
		}
		shown.Jobs = append(shown.Jobs, job)
	}
}

// askProblem asks before all runs of a group are changed.
func (d *dashboard) askProblem(ctx context.Context, r *request) (view, error) {
	list, err := r.do.Problems(ctx, operate.ProblemFilter{})
	if err != nil {
		return view{}, err
	}
	id, action := r.form.Get("group"), r.form.Get("action")
	for i := range list.Groups {
		group := &list.Groups[i]
		if group.ID != id {
			continue
		}
		runs := plural(int64(group.Count), "dead run", "dead runs")
		q, known := map[string]question{
			"retry":       {Verb: "Retry", Says: "Each becomes pending again, due now, with all of its attempts."},
			"acknowledge": {Verb: "Acknowledge", Says: "They leave the problems and the figures of dead runs. They stay dead, and can be retried later. The audit log says who it was."},
			"delete":      {Verb: "Delete", Danger: true, Word: "delete", Says: "They are removed with their args, attempts and logs. This cannot be undone."},
		}[action]
		if !known {
			return view{}, fmt.Errorf("%w: action %q: want retry, acknowledge or delete", store.ErrInvalid, clip(50, action))
		}
		q.To, q.Back, q.Reason = "problems/change", "problems", true
		q.Title = q.Verb + " " + runs + " of " + group.Job + "?"
		q.Says += " They ended with: " + firstLine(160, group.Reason)
		return r.ask("problems", q, "group", id, "action", action), nil
	}
	return view{}, fmt.Errorf("problem %q: %w", clip(50, id), store.ErrNotFound)
}

func (d *dashboard) changeProblem(ctx context.Context, r *request) (view, error) {
	asked, err := d.askProblem(ctx, r)
	if err != nil {
		return view{}, err
	}
	action := store.RunAction(r.form.Get("action"))
	var done operate.Bulk
	answer, err := r.answered(ctx, asked, string(action), "problems", func(ctx context.Context) (err error) {
		done, err = r.do.ChangeProblem(ctx, action, r.form.Get("group"), strings.TrimSpace(r.form.Get("reason")), nil)
		return err
	})
	if err != nil || answer.to == "" {
		return answer, err
	}
	return view{to: with("problems", did(action, done))}, nil
}
