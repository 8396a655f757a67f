package durablecmd

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// queuesVerb is the verb queues.
type queuesVerb struct {
	List   queuesListVerb   `cmd:"" help:"List queues by name, with what waits in them."`
	Pause  queuesPauseVerb  `cmd:"" help:"Stop claims from a queue. What is executing goes on."`
	Resume queuesResumeVerb `cmd:"" help:"Let runs of a queue be claimed again."`
}

type (
	queuesListVerb struct {
		JSON bool `name:"json" help:"Print JSON."`
	}
	queuesPauseVerb struct {
		Name string `arg:"" help:"Name of the queue."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	queuesResumeVerb struct {
		Name string `arg:"" help:"Name of the queue."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	auditVerb struct {
		List auditListVerb `cmd:"" help:"List what operators, and policies in their place, have changed, newest first."`
	}
	auditListVerb struct {
		Kind    word  `placeholder:"KIND" help:"Only changes of this kind of thing: run, queue, schedule or lock."`
		Subject word  `placeholder:"ID" help:"Only changes of the thing of this id or name."`
		Limit   int   `default:"50" help:"Most changes listed, 1 to 200."`
		Cursor  int64 `help:"Go on where another list ended: its \"next\"."`
		JSON    bool  `name:"json" help:"Print JSON."`
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
	return p.withStore(ctx, served, func(ctx context.Context, store backend.Store, _ Config) error {
		queues, err := store.Queues(ctx)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(map[string]any{"queues": notNil(queues), "next": nil})
		}
		if len(queues) == 0 {
			_, err := fmt.Fprintln(p.stdout, "no queues")
			return err
		}
		table := newTable(p.stdout)
		table.row("QUEUE", "STATE", "PENDING", "OLDEST DUE")
		for _, q := range queues {
			state, oldest := "active", "-"
			if q.Paused {
				state = "paused"
			}
			if q.OldestDue != nil {
				oldest = ago(*q.OldestDue, p.now())
			}
			table.row(q.Name, state, number(q.Pending), oldest)
		}
		return table.flush()
	})
}

// known refuses a queue of which nothing is known: resumed, a mistyped name
// would look like the one that stays paused.
func known(ctx context.Context, db backend.Store, name string) error {
	queues, err := db.Queues(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(queues, func(q store.QueueInfo) bool { return q.Name == name }) {
		return fmt.Errorf("queue %q: nothing was ever enqueued on it and it is not paused: %w", name, durable.ErrNotFound)
	}
	return nil
}

// setQueue does one thing with a queue and says so.
func (p *program) setQueue(ctx context.Context, name string, action store.QueueAction, done string, asJSON bool) error {
	return p.withStore(ctx, served, func(ctx context.Context, db backend.Store, _ Config) error {
		if err := store.CheckQueueChange(name, action, actor()); err != nil {
			return err
		}
		if action == store.ResumeQueue {
			if err := known(ctx, db, name); err != nil {
				return err
			}
		}
		if err := db.SetQueue(ctx, name, action, actor()); err != nil {
			return err
		}
		if asJSON {
			return p.printJSON(map[string]any{"name": name, "paused": action == store.PauseQueue})
		}
		_, err := fmt.Fprintf(p.stdout, "%s %s\n", name, done)
		return err
	})
}

// Run pauses.
func (v queuesPauseVerb) Run(ctx context.Context, p *program) error {
	return p.setQueue(ctx, v.Name, store.PauseQueue, "paused", v.JSON)
}

// Run resumes.
func (v queuesResumeVerb) Run(ctx context.Context, p *program) error {
	return p.setQueue(ctx, v.Name, store.ResumeQueue, "resumed", v.JSON)
}

// Run prints changes.
func (v auditListVerb) Run(ctx context.Context, p *program) error {
	if v.Limit < 1 || v.Limit > 200 {
		return usage("--limit %d: want 1 to 200", v.Limit)
	}
	if v.Cursor < 0 {
		return usage("--cursor %d: want 0 or more", v.Cursor)
	}
	if v.Kind != "" && !slices.Contains([]word{"run", "queue", "schedule", "lock"}, v.Kind) {
		return usage("--kind %q: want run, queue, schedule or lock", v.Kind)
	}
	return p.withStore(ctx, served, func(ctx context.Context, db backend.Store, _ Config) error {
		changes, err := db.Changes(ctx, store.ChangeFilter{Kind: string(v.Kind), Subject: string(v.Subject), Before: v.Cursor, Limit: v.Limit})
		if err != nil {
			return err
		}
		var next *int64
		if len(changes) == v.Limit {
			next = &changes[len(changes)-1].ID
		}
		if v.JSON {
			return p.printJSON(map[string]any{"changes": notNil(changes), "next": next})
		}
		table := newTable(p.stdout)
		table.row("AT", "BY", "KIND", "SUBJECT", "ACTION", "DETAIL")
		for _, c := range changes {
			table.row(c.At.Format(time.RFC3339), c.Actor, c.Kind, c.Subject, c.Action, clipped(oneLine(c.Detail), 100))
		}
		if err := table.flush(); err != nil || next == nil {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "\nmore: --cursor %d\n", *next)
		return err
	})
}
