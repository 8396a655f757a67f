package durablecmd

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// runsVerb is the verb runs.
type runsVerb struct {
	List   runsListVerb   `cmd:"" help:"List runs, newest first."`
	Show   runsShowVerb   `cmd:"" help:"Show a run with its attempts."`
	Wait   runsWaitVerb   `cmd:"" help:"Wait until a run has ended. Exits 0 if it succeeded."`
	Count  runsCountVerb  `cmd:"" help:"Count runs by state. Large counts may be lower bounds (10000+) or estimates (about)."`
	Cancel runsCancelVerb `cmd:"" help:"Cancel runs. A running one is asked to stop, and ends cancelled unless it succeeds."`
	Retry  runsRetryVerb  `cmd:"" help:"Make dead or cancelled runs pending again, with a full set of attempts."`
	Delete runsDeleteVerb `cmd:"" help:"Delete runs that are not running."`
	Rerun  runsRerunVerb  `cmd:"" help:"Create a new run like an earlier one, and print its id."`
}

type (
	runsListVerb struct {
		State  words      `placeholder:"STATE,…" help:"Only runs in these states: pending, running, succeeded, dead or cancelled. Repeatable."`
		Job    words      `placeholder:"JOB,…" help:"Only runs of these jobs. Repeatable."`
		Queue  words      `placeholder:"QUEUE,…" help:"Only runs of these queues. Repeatable."`
		Tag    word       `placeholder:"TAG" help:"Only runs with this tag."`
		Since  *time.Time `help:"Only runs created at or after this time."`
		Until  *time.Time `help:"Only runs created before this time."`
		Limit  int        `default:"50" help:"Maximum number of results (1 to 200)."`
		Cursor word       `placeholder:"CURSOR" help:"Continue after this cursor (\"next\" of the previous page)."`
		JSON   bool       `name:"json" help:"Print JSON."`
	}
	runsShowVerb struct {
		ID   string `arg:"" help:"Id of the run."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
)

// Run prints a list of runs.
func (v runsListVerb) Run(ctx context.Context, p *program) error {
	filter, err := v.filter()
	if err != nil {
		return err
	}
	return p.asOperator(ctx, served, func(ctx context.Context, o *operate.Actor) error {
		list, err := o.Runs(ctx, filter)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(list)
		}
		return p.printRuns(list, p.now())
	})
}

func (v runsListVerb) filter() (durable.Filter, error) {
	f := durable.Filter{Jobs: v.Job, Queues: v.Queue, Tag: string(v.Tag), Limit: v.Limit}
	set(&f.Since, v.Since)
	set(&f.Until, v.Until)
	if v.Limit < 1 || v.Limit > 200 {
		return f, usage("--limit %d: want 1 to 200", v.Limit)
	}
	for _, word := range v.State {
		state, err := store.ParseState(word)
		if err != nil {
			return f, usage("--state: %w", err)
		}
		f.States = append(f.States, state)
	}
	if v.Cursor != "" {
		before, err := durable.ParseRunID(string(v.Cursor))
		if err != nil {
			return f, usage("--cursor: %w", err)
		}
		f.Before = before
	}
	return f, nil
}

// Run prints one run.
func (v runsShowVerb) Run(ctx context.Context, p *program) error {
	id, err := durable.ParseRunID(v.ID)
	if err != nil {
		return &usageError{err: err}
	}
	return p.asOperator(ctx, served, func(ctx context.Context, o *operate.Actor) error {
		record, err := o.Run(ctx, id)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(record)
		}
		return p.printRun(record, p.now())
	})
}
