package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// Reclaim takes back the runs of expired leases, the longest expired first.
func (s *Store) Reclaim(ctx context.Context, request store.ReclaimRequest) (store.ReclaimResult, error) {
	done, quiet, err := s.nothingExpired(ctx, &request)
	if err != nil {
		return store.ReclaimResult{}, fmt.Errorf("reclaim: %w", err)
	}
	if quiet || request.Limit <= 0 {
		return done, nil
	}
	r := reclaiming{store: s, request: &request, resting: s.aside.Resting(s.elapsed())}
	soon := done.Soon
	err = s.writeAround(ctx, reclaims, func(ctx context.Context, c *change) error {
		r.change, r.done = c, store.ReclaimResult{Now: instant(c.now), Soon: soon}
		return r.all(ctx)
	})
	if err != nil {
		return store.ReclaimResult{}, fmt.Errorf("reclaim: %w", err)
	}
	if slices.ContainsFunc(r.done.Runs, func(r store.ReclaimedRun) bool { return r.State == store.Pending }) {
		s.hint()
	}
	return r.done, nil
}

// reclaimRuns bounds the runs of one call, which holds the file's write lock.
const reclaimRuns = 1000

// reclaiming is one Reclaim under way.
type reclaiming struct {
	*change

	store   *Store
	request *store.ReclaimRequest
	resting []string // claims and runs that are left alone, as bytes
	done    store.ReclaimResult
}

func (r *reclaiming) all(ctx context.Context) error {
	until := r.now
	if !r.request.Horizon.IsZero() {
		until = min(until, r.request.Horizon.UnixMicro())
	}
	expired, err := r.ExpiredLeases(ctx, queries.ExpiredLeasesParams{Until: until, Most: int64(r.request.Limit + len(r.resting))})
	if err != nil {
		return err
	}
	for i := range expired {
		if r.done.Leases == r.request.Limit || r.room() == 0 {
			return nil
		}
		if slices.Contains(r.resting, string(expired[i].ClaimID)) {
			continue
		}
		if err := r.lease(ctx, &expired[i]); err != nil {
			return err
		}
	}
	return nil
}

// room is how many more runs may be taken.
func (r *reclaiming) room() int {
	most := reclaimRuns
	if r.request.Runs > 0 {
		most = min(most, r.request.Runs)
	}
	return max(most-len(r.done.Runs), 0)
}

// lease takes back what one lease still holds, as far as there is room, and ends
// it when nothing is left. A lease of which only what cannot be changed is left
// rests as long as that.
func (r *reclaiming) lease(ctx context.Context, lost *queries.ExpiredLeasesRow) error {
	left, before := false, len(r.done.Runs)
	for id := range slices.Chunk(lost.RunIds, idSize) {
		if slices.Contains(r.resting, string(id)) {
			left = true
			continue
		}
		if r.room() == 0 {
			return r.part(ctx, lost, before)
		}
		err := r.around(ctx, func() error { return r.run(ctx, id, lost) }, func(err error) {
			left = true
			r.pass("run", id, err)
		})
		if err != nil {
			return err
		}
	}
	if left {
		r.store.aside.Put(string(lost.ClaimID), r.store.elapsed())
		return r.part(ctx, lost, before)
	}
	r.done.Leases++
	return r.around(ctx, func() error { return r.DeleteLease(ctx, queries.DeleteLeaseParams{ClaimID: lost.ClaimID}) },
		func(err error) { r.pass("lease", lost.ClaimID, err) })
}

// part marks a lease that stays, if runs of it were taken since there were so many:
// it is not renewed any more.
func (r *reclaiming) part(ctx context.Context, lost *queries.ExpiredLeasesRow, before int) error {
	if len(r.done.Runs) == before {
		return nil
	}
	return r.TakeLeaseInPart(ctx, queries.TakeLeaseInPartParams{ClaimID: lost.ClaimID})
}

// pass sets aside a lease or a run.
func (r *reclaiming) pass(kind string, id []byte, err error) {
	again := r.store.aside.Put(string(id), r.store.elapsed())
	r.done.SetAside = append(r.done.SetAside, store.SetAside{Kind: kind, Name: uuid.UUID(id).String(), Again: again, Err: err})
}

// run takes back one run, if the lease still holds it.
func (r *reclaiming) run(ctx context.Context, id []byte, lost *queries.ExpiredLeasesRow) error {
	row, err := r.FindReclaimable(ctx, queries.FindReclaimableParams{ID: id, ClaimID: lost.ClaimID})
	if errors.Is(err, sql.ErrNoRows) {
		return nil // settled
	}
	if err != nil {
		return err
	}
	run, err := r.crash(ctx, store.RunID(id), lost, &row, r.request.MaxCrashes)
	if err == nil {
		r.done.Runs = append(r.done.Runs, run)
	}
	return err
}

// nothingExpired asks whether a lease has expired, without the write lock: mostly
// none has.
func (s *Store) nothingExpired(ctx context.Context, request *store.ReclaimRequest) (store.ReclaimResult, bool, error) {
	l, err := s.read(ctx)
	if err != nil {
		return store.ReclaimResult{}, false, s.explain(err)
	}
	s.keepTime(ctx)
	now := s.clock.now()
	until := now
	if !request.Horizon.IsZero() {
		until = min(until, request.Horizon.UnixMicro())
	}
	expired, err := l.ExpiredLeases(ctx, queries.ExpiredLeasesParams{Until: until, Most: 1})
	if err != nil {
		return store.ReclaimResult{}, false, s.explain(err)
	}
	soon, err := l.ExpiresBefore(ctx, queries.ExpiresBeforeParams{At: now + request.Ahead.Microseconds()})
	return store.ReclaimResult{Now: instant(now), Soon: soon > 0}, len(expired) == 0, s.explain(err)
}

// crash ends an execution whose worker is gone. The claim leaves the run, so
// that whatever the worker may still write is refused.
func (c *change) crash(
	ctx context.Context, id store.RunID, lost *queries.ExpiredLeasesRow, row *queries.FindReclaimableRow, maxCrashes int,
) (store.ReclaimedRun, error) {
	crashes := rules.Crashes(int(row.CrashCount))
	lane := row.Lane
	if rules.Isolated(crashes) {
		lane = -max(lane, -lane)
	}
	state, reason := rules.Crash(rules.Crashed{
		Policy: store.CrashPolicy(row.OnCrash), Crashes: crashes, Most: maxCrashes, Alone: lost.Alone != 0, CancelReason: row.Cancel})
	update := queries.ReclaimRunParams{State: int64(state), Lane: lane, DueAt: c.now, CrashCount: int64(crashes), ID: id[:]}
	if state.Terminal() {
		update.FinishedAt = &c.now
	}
	if err := c.ReclaimRun(ctx, update); err != nil {
		return store.ReclaimedRun{}, err
	}
	text := rules.CrashError(lost.WorkerName, crashes)
	err := c.InsertAttempt(ctx, queries.InsertAttemptParams{
		RunID: id[:], Fence: row.Fence, Number: row.Attempt, Outcome: int64(store.Crash), Worker: lost.WorkerName,
		StartedAt: *row.StartedAt, EndedAt: c.now, Error: &text,
	})
	if err != nil {
		return store.ReclaimedRun{}, err
	}
	if state.Terminal() {
		err = c.InsertProblem(ctx, queries.InsertProblemParams{RunID: id[:], EndedAt: c.now, Reason: reason})
	}
	if err == nil && row.Limits != nil {
		err = c.release(ctx, id[:], state, row.Limits)
	}
	if err == nil && !state.Terminal() {
		err = c.intoLine(ctx, lane, c.now, id[:], row.Limits)
	}
	return store.ReclaimedRun{
		ID: id, Lane: store.LaneID(lane), Job: row.Job, Queue: row.Queue,
		Worker: lost.WorkerName, State: state, CrashCount: crashes,
	}, err
}
