package durablecmd

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// runsVerb is the verb runs.
type runsVerb struct {
	List   runsListVerb   `cmd:"" help:"List runs, newest first."`
	Show   runsShowVerb   `cmd:"" help:"Show one run with its attempts."`
	Wait   runsWaitVerb   `cmd:"" help:"Wait until a run has ended; the exit status is 0 if it has succeeded."`
	Count  runsCountVerb  `cmd:"" help:"Count runs by state. Large numbers are estimated."`
	Cancel runsCancelVerb `cmd:"" help:"Cancel runs. A running one is told, and ends cancelled unless it succeeds."`
	Retry  runsRetryVerb  `cmd:"" help:"Make dead or cancelled runs pending again, with all their attempts."`
	Delete runsDeleteVerb `cmd:"" help:"Delete runs that are not running."`
	Rerun  runsRerunVerb  `cmd:"" help:"Make a new run after another one, and print its id."`
}

type (
	runsListVerb struct {
		State  words      `placeholder:"STATE,…" help:"Only runs in this state: pending, running, succeeded, dead or cancelled; may be repeated."`
		Job    words      `placeholder:"JOB,…" help:"Only runs of this job; may be repeated."`
		Queue  words      `placeholder:"QUEUE,…" help:"Only runs of this queue; may be repeated."`
		Tag    word       `placeholder:"TAG" help:"Only runs with this tag."`
		Since  *time.Time `help:"Only runs made at or after this instant."`
		Until  *time.Time `help:"Only runs made before this instant."`
		Limit  int        `default:"50" help:"Most runs listed, 1 to 200."`
		Cursor word       `placeholder:"CURSOR" help:"Go on where another list ended: its \"next\"."`
		JSON   bool       `name:"json" help:"Print JSON."`
	}
	runsShowVerb struct {
		ID   string `arg:"" help:"Id of the run."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
)

// runsPage is a list as JSON. A list does not read attempts: they are null.
type runsPage struct {
	Runs []durable.Record `json:"runs"`
	Next *durable.RunID   `json:"next"`
}

// Run prints a list of runs.
func (v runsListVerb) Run(ctx context.Context, p *program) error {
	filter, err := v.filter()
	if err != nil {
		return err
	}
	return p.withStore(ctx, served, func(ctx context.Context, store backend.Store, _ Config) error {
		page, err := p.fullPage(ctx, store, filter)
		if err != nil {
			return err
		}
		if !v.JSON {
			return p.printRuns(page, p.now())
		}
		list := runsPage{Runs: page.Runs}
		if list.Runs == nil {
			list.Runs = []durable.Record{}
		}
		for i := range list.Runs {
			list.Runs[i].Tags = notNil(list.Runs[i].Tags)
		}
		if page.Next != (durable.RunID{}) {
			list.Next = &page.Next
		}
		return p.printJSON(list)
	})
}

// listFor is how long a list goes on looking for runs where few match.
const listFor = 3 * time.Second

// fullPage asks until the page is full: a store looks at a bounded number of
// runs for one answer. After a few seconds it is content with what it has.
func (p *program) fullPage(ctx context.Context, store backend.Store, filter durable.Filter) (durable.Page, error) {
	var full durable.Page
	begun, want := p.now(), filter.Limit
	for {
		page, err := store.Runs(ctx, filter)
		if err != nil {
			return full, err
		}
		full.Runs, full.Next = append(full.Runs, page.Runs...), page.Next
		if page.Next == (durable.RunID{}) || len(full.Runs) >= want || p.now().Sub(begun) > listFor {
			return full, nil
		}
		filter.Before, filter.Limit = page.Next, want-len(full.Runs)
	}
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
	return p.withStore(ctx, served, func(ctx context.Context, store backend.Store, _ Config) error {
		record, err := store.Run(ctx, id)
		if err != nil {
			return err
		}
		record.Tags, record.Attempts = notNil(record.Tags), notNil(record.Attempts)
		if v.JSON {
			return p.printJSON(record)
		}
		return p.printRun(record, p.now())
	})
}

// notNil keeps an empty list from being written as null.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
