package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// queuesVerb is the verb queues.
type queuesVerb struct {
	List   queuesListVerb   `cmd:"" help:"List queues by name, with their runs and who serves them."`
	Pause  queuesPauseVerb  `cmd:"" help:"Stop claims from a queue. Runs that are executing continue."`
	Resume queuesResumeVerb `cmd:"" help:"Let runs of a queue be claimed again."`
}

type (
	queuesListVerb struct {
		watchFlag

		JSON bool `name:"json" help:"Print JSON."`
	}
	queuesPauseVerb struct {
		Name  string `arg:"" help:"Name of the queue."`
		Force bool   `help:"Pause the queue even if no run was ever enqueued on it and no declared job has it."`
		JSON  bool   `name:"json" help:"Print JSON."`
	}
	queuesResumeVerb struct {
		Name string `arg:"" help:"Name of the queue."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	auditVerb struct {
		List auditListVerb `cmd:"" help:"Show the audit log, newest first."`
	}
	auditListVerb struct {
		Kind    word     `placeholder:"KIND" help:"Only changes to this kind of thing: run, bulk (all runs of a filter), queue, schedule, limit or lock."`
		Subject word     `placeholder:"ID" help:"Only changes to the thing with this id or name."`
		By      word     `placeholder:"ACTOR" help:"Only changes that this actor made."`
		Action  word     `placeholder:"ACTION" help:"Only this action, such as cancel, delete or pause."`
		Since   *instant `placeholder:"TIME" help:"Only changes at or after this time: 2030-01-31T08:00:00Z, or 1h for an hour ago."`
		Limit   int      `default:"50" help:"Maximum number of results (1 to 200)."`
		Cursor  int64    `help:"Continue after this cursor (\"next\" of the previous page)."`
		JSON    bool     `name:"json" help:"Print JSON."`
	}
)

// actor is who makes a change, for the record: the user and the machine.
func actor() string {
	name := "unknown"
	if who, err := user.Current(); err == nil && who.Username != "" {
		name = who.Username
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		return name
	}
	return name + "@" + host
}

// Run prints the queues.
func (v queuesListVerb) Run(ctx context.Context, p *program) error {
	return v.watched(ctx, p, func(ctx context.Context, o *operate.Actor) error {
		list, err := o.Queues(ctx)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(list)
		}
		if len(list.Queues) == 0 {
			_, err := fmt.Fprintln(p.stdout, "no queues")
			return err
		}
		table := p.newTable("RUNS/MIN", "OLDEST DUE", "RUNNING")
		table.row("QUEUE", "STATE", "PENDING", "RUNNING", "RUNS/MIN", "OLDEST DUE", "SERVED BY")
		for _, q := range list.Queues {
			state, oldest := "active", "-"
			if q.Paused {
				state = "paused"
			}
			if q.OldestDue != nil {
				oldest = ago(*q.OldestDue, p.now())
			}
			table.row(q.Name, state, number(q.Pending), number(q.Running), rate(q.Rate), oldest, servedBy(q.Work))
		}
		return table.flush()
	})
}

// Run pauses.
func (v queuesPauseVerb) Run(ctx context.Context, p *program) error {
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		pause := o.PauseQueue
		if v.Force {
			pause = o.PauseUnusedQueue
		}
		state, err := pause(ctx, v.Name)
		if errors.Is(err, store.ErrNotFound) {
			err = fmt.Errorf("%w; use --force to pause it anyway", err)
		}
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(state)
		}
		_, err = fmt.Fprintf(p.stdout, "%s paused\n", state.Name)
		return err
	})
}

// Run resumes.
func (v queuesResumeVerb) Run(ctx context.Context, p *program) error {
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		state, err := o.ResumeQueue(ctx, v.Name)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(state)
		}
		_, err = fmt.Fprintf(p.stdout, "%s resumed\n", state.Name)
		return err
	})
}

// Run prints changes.
func (v auditListVerb) Run(ctx context.Context, p *program) error {
	if v.Limit < 1 || v.Limit > 200 {
		return usage("--limit %d: want 1 to 200", v.Limit)
	}
	if v.Cursor < 0 {
		return usage("--cursor %d: want 0 or more", v.Cursor)
	}
	if v.Kind != "" && !slices.Contains([]word{"run", "bulk", "queue", "schedule", "limit", "lock"}, v.Kind) {
		return usage("--kind %q: want run, bulk, queue, schedule, limit or lock", v.Kind)
	}
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		list, err := o.Changes(ctx, store.ChangeFilter{Kind: string(v.Kind), Subject: string(v.Subject), By: string(v.By), Action: string(v.Action),
			Since: v.Since.on(p.now()), Before: v.Cursor, Limit: v.Limit})
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(list)
		}
		if len(list.Changes) == 0 && list.Next == nil {
			_, err := fmt.Fprintln(p.stdout, "no changes")
			return err
		}
		table := p.newTable("KIND", "DETAIL")
		table.row("AT", "BY", "KIND", "SUBJECT", "ACTION", "DETAIL")
		for _, c := range list.Changes {
			detail := oneLine(c.Detail)
			if c.Kind == "bulk" {
				detail = fmt.Sprintf("%d %s %s", c.Runs, plural(c.Runs, "run", "runs"), detail)
			}
			table.row(c.At.Format(time.RFC3339), c.Actor, c.Kind, c.Subject, c.Action, clipped(detail, 100))
		}
		if err := table.flush(); err != nil || list.Next == nil {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "\nmore: --cursor %d\n", *list.Next)
		return err
	})
}
