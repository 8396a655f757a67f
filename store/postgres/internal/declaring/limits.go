package declaring

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// olderAgain is how long a worker waits before it declares its limits again, after an older
// worker has kept it from doing so. Until then runs with these limits cannot be enqueued.
const olderAgain = 15 * time.Second

// limitsVersion is the schema from which on programs know limits.
const limitsVersion = 9

// limits declares limits, one by one where the database refuses them together. What
// cannot be declared is set aside, and stops nothing else.
func (d *declaring) limits(ctx context.Context, declared []store.Limit) error {
	if len(declared) == 0 {
		return nil
	}
	good := make([]store.Limit, 0, len(declared))
	for _, one := range declared {
		if err := store.CheckLimit(one); err != nil {
			d.setAside(one.Name, err)
			continue
		}
		good = append(good, one)
	}
	var older []string
	err := d.db.InBackground(ctx, func() (err error) {
		older, err = d.db.Queries(d.db.Engine).OlderWorker(ctx, queries.OlderWorkerParams{Version: limitsVersion, Within: conn.Micro(untold), Silent: conn.Micro(unreported)})
		return err
	})
	if err != nil {
		return err
	}
	if len(older) > 0 {
		for i := range good {
			d.partly.SetAside = append(d.partly.SetAside, store.SetAside{Kind: rules.KindLimit, Name: good[i].Name, Again: olderAgain, Err: olderWorker(older[0])})
		}
		return nil
	}
	slices.SortFunc(good, func(a, b store.Limit) int { return cmp.Compare(store.LimitName(a.Name), store.LimitName(b.Name)) })
	return d.someLimits(ctx, good)
}

func (d *declaring) setAside(name string, err error) {
	d.partly.SetAside = append(d.partly.SetAside, store.SetAside{Kind: rules.KindLimit, Name: name, Again: store.DeclareAgain, Err: err})
}

// someLimits declares limits in one transaction, in halves when it is refused, and then
// announces those that have changed.
func (d *declaring) someLimits(ctx context.Context, declared []store.Limit) error {
	if len(declared) == 0 {
		return nil
	}
	p := limitColumns(declared)
	each := []any{p.Names, p.Kinds, p.Mosts, p.Periods, p.Bursts, p.BucketCounts, p.KeyLeasts, p.KeyMosts, p.Actions, p.RetryAfters, p.Hashes}
	var known []queries.LockLimitsRow
	var changed []store.LimitID
	err := d.db.Repeat(ctx, func() error {
		b := d.db.NewBatch()
		b.Add(queries.LockLimits, p.Names).Query(func(rows pgx.Rows) (err error) {
			known, err = pgx.CollectRows(rows, pgx.RowToStructByPos[queries.LockLimitsRow])
			return err
		})
		b.Add(queries.InsertLimits, slices.Concat([]any{d.worker.Instance}, each, []any{conn.UUIDs(p.Secrets)})...)
		b.Add(queries.ReplaceLimits, slices.Concat([]any{conn.Micro(store.DeclaredWithin)}, each, []any{d.worker.Instance})...).Query(func(rows pgx.Rows) (err error) {
			changed, err = pgx.CollectRows(rows, pgx.RowTo[store.LimitID])
			return err
		})
		b.Add(queries.TouchLimits, p.Names, p.Kinds, p.Hashes)
		return d.db.Send(ctx, d.db.Engine, b)
	})
	if half := len(declared) / 2; conn.RefusesRows(err) && half > 0 {
		if err := d.someLimits(ctx, declared[:half]); err != nil {
			return err
		}
		return d.someLimits(ctx, declared[half:])
	}
	if err != nil {
		return d.goOn(err, rules.KindLimit, declared[0].Name)
	}
	d.numbers.ForgetLimits()
	for i := range known {
		one := numbers.LimitOf((*queries.ReadLimitsRow)(&known[i]))
		for j := range declared {
			if store.LimitName(declared[j].Name) == one.Name && declared[j].Kind != one.Kind {
				d.setAside(declared[j].Name, rules.KindStays(&one))
			}
		}
	}
	for _, id := range changed {
		if err := d.announceLimit(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// limitColumns are limits as the parameters of InsertLimits.
func limitColumns(all []store.Limit) (p queries.InsertLimitsParams) {
	for i := range all {
		l := &all[i]
		p.Names, p.Kinds, p.Mosts = append(p.Names, store.LimitName(l.Name)), append(p.Kinds, int16(l.Kind)), append(p.Mosts, conn.Small(l.Max))
		p.Periods, p.Bursts = append(p.Periods, conn.Micro(l.Period)), append(p.Bursts, conn.Small(l.Burst))
		p.BucketCounts, p.KeyLeasts = append(p.BucketCounts, conn.Small(l.Buckets)), append(p.KeyLeasts, conn.Small(l.Least))
		p.KeyMosts, p.Actions = append(p.KeyMosts, conn.Small(l.Most)), append(p.Actions, int16(l.WhenFull))
		p.RetryAfters, p.Hashes = append(p.RetryAfters, conn.Micro(l.RetryAfter)), append(p.Hashes, l.Hash())
		p.Secrets = append(p.Secrets, rules.SecretOf(l))
	}
	return p
}

func jobLimitText(limits []store.JobLimit) *string {
	if len(limits) == 0 {
		return nil
	}
	return rules.TextOrNil(conn.JSONText(limits))
}

// announcedPerStep bounds the gates of one statement.
const announcedPerStep = 1000

// announceLimit inserts a turn for each gate of a limit that has waiters, after a change
// of the limit was committed.
func (dc *Declarer) announceLimit(ctx context.Context, id store.LimitID) error {
	first, last := numbers.GatesOf(id)
	for after := first - 1; ; {
		var gates []int64
		err := dc.db.Repeat(ctx, func() error {
			b := dc.db.Guarded(ctx)
			b.Add(queries.AnnounceGates, after, last, conn.Small(announcedPerStep)).Query(func(rows pgx.Rows) (err error) {
				gates, err = pgx.CollectRows(rows, pgx.RowTo[int64])
				return err
			})
			return dc.db.Send(ctx, dc.db.Aloof(), b)
		})
		if err != nil || len(gates) == 0 {
			return err
		}
		dc.wake.Hint()
		if len(gates) < announcedPerStep {
			return nil
		}
		after = gates[len(gates)-1]
	}
}

// A worker that has not been seen for untold counts as gone, and one that reports when
// it has not reported for unreported: programs that report read the schema's version
// again, and reclaim nothing under one that they cannot serve.
const (
	untold     = 75 * time.Minute
	unreported = 2 * time.Minute
)

// olderWorker refuses limits while a worker is alive whose program does not know them.
func olderWorker(name string) error {
	return fmt.Errorf("worker %s is alive and does not know limits: it would execute the limited runs that it reclaims without them; replace it", name)
}
