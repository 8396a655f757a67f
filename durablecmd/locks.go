package durablecmd

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store/backend"
)

// locksVerb is the verb locks.
type locksVerb struct {
	List    locksListVerb    `cmd:"" help:"List the locks that are held, by name and slot, and who waits for them."`
	Release locksReleaseVerb `cmd:"" help:"Free a lock, whoever holds it. Its holder is told at its next heartbeat; what it writes with its fence can be refused from now on."`
	Forced  locksForcedVerb  `cmd:"" help:"List the locks that were freed by force, newest first."`
}

type (
	locksListVerb struct {
		Prefix string `arg:"" optional:"" help:"Only names that begin with it."`
		Limit  int    `default:"200" help:"Most locks listed, 1 to 10000."`
		JSON   bool   `name:"json" help:"Print JSON."`
	}
	locksReleaseVerb struct {
		Name   string `arg:"" help:"Name of the lock."`
		Slot   int    `help:"Slot of the lock."`
		Reason word   `required:"" placeholder:"TEXT" help:"Why; it is written down."`
		By     string `help:"Who orders it. Default: the user who runs the program, and the machine."`
		JSON   bool   `name:"json" help:"Print JSON."`
	}
	locksForcedVerb struct {
		Limit int  `default:"50" help:"Most releases listed, 1 to 10000."`
		JSON  bool `name:"json" help:"Print JSON."`
	}
)

// openLocks returns the locks of the configuration, and what closes them.
func openLocks(ctx context.Context, store backend.Store, config Config) (lock.Locks, func(*slog.Logger), error) {
	if config.RedisURL == "" {
		return store.Locks(), func(*slog.Logger) {}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	locks, err := backend.OpenRedisLocks(bounded, config.RedisURL, config.Schema)
	if err != nil {
		return nil, nil, err
	}
	return locks, func(logger *slog.Logger) {
		if err := locks.Close(); err != nil {
			logger.Warn("closing the connections to redis", "error", err)
		}
	}, nil
}

// withLocks does a verb's work with the locks of the configuration.
func (p *program) withLocks(ctx context.Context, work func(context.Context, lock.Locks) error) error {
	return p.withStore(ctx, served, func(ctx context.Context, store backend.Store, config Config) error {
		locks, closeLocks, err := openLocks(ctx, store, config)
		if err != nil {
			return err
		}
		defer closeLocks(slog.New(slog.DiscardHandler))
		return work(ctx, locks)
	})
}

// Run prints the locks that are held.
func (v locksListVerb) Run(ctx context.Context, p *program) error {
	if !within(v.Limit, 1, 10_000) {
		return usage("--limit %d: want 1 to 10000", v.Limit)
	}
	return p.withLocks(ctx, func(ctx context.Context, locks lock.Locks) error {
		records, err := locks.ListLocks(ctx, v.Prefix, v.Limit)
		if err != nil {
			return err
		}
		waits, err := locks.ListWaits(ctx, v.Prefix, v.Limit)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(map[string]any{"locks": notNil(records), "waits": notNil(waits), "next": nil})
		}
		return p.printLocks(records, waits)
	})
}

func (p *program) printLocks(records []lock.Record, waits []lock.Wait) error {
	now := p.now()
	if len(records) == 0 {
		if _, err := fmt.Fprintln(p.stdout, "no locks are held"); err != nil {
			return err
		}
	} else {
		table := newTable(p.stdout)
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
	table := newTable(p.stdout)
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
	return p.withLocks(ctx, func(ctx context.Context, locks lock.Locks) error {
		released, err := locks.ForceRelease(ctx, force)
		if err != nil {
			return err
		}
		if !released {
			return fmt.Errorf("lock %s, slot %d: nobody holds it: %w", v.Name, v.Slot, durable.ErrNotFound)
		}
		if v.JSON {
			return p.printJSON(map[string]any{"released": true, "name": v.Name, "slot": v.Slot, "by": force.By})
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
	return p.withLocks(ctx, func(ctx context.Context, locks lock.Locks) error {
		records, err := locks.ListForced(ctx, v.Limit)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(map[string]any{"forced": notNil(records), "next": nil})
		}
		if len(records) == 0 {
			_, err := fmt.Fprintln(p.stdout, "no lock was freed by force")
			return err
		}
		table := newTable(p.stdout)
		table.row("NAME", "SLOT", "WHEN", "BY", "REASON", "OWNER", "FENCE")
		for _, r := range records {
			table.row(r.Name, strconv.Itoa(r.Slot), ago(r.At, p.now()), r.By, clipped(orDash(&r.Reason), 60), orDash(&r.Owner),
				strconv.FormatInt(int64(r.Fence), 10))
		}
		return table.flush()
	})
}
