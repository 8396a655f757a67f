package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

const (
	// sweepDeletes bounds the runs of one step, which holds the file's write
	// lock: measured, a hundred take 5 to 10 ms.
	sweepDeletes = 100
	// sweepStep bounds the runs examined in one step.
	sweepStep = 1000
	// sweepBytes bounds what is deleted of steps and inputs in one step.
	sweepBytes = 8 << 20
)

// Sweep makes one step of the walk over the runs that are old enough, in the
// order in which they were stored, and where that has come to its end, one of
// the full pass.
func (s *Store) Sweep(ctx context.Context, request store.SweepRequest) (store.SweepResult, error) {
	var step sweeping
	err := s.writeAround(ctx, enqueues, func(ctx context.Context, c *change) error {
		step = sweeping{change: c, request: &request, most: min(max(request.Limit, 1), sweepDeletes)}
		return step.run(ctx)
	})
	if err != nil {
		return store.SweepResult{}, fmt.Errorf("sweep: %w", err)
	}
	if step.done.Done {
		s.prune(ctx, &step.done, &request)
	}
	if step.done.Mended > 0 || slices.ContainsFunc(step.done.Returned, func(r store.ReclaimedRun) bool { return r.State == store.Pending }) {
		s.hint()
	}
	return step.done, nil
}

// sweeping is one step under way.
type sweeping struct {
	*change
	request  *store.SweepRequest
	most     int                     // runs to delete or to hand back
	recorded int64                   // bytes of the steps and inputs that were deleted with runs
	own      map[int64]time.Duration // retention by lane, of the jobs that have one of their own
	done     store.SweepResult
}

func (w *sweeping) run(ctx context.Context) error {
	place, err := w.FindSweep(ctx)
	if err != nil {
		return err
	}
	since := w.now - place.SweptAt
	if place.Sweeper != nil && !bytes.Equal(place.Sweeper, w.request.By[:]) && since >= 0 && since < store.SweepTenure.Microseconds() {
		w.done.Busy = true
		return nil
	}
	if err := w.readRetentions(ctx); err != nil {
		return err
	}
	more, err := w.scan(ctx, &place.Position, w.frontier())
	if err != nil {
		return err
	}
	every, err := w.passEvery(ctx)
	if err != nil {
		return err
	}
	if ago := w.now - place.BeganAt; !more && place.Pass < 0 && (ago < 0 || ago >= every.Microseconds()) {
		place.Pass, place.BeganAt = 0, w.now
	}
	if !more && place.Pass >= 0 {
		again, err := w.scan(ctx, &place.Pass, math.MaxInt64)
		if err != nil {
			return err
		}
		if !again {
			place.Pass = -1
		}
	}
	return w.move(ctx, place, more)
}

// passEvery is how long after the beginning of one full pass the next one begins.
func (w *sweeping) passEvery(ctx context.Context) (time.Duration, error) {
	last, err := w.LastRun(ctx)
	steps := last / sweepStep
	if err != nil || steps >= int64(store.SweepPassEvery/rules.PassStep) {
		return store.SweepPassEvery, err
	}
	return min(rules.PassLeast+time.Duration(steps)*rules.PassStep, store.SweepPassEvery), nil
}

// move stores where the step has come to. Numbers above the last run's are given
// again, so the walk does not stay above it.
func (w *sweeping) move(ctx context.Context, place queries.FindSweepRow, more bool) error {
	last, err := w.LastRun(ctx)
	if err != nil {
		return err
	}
	moved := queries.MoveSweepParams{Position: min(place.Position, last), Pass: place.Pass, BeganAt: place.BeganAt, SweptAt: w.now}
	if w.done.Done = !more && place.Pass < 0; !w.done.Done {
		moved.Sweeper = w.request.By[:]
	}
	return w.MoveSweep(ctx, moved)
}

// prune forgets batches, cancel requests, workers, changes and statistics that nothing needs any more, after the
// step and apart from it: what cannot be forgotten keeps no run from being deleted.
// A table for which that fails rests, each time for longer.
func (s *Store) prune(ctx context.Context, done *store.SweepResult, request *store.SweepRequest) {
	for _, table := range []struct {
		name  string
		prune func(context.Context, *change) error
	}{
		{"gates", func(ctx context.Context, c *change) error {
			return errors.Join(c.PruneGates(ctx, queries.PruneGatesParams{Now: c.now}),
				c.PruneKept(ctx, queries.PruneKeptParams{Before: c.now - (admit.KeepForIsolated + admit.SkipForIsolated).Microseconds()}))
		}},
		{"cancels", func(ctx context.Context, c *change) error { return c.PruneCancels(ctx) }},
		{"stats", func(ctx context.Context, c *change) error { return c.pruneStats(ctx) }},
		{"workers", func(ctx context.Context, c *change) error {
			return c.PruneWorkers(ctx, queries.PruneWorkersParams{Before: c.now - rules.WorkersKept.Microseconds()})
		}},
		{"audit", func(ctx context.Context, c *change) error {
			return c.PruneAudit(ctx, queries.PruneAuditParams{Before: c.now - rules.Kept(request.RetentionAudit).Microseconds(), Most: rules.AuditPruned})
		}},
	} {
		s.pruneTable(ctx, done, table.name, func() error { return s.write(ctx, enqueues, table.prune) })
	}
	s.pruneTable(ctx, done, "batches", func() error { return s.forgetBatches(ctx, request) })
}

// pruneTable prunes a table, unless it rests.
func (s *Store) pruneTable(ctx context.Context, done *store.SweepResult, name string, prune func() error) {
	if ctx.Err() != nil || slices.Contains(s.unpruned.Resting(s.elapsed()), name) {
		return
	}
	if err := prune(); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		again := s.unpruned.Put(name, s.elapsed())
		done.SetAside = append(done.SetAside, store.SetAside{Kind: "table", Name: name, Again: again, Err: err})
	}
}

// readRetentions reads how long jobs keep their runs by rules of their own.
func (w *sweeping) readRetentions(ctx context.Context) error {
	rows, err := w.OwnRetentions(ctx)
	w.own = make(map[int64]time.Duration, len(rows))
	for _, row := range rows {
		w.own[row.ID] = duration(row.Retention)
	}
	return err
}

// frontier is when the runs were stored that the walk does not look at yet.
func (w *sweeping) frontier() int64 {
	return w.now - rules.WalkAge(w.request).Microseconds()
}

// scan goes through the next runs and moves the position past them. more reports
// whether there are others before the frontier.
func (w *sweeping) scan(ctx context.Context, position *int64, frontier int64) (more bool, err error) {
	rows, err := w.SweepAhead(ctx, queries.SweepAheadParams{Position: *position, Most: sweepStep})
	if err != nil {
		return false, err
	}
	for i := range rows {
		if rows[i].CreatedAt >= frontier {
			return false, nil
		}
		if w.done.Deleted+len(w.done.Returned)+w.done.Mended >= w.most || w.recorded >= sweepBytes {
			return true, nil
		}
		err := w.around(ctx, func() error { return w.judge(ctx, &rows[i]) }, func(err error) {
			w.done.SetAside = append(w.done.SetAside, store.SetAside{
				Kind: "run", Name: uuid.UUID(rows[i].ID).String(), Again: store.SweepPassEvery, Err: err})
		})
		if err != nil {
			return false, err
		}
		*position = rows[i].Seq
	}
	return len(rows) == sweepStep, nil
}

// judge deletes a run that is over, and requeues one that is stranded. All in
// one write transaction: no other can change it meanwhile.
func (w *sweeping) judge(ctx context.Context, row *queries.SweepAheadRow) error {
	switch store.State(row.State) {
	case store.Running:
		return w.takeBack(ctx, row)
	case store.Pending:
		mended, err := w.mend(ctx, row.Lane, row.DueAt, row.ID, row.Limits)
		w.done.Mended += int(mended)
		return err
	default:
	}
	if !store.State(row.State).Terminal() || row.FinishedAt == nil || *row.FinishedAt >= w.now-w.retention(row) {
		return nil
	}
	if row.Links != nil && *row.Links&store.LinkMember != 0 {
		_, err := w.FindMember(ctx, queries.FindMemberParams{RunID: row.ID})
		if !errors.Is(err, sql.ErrNoRows) {
			return err // its batch is kept
		}
	}
	if row.Links != nil && store.State(row.State) != store.Dead {
		needed, err := w.IsNeeded(ctx, queries.IsNeededParams{Source: row.ID})
		if err != nil || needed > 0 {
			return err
		}
	}
	if row.Key != nil {
		held, err := w.HeldKeys(ctx, queries.HeldKeysParams{Seq: row.Seq, Now: &w.now})
		if err != nil || held > 0 {
			return err
		}
		if err := w.DeleteKeyOfRun(ctx, queries.DeleteKeyOfRunParams{RunID: row.ID}); err != nil {
			return err
		}
	}
	if err := w.releaseDeleted(ctx, row.ID, row.Limits); err != nil {
		return err
	}
	if err := w.DeleteAttempts(ctx, queries.DeleteAttemptsParams{RunID: row.ID}); err != nil {
		return err
	}
	if store.State(row.State) != store.Succeeded {
		if err := w.DeleteProblem(ctx, queries.DeleteProblemParams{RunID: row.ID}); err != nil {
			return err
		}
	}
	if err := w.DeleteProgress(ctx, queries.DeleteProgressParams{RunID: row.ID}); err != nil {
		return err
	}
	cost, err := w.deleteRecorded(ctx, row.ID)
	if err != nil {
		return err
	}
	w.recorded += cost
	deleted, err := w.DeleteEnded(ctx, queries.DeleteEndedParams{Seq: row.Seq})
	w.done.Deleted += int(deleted)
	if err != nil {
		return err
	}
	return w.DeleteEdges(ctx, queries.DeleteEdgesParams{Waiter: row.ID})
}

// retention is how long an ended run is kept, in microseconds.
func (w *sweeping) retention(row *queries.SweepAheadRow) int64 {
	return rules.Retention(store.State(row.State), w.own[max(row.Lane, -row.Lane)], w.request).Microseconds()
}

// takeBack ends the execution of a running run whose lease has gone.
func (w *sweeping) takeBack(ctx context.Context, row *queries.SweepAheadRow) error {
	leases, err := w.HasLease(ctx, queries.HasLeaseParams{ClaimID: row.ClaimID})
	if err != nil || leases > 0 {
		return err
	}
	run, err := w.FindStranded(ctx, queries.FindStrandedParams{Seq: row.Seq})
	if err != nil {
		return err
	}
	state, reason := rules.Strand(store.CrashPolicy(run.OnCrash), run.Cancel)
	update := queries.ReturnRunParams{State: int64(state), DueAt: w.now, Seq: row.Seq}
	if state.Terminal() {
		update.FinishedAt = &w.now
	}
	if err := w.ReturnRun(ctx, update); err != nil {
		return err
	}
	if state.Terminal() {
		err = w.InsertProblem(ctx, queries.InsertProblemParams{RunID: row.ID, EndedAt: w.now, Reason: reason})
	}
	if err == nil && row.Limits != nil {
		err = w.release(ctx, row.ID, state, row.Limits)
	}
	if err == nil && !state.Terminal() {
		err = w.intoLine(ctx, run.Lane, w.now, row.ID, row.Limits)
	}
	returned := store.ReclaimedRun{
		ID: store.RunID(row.ID), Lane: store.LaneID(run.Lane), Job: run.Job, Queue: run.Queue,
		State: state, CrashCount: int(run.CrashCount),
	}
	if run.Worker != nil {
		returned.Worker = *run.Worker
	}
	if err == nil {
		w.done.Returned = append(w.done.Returned, returned)
	}
	return err
}
