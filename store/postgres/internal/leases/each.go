package leases

import (
	"context"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// reclaimFailures bounds the statements of one call that fail. What they have
// not come to, the next call does: what failed is set aside by then.
const reclaimFailures = 40

// each takes leases one by one after a statement for several was refused, and
// the runs of one that is refused in halves, down to the single run.
func (r *reclaiming) each(ctx context.Context, cause error) error {
	found, err := r.db.Queries(r.db.Engine).ReclaimableLeases(ctx, queries.ReclaimableLeasesParams{
		Horizon: conn.TimeOrNull(r.request.Horizon), Aside: r.aside, Most: conn.Small(r.request.Limit)})
	if err != nil {
		return err
	}
	r.db.Log.Warn("the database refuses to requeue a run; reclaiming one lease at a time", "event", "reclaim.refused", "leases", len(found), "error", cause)
	for _, claim := range found {
		if r.room() == 0 || r.failed >= reclaimFailures {
			return nil
		}
		if _, _, err = r.round(ctx, part{stuck: conn.UUIDs{}, just: &claim, leases: 1}); err == nil {
			continue
		}
		if !conn.RefusesRows(err) {
			return err
		}
		if err := r.lease(ctx, claim, err); err != nil {
			return err
		}
	}
	return nil
}

// lease takes the runs of one lease. When nothing can be taken, the lease itself
// is set aside.
func (r *reclaiming) lease(ctx context.Context, claim uuid.UUID, cause error) error {
	ids, err := r.db.Queries(r.db.Engine).ReclaimableRuns(ctx, queries.ReclaimableRunsParams{ClaimID: claim, Aside: r.aside, MostRuns: conn.Small(r.room())})
	if err != nil && !conn.RefusesRows(err) {
		return err
	}
	before := len(r.done.Runs)
	if err == nil {
		if err := r.halves(ctx, claim, ids); err != nil {
			return err
		}
	}
	if len(r.done.Runs) == before {
		r.pass("lease", claim, cause)
	}
	return nil
}

// halves takes runs of one lease.
func (r *reclaiming) halves(ctx context.Context, claim uuid.UUID, ids conn.UUIDs) error {
	if len(ids) == 0 || r.failed >= reclaimFailures {
		return nil
	}
	_, _, err := r.round(ctx, part{stuck: conn.UUIDs{}, just: &claim, runs: ids, leases: 1})
	switch half := len(ids) / 2; {
	case err == nil:
		return nil
	case !conn.RefusesRows(err):
		return err
	case half == 0:
		r.pass("run", ids[0], err)
		return nil
	default:
		if err := r.halves(ctx, claim, ids[:half]); err != nil {
			return err
		}
		return r.halves(ctx, claim, ids[half:])
	}
}

// pass sets aside a lease or a run.
func (r *reclaiming) pass(kind string, id uuid.UUID, err error) {
	again := r.Leases.aside.Put(id, lease.Elapsed())
	r.aside = append(r.aside, id)
	r.done.SetAside = append(r.done.SetAside, store.SetAside{Kind: kind, Name: id.String(), Again: again, Err: err})
}
