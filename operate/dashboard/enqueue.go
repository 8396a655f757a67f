package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// askRerun asks for the args of a run that is created after another one.
func (d *dashboard) askRerun(ctx context.Context, r *request) (view, error) {
	record, err := d.recordOf(ctx, r)
	if err != nil {
		return view{}, err
	}
	args := r.form.Get("args")
	if !r.form.Has("args") && r.who.Args {
		args = pretty(record.Args)
	}
	asked := r.ask("runs", question{To: "runs/" + record.ID.String() + "/rerun", Title: "Rerun this run of " + record.Job, Verb: "Enqueue", Keep: "Not now",
		Back: "runs/" + record.ID.String(), Says: "A new run with the job, queue, priority, attempts and tags of this one. It is due now, or after the delay.",
		Rows: [][]input{{{Name: "args", Label: "Args", Kind: "long", Value: args, Note: "JSON"}},
			{{Name: "after", Label: "Delay", Value: r.form.Get("after"), Hint: "none, or such as 10m"}}}})
	return asked, nil
}

func (d *dashboard) rerun(ctx context.Context, r *request) (view, error) {
	asked, err := d.askRerun(ctx, r)
	if err != nil {
		return view{}, err
	}
	record, err := d.recordOf(ctx, r)
	if err != nil {
		return view{}, err
	}
	args, options, err := runOf(r)
	if err != nil {
		return asked.again(err)
	}
	made, err := r.do.Rerun(ctx, record.ID, args, options...)
	if err != nil {
		return asked.again(err)
	}
	return view{to: "runs/" + made.ID.String() + "?did=rerun"}, nil
}

func (d *dashboard) recordOf(ctx context.Context, r *request) (store.Record, error) {
	id, err := store.ParseRunID(r.PathValue("id"))
	if err != nil {
		return store.Record{}, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	return r.do.Run(ctx, id)
}

// runOf reads the args and the options of a form.
func runOf(r *request) (json.RawMessage, []durable.Option, error) {
	args := strings.TrimSpace(r.form.Get("args"))
	if args == "" {
		args = "null"
	}
	if err := store.CheckJSON([]byte(args)); err != nil {
		return nil, nil, fmt.Errorf("%w: args%w", store.ErrInvalid, err)
	}
	var options []durable.Option
	if text := strings.TrimSpace(r.form.Get("after")); text != "" {
		delay, err := time.ParseDuration(text)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: after %q: want a delay such as 90s, 10m or 24h", store.ErrInvalid, clip(50, text))
		}
		options = append(options, durable.After(delay))
	}
	if tags := strings.FieldsFunc(r.form.Get("tags"), func(c rune) bool { return c == ',' }); len(tags) > 0 {
		options = append(options, durable.Tags(given(tags)...))
	}
	if queue := strings.TrimSpace(r.form.Get("queue")); queue != "" {
		options = append(options, durable.OnQueue(queue))
	}
	if text := strings.TrimSpace(r.form.Get("priority")); text != "" {
		priority, err := strconv.Atoi(text)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: priority %q: want a whole number", store.ErrInvalid, clip(50, text))
		}
		options = append(options, durable.Priority(priority))
	}
	compact := bytes.Buffer{}
	if err := json.Compact(&compact, []byte(args)); err != nil {
		return nil, nil, fmt.Errorf("%w: args: %w", store.ErrInvalid, err)
	}
	return compact.Bytes(), options, nil
}

// pretty is a JSON text to be edited.
func pretty(text json.RawMessage) string {
	var out bytes.Buffer
	if json.Indent(&out, text, "", "  ") != nil {
		return string(text)
	}
	return out.String()
}

// newRun is the form for a run of a job: with the args of its latest run, where there
// is one.
func (d *dashboard) newRun(ctx context.Context, r *request) (view, error) {
	name := r.form.Get("job")
	job, err := d.operator.Job(ctx, name)
	if err != nil {
		return view{}, err
	}
	args := r.form.Get("args")
	if !r.form.Has("args") && r.who.Args {
		last, err := r.do.Runs(ctx, store.Filter{Jobs: []string{name}, Limit: 1})
		if err != nil {
			return view{}, err
		}
		if args = "{}"; len(last.Runs) > 0 {
			args = pretty(last.Runs[0].Args)
		}
	}
	return r.ask("jobs", question{To: "runs/new", Title: "Enqueue a run of " + job.Name, Verb: "Enqueue", Keep: "Not now", Back: "jobs",
		Says: "The args are those of its latest run: change them before you enqueue. What is left empty is as the job declares it.",
		Rows: [][]input{{{Name: "args", Label: "Args", Kind: "long", Value: args, Note: "JSON"}},
			{{Name: "queue", Label: "Queue", Value: r.form.Get("queue"), Hint: job.Queue}, {Name: "priority", Label: "Priority", Value: r.form.Get("priority"), Hint: strconv.Itoa(job.Priority), Note: "-4 to 4"}},
			{{Name: "after", Label: "Delay", Value: r.form.Get("after"), Hint: "none, or such as 10m"}, {Name: "tags", Label: "Tags", Value: r.form.Get("tags"), Hint: "with commas between"}}}},
		"job", job.Name), nil
}

func (d *dashboard) enqueue(ctx context.Context, r *request) (view, error) {
	asked, err := d.newRun(ctx, r)
	if err != nil {
		return view{}, err
	}
	job, err := d.operator.Job(ctx, r.form.Get("job"))
	if err != nil {
		return view{}, err
	}
	args, options, err := runOf(r)
	if err != nil {
		return asked.again(err)
	}
	made, err := d.operator.Enqueue(ctx, durable.RunOf(job, args, options...))
	if err != nil {
		return asked.again(err)
	}
	did := "enqueue"
	if made.Existing {
		did = "existing"
	}
	return view{to: "runs/" + made.ID.String() + "?did=" + did}, nil
}
