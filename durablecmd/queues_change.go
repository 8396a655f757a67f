package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// queuesVerb is the command queues.
type queuesVerb struct {
	List   queuesListVerb   `cmd:"" help:"List queues by name, with their runs and who serves them."`
	Pause  queuesPauseVerb  `cmd:"" help:"Pause a queue: workers claim no more of its runs. Runs that are executing continue."`
	Resume queuesResumeVerb `cmd:"" help:"Resume a paused queue."`
	Set    queuesSetVerb    `cmd:"" help:"Cap how many runs of a queue execute concurrently, across all workers."`
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
	queuesSetVerb struct {
		Name string `arg:"" help:"Name of the queue."`

		MaxConcurrent   *int `placeholder:"N" xor:"max" required:"" help:"Maximum number of runs of the queue that execute concurrently, across all workers, including runs that are already pending. 0: no cap."`
		NoMaxConcurrent bool `name:"no-max-concurrent" xor:"max" required:"" help:"Remove the cap, like --max-concurrent 0."`

		Force bool `help:"Set it even if no run was ever enqueued on the queue and no declared job has it."`
		JSON  bool `name:"json" help:"Print JSON."`
	}
	auditVerb struct {
		List auditListVerb `cmd:"" help:"Show the audit log, newest first."`
	}
	auditListVerb struct {
		watchFlag

		Kind    word     `placeholder:"KIND" help:"Only changes to this kind of thing: run, bulk (all runs of a filter), batch, queue, schedule, limit, lock or session."`
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
		list, err := o.Queues(ctx, operate.Part{})
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
		table := p.newTable("RUNS/MIN", "OLDEST DUE", "MAX", "RUNNING")
		table.row("QUEUE", "STATE", "PENDING", "RUNNING", "MAX", "RUNS/MIN", "OLDEST DUE", "SERVED BY")
		for _, q := range list.Queues {
			state, most, oldest := "active", "-", "-"
			if q.Paused {
				state = "paused"
			}
			if q.OldestDue != nil {
				oldest = ago(*q.OldestDue, p.now())
			}
			if q.MaxConcurrent != nil {
				most = strconv.Itoa(*q.MaxConcurrent)
			}
			table.row(q.Name, state, number(q.Pending), number(q.Running), most, rate(q.Rate), oldest, servedBy(q.Work))
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

// Run caps the queue, or lifts its cap.
func (v queuesSetVerb) Run(ctx context.Context, p *program) error {
	most := 0
	if v.MaxConcurrent != nil {
		most = *v.MaxConcurrent
	}
	if most < 0 || most > store.MaxLimit {
		return usage("--max-concurrent %d: want 1 to %d, or 0 for any number", most, store.MaxLimit)
	}
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		state, err := v.set(ctx, o, most)
		if errors.Is(err, store.ErrNotFound) {
			err = fmt.Errorf("%w; use --force to set it anyway", err)
		}
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(state)
		}
		if state.MaxConcurrent == nil {
			_, err = fmt.Fprintf(p.stdout, "%s: any number of runs execute concurrently\n", state.Name)
		} else {
			_, err = fmt.Fprintf(p.stdout, "%s: at most %d %s concurrently, over all workers\n", state.Name, most, plural(int64(most), "run executes", "runs execute"))
		}
		return err
	})
}

func (v queuesSetVerb) set(ctx context.Context, o *operate.Actor, most int) (operate.CappedQueue, error) {
	switch {
	case most == 0:
		return o.UncapQueue(ctx, v.Name)
	case v.Force:
		return o.CapUnusedQueue(ctx, v.Name, most)
	default:
		return o.CapQueue(ctx, v.Name, most)
	}
}

// Run prints changes.
func (v auditListVerb) Run(ctx context.Context, p *program) error {
	if err := checkLimit(v.Limit); err != nil {
		return err
	}
	if v.Cursor < 0 {
		return usage("--cursor %d: want 0 or more", v.Cursor)
	}
	if v.Kind != "" && !slices.Contains([]word{"run", "bulk", "batch", "queue", "schedule", "limit", "lock", store.KindSession}, v.Kind) {
		return usage("--kind %q: want run, bulk, batch, queue, schedule, limit, lock or session", v.Kind)
	}
	return v.watched(ctx, p, func(ctx context.Context, o *operate.Actor) error {
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
