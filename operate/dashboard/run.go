package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// runPage is the page of one run.
type runPage struct {
	store.Record

	Phase   phase
	Why     operate.Explanation
	Events  []event
	Seen    seen
	Masked  bool       // a rule hides something that this person may have revealed
	Steps   *stepsView // nil: there are none
	Links   *linksView // nil: there are none
	Changes []store.Change
	Can     map[string]bool
	Copies  []copied // for operators: they have the args
	Alike   []alike
	Kept    *stamp // until when it is kept; nil: it is not known, or forever
}

// seen is the JSON of a run.
type seen struct{ Args, Result, Checkpoint jsonView }

func seenOf(r *store.Record) seen {
	sizes := sizesOf(r.Hidden)
	return seen{jsonOf(r.Args, sizes.Args), jsonOf(r.Result, sizes.Result), jsonOf(r.Checkpoint, sizes.Checkpoint)}
}

// event is one line of a run's life.
type event struct {
	Icon   string
	What   string
	At     time.Time
	Detail string // a short one, beside it
	Took   string
	Share  int // of the longest attempt, in percent
	Error  *string
	Again  bool // a later attempt has the same error
	Stack  *string
	Log    *string
	Ahead  bool // it has not happened yet
}

func (d *dashboard) run(ctx context.Context, r *request) (view, error) {
	id, err := r.do.FindID(ctx, r.PathValue("id"))
	if err != nil {
		return view{}, err
	}
	if id.String() != r.PathValue("id") {
		return view{to: "runs/" + id.String()}, nil
	}
	record, err := r.do.Run(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return absent(ctx, r, id)
	}
	if err != nil {
		return view{}, err
	}
	shown := runPage{Record: record, Phase: phaseOf(record, r.now), Events: eventsOf(&record, r.now)}
	shown.Seen = seenOf(&record)
	shown.Masked = r.who.Operator && slices.ContainsFunc([]json.RawMessage{record.Args, record.Result, record.Checkpoint},
		func(text json.RawMessage) bool { return operate.ShowsMask(text) })
	shown.Can = map[string]bool{
		"cancel": !record.State.Terminal(), "retry": record.State == store.Dead || record.State == store.Cancelled,
		"acknowledge": record.State == store.Dead,
		"delete":      record.State != store.Running,
	}
	shown.Alike = alikeOf(&record, r.who.Operator && r.who.Args)
	if r.who.Operator && r.who.Args {
		shown.Copies = copiesOf(&record)
	}
	if shown.Why, err = r.do.Explain(ctx, id); err != nil {
		return view{}, err
	}
	steps, err := r.do.StepsOf(ctx, &record)
	if err != nil {
		return view{}, err
	}
	shown.Steps = stepsOf(&steps)
	links, err := r.do.LinksOf(ctx, id)
	if err != nil {
		return view{}, err
	}
	shown.Links = linksOf(id, &links)
	shown.Masked = shown.Masked || r.who.Operator && masks(&steps)
	for i := range shown.Why.Blockers {
		if shown.Why.Blockers[i].Kind == operate.BlockerDependency {
			shown.Can["release"] = true
		}
		if b := &shown.Why.Blockers[i]; b.Kind == operate.BlockerKept && b.EndsAt != nil {
			shown.Kept = stampOf(b.EndsAt, r.now)
		}
	}
	changes, err := r.do.Changes(ctx, store.ChangeFilter{Kind: "run", Subject: id.String(), Limit: 20})
	if err != nil {
		return view{}, err
	}
	shown.Changes = changes.Changes
	return view{page: "run", title: record.Job, section: "runs", data: shown}, nil
}

// askReveal asks before it is shown what a rule hides of a run.
func (d *dashboard) askReveal(ctx context.Context, r *request) (view, error) {
	record, err := d.recordOf(ctx, r)
	if err != nil {
		return view{}, err
	}
	path := "runs/" + record.ID.String()
	return r.ask("runs", question{To: path + "/reveal", Title: "Reveal what is hidden of this run of " + record.Job + "?", Verb: "Reveal", Keep: "Keep it hidden",
		Back: path, Reason: true, Says: "You see its args, its result, its checkpoint, and the values of its steps and inputs, as they are stored. The audit log records that you have."}), nil
}

// revealed is the page of a run with nothing hidden. It is not kept live.
type revealed struct {
	ID    store.RunID
	Job   string
	Seen  seen
	Steps *stepsView // nil: there are none
}

func (d *dashboard) reveal(ctx context.Context, r *request) (view, error) {
	asked, err := d.askReveal(ctx, r)
	if err != nil {
		return view{}, err
	}
	id, err := store.ParseRunID(r.PathValue("id"))
	if err != nil {
		return view{}, err
	}
	record, steps, err := r.do.RevealSteps(ctx, id, r.form.Get("reason"))
	if err != nil {
		return asked.again(err)
	}
	return view{page: "revealed", title: record.Job, section: "runs", data: revealed{record.ID, record.Job, seenOf(&record), stepsOf(&steps)}}, nil
}

// absent is the page of a run that is not there: it says why, as far as that is known.
func absent(ctx context.Context, r *request, id store.RunID) (view, error) {
	why, err := r.do.Explain(ctx, id)
	return view{page: "absent", title: "This run is not there", section: "runs", data: why, status: 404}, err
}

// eventsOf is the life of a run, in order.
func eventsOf(r *store.Record, now time.Time) []event {
	events := []event{{Icon: "enqueued", What: "enqueued", At: r.CreatedAt, Detail: enqueuedBy(r)}}
	var longest time.Duration
	for i := range r.Attempts {
		longest = max(longest, r.Attempts[i].EndedAt.Sub(r.Attempts[i].StartedAt))
	}
	var last time.Duration
	if r.State == store.Succeeded && r.StartedAt != nil && r.FinishedAt != nil {
		last = r.FinishedAt.Sub(*r.StartedAt)
	} else if r.State == store.Running && r.StartedAt != nil {
		last = now.Sub(*r.StartedAt)
	}
	longest = max(longest, last)
	for i := range r.Attempts {
		e := attemptEvent(&r.Attempts[i], longest)
		e.Again = i+1 < len(r.Attempts) && e.Error != nil && r.Attempts[i+1].Error != nil && *e.Error == *r.Attempts[i+1].Error
		events = append(events, e)
	}
	switch {
	case r.State == store.Running && r.StartedAt != nil:
		events = append(events, event{Icon: "running", What: fmt.Sprintf("attempt %d is executing", r.Attempt), At: *r.StartedAt,
			Detail: "on " + cell(r.Worker), Took: brief(last), Share: share(last, longest)})
	case r.State == store.Succeeded && !recorded(r):
		events = append(events, event{Icon: "succeeded", What: fmt.Sprintf("attempt %d succeeded", r.Attempt), At: deref(r.StartedAt, r.CreatedAt),
			Detail: "on " + cell(r.Worker), Took: brief(last), Share: share(last, longest)})
	case r.State == store.Pending:
		events = append(events, event{Icon: phaseOf(*r, now).Icon, What: "due", At: r.DueAt, Ahead: true})
	case r.State == store.Cancelled && !recorded(r) && r.FinishedAt != nil:
		events = append(events, event{Icon: "cancelled", What: "cancelled", At: *r.FinishedAt, Detail: cell(r.Error)})
	case r.State == store.Dead && !recorded(r) && r.FinishedAt != nil:
		events = append(events, event{Icon: "dead", What: "dead", At: *r.FinishedAt, Error: r.Error})
	}
	return events
}

// recorded reports whether the last attempt is the one that ended the run.
func recorded(r *store.Record) bool {
	return len(r.Attempts) > 0 && r.Attempts[len(r.Attempts)-1].Outcome.State() == r.State
}

func attemptEvent(a *store.Attempt, longest time.Duration) event {
	took := a.EndedAt.Sub(a.StartedAt)
	e := event{Icon: attemptIcon(a.Outcome), At: a.StartedAt, Detail: fmt.Sprintf("on %s", clip(200, a.Worker)), Took: brief(took), Share: share(took, longest),
		Error: a.Error, Stack: a.Stack, Log: a.Log}
	words := map[store.OutcomeKind]string{store.Success: "succeeded", store.Failure: "failed", store.Death: "failed, the last one", store.Cancellation: "was cancelled",
		store.Crash: "was lost: its worker crashed", store.Misfit: "did not begin: its args do not fit the worker's program"}
	e.What = fmt.Sprintf("attempt %d %s", a.Number, words[a.Outcome])
	return e
}

func attemptIcon(kind store.OutcomeKind) string {
	switch kind {
	case store.Success:
		return "succeeded"
	case store.Cancellation:
		return "cancelled"
	case store.Crash:
		return "crash"
	default:
		return "dead"
	}
}

func share(took, longest time.Duration) int {
	if longest <= 0 {
		return 0
	}
	return max(1, int(100*took/longest))
}

func enqueuedBy(r *store.Record) string {
	if r.Schedule != nil {
		return "by schedule " + *r.Schedule
	}
	return ""
}

func deref(t *time.Time, otherwise time.Time) time.Time {
	if t == nil {
		return otherwise
	}
	return *t
}
