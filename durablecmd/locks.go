package durablecmd

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/operate"
)

// locksVerb is the command locks.
type locksVerb struct {
	List    locksListVerb    `cmd:"" help:"List the locks that are held, by name and slot, and the processes that wait."`
	Release locksReleaseVerb `cmd:"" help:"Release a lock by force. The holder loses it at its next heartbeat; its fence is stale from now on."`
	Forced  locksForcedVerb  `cmd:"" help:"List the locks that were released by force, newest first."`
}

type (
	locksListVerb struct {
		watchFlag

		Prefix string `arg:"" optional:"" help:"Only names with this prefix."`
		Limit  int    `default:"200" help:"Maximum number of results (1 to 10000)."`
		JSON   bool   `name:"json" help:"Print JSON."`
	}
	locksReleaseVerb struct {
		Name   string `arg:"" help:"Name of the lock."`
		Slot   int    `help:"Slot of the lock."`
		Reason word   `required:"" placeholder:"TEXT" help:"Reason, recorded in the audit log."`
		By     string `help:"Name for the audit log. Default: user@host."`
		JSON   bool   `name:"json" help:"Print JSON."`
	}
	locksForcedVerb struct {
		watchFlag

		Limit int  `default:"50" help:"Maximum number of results (1 to 10000)."`
		JSON  bool `name:"json" help:"Print JSON."`
	}
)

// Run prints the locks that are held.
func (v locksListVerb) Run(ctx context.Context, p *program) error {
	if !within(v.Limit, 1, 10_000) {
		return usage("--limit %d: want 1 to 10000", v.Limit)
	}
	return v.watchedLocks(ctx, p, func(ctx context.Context, o *operate.Operator) error {
		list, err := o.Locks(ctx, v.Prefix, v.Limit)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(list)
		}
		return p.printLocks(list.Locks, list.Waits)
	})
}

func (p *program) printLocks(records []lock.Record, waits []lock.Wait) error {
	now := p.now()
	if len(records) == 0 {
		if _, err := fmt.Fprintln(p.stdout, "no locks are held"); err != nil {
			return err
		}
	} else {
		table := p.newTable("CLAIM", "FENCE", "ACQUIRED")
		table.row("NAME", "SLOT", "OWNER", "ACQUIRED", "EXPIRES", "FENCE", "CLAIM")
		for _, r := range records {
			expires := "in " + r.ExpiresAt.Sub(now).Round(time.Second).String()
			if r.Expired {
				expires = "expired"
			}
			table.row(r.Name, strconv.Itoa(r.Slot), orDash(&r.Owner), ago(r.AcquiredAt, now), expires,
				strconv.FormatInt(int64(r.Fence), 10), r.Claim)
		}
		if err := table.flush(); err != nil {
			return err
		}
	}
	if len(waits) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(p.stdout); err != nil {
		return err
	}
	table := p.newTable()
	table.row("WAITS FOR", "OWNER", "CALLS", "SINCE")
	for _, w := range waits {
		table.row(w.Name, orDash(&w.Owner), strconv.Itoa(w.Calls), ago(w.Since, now))
	}
	return table.flush()
}

// Run frees a lock.
func (v locksReleaseVerb) Run(ctx context.Context, p *program) error {
	force := lock.Force{Name: v.Name, Slot: v.Slot, By: v.By, Reason: string(v.Reason)}
	if force.By == "" {
		force.By = actor()
	}
	if err := force.Validate(); err != nil {
		return &usageError{err}
	}
	return p.withLocks(ctx, func(ctx context.Context, o *operate.Operator) error {
		released, err := o.As(force.By).ReleaseLock(ctx, v.Name, v.Slot, string(v.Reason))
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(released)
		}
		_, err = fmt.Fprintf(p.stdout, "released %s, slot %d\n", printable(v.Name), v.Slot)
		return err
	})
}

// Run prints the forced releases.
func (v locksForcedVerb) Run(ctx context.Context, p *program) error {
	if !within(v.Limit, 1, 10_000) {
		return usage("--limit %d: want 1 to 10000", v.Limit)
	}
	return v.watchedLocks(ctx, p, func(ctx context.Context, o *operate.Operator) error {
		list, err := o.ForcedReleases(ctx, v.Limit)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(list)
		}
		if len(list.Forced) == 0 {
			_, err := fmt.Fprintln(p.stdout, "no lock was released by force")
			return err
		}
		table := p.newTable()
		table.row("NAME", "SLOT", "WHEN", "BY", "REASON", "OWNER", "FENCE")
		for _, r := range list.Forced {
			table.row(r.Name, strconv.Itoa(r.Slot), ago(r.At, p.now()), r.By, clipped(orDash(&r.Reason), 60), orDash(&r.Owner),
				strconv.FormatInt(int64(r.Fence), 10))
		}
		return table.flush()
	})
}
