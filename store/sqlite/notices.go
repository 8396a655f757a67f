package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// Release makes runs due whose inputs have come, and decides about batches; see store.Releaser. It
// takes the write lock of the file only if there is something to do.
func (s *Store) Release(ctx context.Context, request store.ReleaseRequest) (store.ReleaseResult, error) {
	result := store.ReleaseResult{Next: -1}
	reader, err := s.read(ctx)
	if err != nil {
		return result, fmt.Errorf("release: %w", s.explain(err))
	}
	now := s.clock.now()
	looks, err := metBy(ctx, reader.Queries, request.Look, now)
	if err == nil {
		result.Next, err = s.nextDue(ctx, reader.Queries, now)
	}
	if err != nil {
		return store.ReleaseResult{Next: -1}, fmt.Errorf("release: %w", s.explain(err))
	}
	if len(looks) == 0 && result.Next != 0 {
		return result, nil
	}
	err = s.writeAround(ctx, claims, func(ctx context.Context, c *change) (err error) {
		if result, err = s.releaseNoticed(ctx, c, max(request.Limit, 1)); err != nil {
			return err
		}
		released, err := c.releaseLooks(ctx, looks)
		result.Released += released
		return err
	})
	if err != nil {
		return store.ReleaseResult{Next: -1}, fmt.Errorf("release: %w", err)
	}
	if result.Released+result.Ended > 0 {
		s.hint()
	}
	return result, nil
}

// keepNotice says that a run could not be released. Its notice comes back.
func (s *Store) keepNotice(run store.RunID, err error) {
	s.logger.Warn("releasing a run whose input has come failed, will be retried", "event", "input.not_released", "run", run, "error", err)
}

// metBy returns those of the looks whose runs can be made due.
func metBy(ctx context.Context, reader *queries.Queries, looks []store.Look, now int64) (met []store.Look, err error) {
	for _, look := range looks {
		if look.Kind == store.StepChildren {
			came, err := reader.ChildrenCame(ctx, queries.ChildrenCameParams{ID: look.Run[:], Name: look.Name})
			if err != nil {
				return nil, err
			}
			if came != 0 { // whether it is pending is decided in the transaction
				met = append(met, look)
			}
			continue
		}
		row, err := reader.FindAwaiting(ctx, queries.FindAwaitingParams{Name: look.Name, RunID: look.Run[:]})
		if err := unlessNone(err); err != nil {
			return nil, err
		}
		if err == nil && isMet(&row, now) {
			met = append(met, look)
		}
	}
	return met, nil
}

// isMet reports whether a pending run that is due later waits for an input which is there.
func isMet(row *queries.FindAwaitingRow, now int64) bool {
	return store.State(row.State) == store.Pending && row.DueAt > now && row.Met != 0
}

// nextNotice is how long it is until the next notice is due; negative: there is none.
func nextNotice(ctx context.Context, reader *queries.Queries, now int64) (time.Duration, error) {
	due, err := reader.NextNotice(ctx)
	if err != nil {
		return -1, unlessNone(err)
	}
	return max(duration(due-now), 0), nil
}

// releaseNoticed decides about batches, takes the notices that are due, and makes their runs due
// that can be. A notice whose run is executing comes back: the run may be about to wait. So does
// one whose run SQLite refuses to change.
func (s *Store) releaseNoticed(ctx context.Context, c *change, most int) (store.ReleaseResult, error) {
	result := store.ReleaseResult{Next: -1}
	decided, err := s.decideBatches(ctx, c, most)
	if err != nil {
		return result, err
	}
	result.Taken = decided
	notices, err := c.DueNotices(ctx, queries.DueNoticesParams{Now: c.now, Most: int64(most)})
	if err != nil {
		return result, err
	}
	for i := range notices {
		n := &notices[i]
		var done outcome
		err := c.around(ctx, func() (err error) {
			done, err = c.releaseFor(ctx, n)
			return err
		}, func(err error) {
			done = outcome{kept: true}
			s.keepNotice(store.RunID(n.RunID), err)
		})
		if err == nil && done.kept {
			err = c.PutBackNotice(ctx, queries.PutBackNoticeParams{DueAt: c.now + rules.NoticePause(int(n.Tries)).Microseconds(), ID: n.ID})
		}
		if err != nil {
			return result, err
		}
		result.Taken++
		result.Released += done.released
		result.Ended += done.ended
	}
	result.Next, err = s.nextDue(ctx, c.Queries, c.now)
	return result, err
}

// releaseFor does what a notice asks for, unless it has to be kept for later.
func (c *change) releaseFor(ctx context.Context, n *queries.DueNoticesRow) (done outcome, err error) {
	switch rules.Notice(n.Kind) { //nolint:gosec // 0 to 4
	case rules.NoticeEnded:
		return done, c.releaseEnded(ctx, n)
	case rules.NoticeInput:
		done, err = c.releaseSent(ctx, n)
	case rules.NoticeLook:
		done, err = c.look(ctx, n.RunID)
	case rules.NoticeOrphan:
		done, err = c.cancelFor(ctx, n.RunID, rules.ParentCancelled)
	case rules.NoticeMember:
		done, err = c.cancelMember(ctx, n.RunID)
	}
	if err != nil || done.kept {
		return done, err
	}
	return done, c.DeleteNotice(ctx, queries.DeleteNoticeParams{ID: n.ID})
}

// releaseSent makes a run due that waits for the input that it was sent.
func (c *change) releaseSent(ctx context.Context, n *queries.DueNoticesRow) (done outcome, err error) {
	row, err := c.FindAwaiting(ctx, queries.FindAwaitingParams{Name: n.Name, RunID: n.RunID})
	switch {
	case err != nil:
		return done, unlessNone(err)
	case store.State(row.State) == store.Running: //nolint:gosec // 0 to 5
		return outcome{kept: true}, nil
	case !isMet(&row, c.now):
		return done, nil
	}
	return outcome{released: 1}, c.makeDue(ctx, n.RunID, row.Lane, row.DueAt, row.Limits)
}

// releaseLooks makes runs due that have just begun to wait for inputs which are there.
func (c *change) releaseLooks(ctx context.Context, looks []store.Look) (released int, err error) {
	for _, look := range looks {
		if look.Kind == store.StepChildren {
			done, err := c.look(ctx, look.Run[:])
			if err != nil {
				return released, err
			}
			released += done.released
			continue
		}
		row, err := c.FindAwaiting(ctx, queries.FindAwaitingParams{Name: look.Name, RunID: look.Run[:]})
		if err := unlessNone(err); err != nil {
			return released, err
		}
		if err != nil || !isMet(&row, c.now) {
			continue
		}
		if err := c.makeDue(ctx, look.Run[:], row.Lane, row.DueAt, row.Limits); err != nil {
			return released, err
		}
		released++
	}
	return released, nil
}

// makeDue moves a pending run to where those are that are due now.
func (c *change) makeDue(ctx context.Context, id []byte, lane, dueAt int64, limits *string) error {
	if err := c.outOfLine(ctx, lane, dueAt, id, limits); err != nil {
		return err
	}
	if err := c.MakeDue(ctx, queries.MakeDueParams{DueAt: c.now, ID: id}); err != nil {
		return err
	}
	return c.intoLine(ctx, lane, c.now, id, limits)
}
