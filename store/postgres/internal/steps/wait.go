package steps

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// lockedFor is how long a wait may wait for a transaction that has locked the run, or is sending
// the input.
const lockedFor = 200 * time.Millisecond

// Begin records a wait; see store.Stepper.
func (s *Steps) Begin(ctx context.Context, wait *store.NewWait) (store.RunSteps, error) {
	if err := wait.Check(); err != nil {
		return store.RunSteps{}, err
	}
	var lasts *int64
	if wait.Until.IsZero() && (wait.For > 0 || wait.Kind == store.StepSleep) {
		micros := conn.Micro(wait.For)
		lasts = &micros
	}
	return s.underClaim(ctx, "begin to wait", wait.Holder, wait.Name, func(b *conn.Batch) *pgx.QueuedQuery {
		return b.Add(queries.BeginWait, wait.Run, uuid.UUID(wait.Claim), conn.TimeOrNull(wait.Until), lasts, conn.Small(wait.Children), int16(wait.Kind), wait.Name)
	})
}

// GiveUp ends the wait for an input; see store.Stepper.
func (s *Steps) GiveUp(ctx context.Context, holder store.Holder, name string) (store.Input, error) {
	found, err := s.underClaim(ctx, "give up waiting", holder, name, func(b *conn.Batch) *pgx.QueuedQuery {
		return b.Add(queries.GiveUp, holder.Run, uuid.UUID(holder.Claim), name)
	})
	if err != nil {
		return store.Input{}, err
	}
	if len(found.Inputs) == 0 {
		return store.Input{}, fmt.Errorf("give up waiting: input %q of run %s has gone with its run", name, holder.Run)
	}
	return found.Inputs[0], nil
}

// underClaim sends a statement that returns the run if it is still the claim's, and reads what
// is stored of the name after it.
func (s *Steps) underClaim(ctx context.Context, what string, holder store.Holder, name string, add func(*conn.Batch) *pgx.QueuedQuery) (store.RunSteps, error) {
	var found store.RunSteps
	if err := s.schema.Usable(ctx); err != nil {
		return found, s.db.Fail(what, err)
	}
	held, read := false, readingsOf([]store.RunID{holder.Run})
	b := s.db.GuardedFor(ctx, lockedFor)
	add(b).Query(func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(uuid.UUID) { held = true })
	})
	b.Add(queries.StepOf, holder.Run, name).Query(read.steps)
	b.Add(queries.InputOf, holder.Run, name).Query(read.inputs)
	b.Add(queries.ClockOfRuns, conn.UUIDs{holder.Run}).Query(read.clocks)
	err := s.db.Send(ctx, s.db.Aloof(), b)
	switch {
	case conn.Code(err) == conn.LockNotAvailable:
		return found, s.db.Fail(what, fmt.Errorf("%w: another transaction keeps the run, or the input, locked: %w", store.ErrConflict, err))
	case err != nil:
		return found, s.db.Fail(what, err)
	case !held:
		return found, lost(what, holder.Run)
	}
	return read.all[0], nil
}
