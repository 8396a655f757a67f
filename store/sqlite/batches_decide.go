package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// firstMember is a cursor before each member of a batch.
var firstMember = uuid.Nil[:] //nolint:gochecknoglobals // a constant

// decideBatches decides about the batches that are due. One that SQLite refuses to change rests, and
// is in no other's way.
func (s *Store) decideBatches(ctx context.Context, c *change, most int) (taken int, err error) {
	resting := s.undecided.Resting(s.elapsed())
	due, err := c.DueBatches(ctx, queries.DueBatchesParams{Now: &c.now, Most: int64(most + len(resting))})
	if err != nil {
		return 0, err
	}
	for i := range due {
		row := &due[i]
		if slices.Contains(resting, string(row.ID)) {
			continue
		}
		err := c.around(ctx, func() error { return c.decideBatch(ctx, row, most) }, func(err error) {
			again := s.undecided.Put(string(row.ID), s.elapsed())
			s.logger.Warn("deciding about a batch failed, will be retried", "event", "batch.not_decided", "batch", uuid.UUID(row.ID), "again", again, "error", err)
		})
		if err != nil {
			return taken, err
		}
		taken++
	}
	return taken, nil
}

// decideBatch decides about a batch, notes what others may wait for, and has so many members of a
// cancelled one cancelled. This transaction is the only one that writes, so the counts are whole.
func (c *change) decideBatch(ctx context.Context, row *queries.Batch, most int) error {
	before := batchOf(row)
	d := rules.DecideBatch(before, instant(c.now), true)
	if d.Cancelled && !before.Cancelled {
		row.Cursor = firstMember
	}
	decided := queries.DecideBatchParams{
		State: int64(d.State), IsClosed: number(d.Closed), IsCancelled: number(d.Cancelled), Reason: d.Reason, ID: row.ID,
		DueAt: micros(rules.BatchTimer(&d.Batch)),
	}
	if d.FailedAt != nil {
		decided.FailedAt = micros(*d.FailedAt)
	}
	if d.EndedAt != nil {
		decided.EndedAt = micros(*d.EndedAt)
	}
	if row.Cursor != nil {
		next, err := c.cancelMembers(ctx, row.ID, row.Cursor, most)
		if err != nil {
			return err
		}
		if decided.Cursor = next; next != nil {
			decided.DueAt = &c.now
		}
	}
	if d.Notify {
		if err := c.NoticeEnded(ctx, queries.NoticeEndedParams{DueAt: c.now, Batch: row.ID}); err != nil {
			return err
		}
	}
	return c.DecideBatch(ctx, decided)
}

// cancelMembers has the next members of a batch cancelled, each by a notice of its own, so that one
// which SQLite refuses to change is in no other's way. It returns the cursor for the ones behind
// them; nil: there are none.
func (c *change) cancelMembers(ctx context.Context, batch, after []byte, most int) (next []byte, err error) {
	most = min(max(most, 1), rules.MostWaiters)
	next, err = c.EndOfPortion(ctx, queries.EndOfPortionParams{Batch: batch, After: after, Skip: int64(most) - 1})
	upto := next
	if errors.Is(err, sql.ErrNoRows) {
		next, upto, err = nil, afterEveryID, nil
	}
	if err != nil {
		return nil, err
	}
	return next, c.NoticeMembers(ctx, queries.NoticeMembersParams{DueAt: c.now, Batch: batch, After: after, Upto: upto})
}

// cancelMember cancels a member of a cancelled batch.
func (c *change) cancelMember(ctx context.Context, id []byte) (done outcome, err error) {
	reason, err := c.WhyCancelled(ctx, queries.WhyCancelledParams{RunID: id})
	if err != nil {
		return done, unlessNone(err)
	}
	return c.cancelFor(ctx, id, reason)
}

// nextDue is how long it is until a notice or a batch is due; negative: none is. A batch that rests
// does not count: a release that comes anyway finds it when it has rested.
func (s *Store) nextDue(ctx context.Context, reader *queries.Queries, now int64) (time.Duration, error) {
	next, err := nextNotice(ctx, reader, now)
	if err != nil || next == 0 {
		return next, err
	}
	resting := s.undecided.Resting(s.elapsed())
	batches, err := reader.NextBatches(ctx, queries.NextBatchesParams{Most: int64(len(resting) + 1)})
	if err != nil {
		return -1, err
	}
	for i := range batches {
		if slices.Contains(resting, string(batches[i].ID)) {
			continue
		}
		if in := max(duration(batches[i].DueAt-now), 0); next < 0 || in < next {
			next = in
		}
	}
	return next, nil
}

// forgetting bounds what is forgotten of ended batches in one transaction, and in one sweep.
const (
	forgetPortion = 1000
	forgetSteps   = 100
)

// forgetBatches forgets ended batches that are kept no longer, which frees their members.
func (s *Store) forgetBatches(ctx context.Context, request *store.SweepRequest) error {
	for range forgetSteps {
		forgotten := int64(0)
		err := s.write(ctx, enqueues, func(ctx context.Context, c *change) (err error) {
			forgotten, err = c.forgetBatches(ctx, request)
			return err
		})
		if err != nil || forgotten < forgetPortion {
			return err
		}
	}
	return nil
}

// forgetBatches forgets members, and batches that have none left, so many in all.
func (c *change) forgetBatches(ctx context.Context, request *store.SweepRequest) (forgotten int64, err error) {
	for _, state := range []store.BatchState{store.BatchSucceeded, store.BatchFailed, store.BatchCancelled} {
		before := c.now - rules.BatchKept(&store.Batch{State: state}, request).Microseconds()
		for forgotten < forgetPortion {
			id, err := c.FindForgotten(ctx, queries.FindForgottenParams{State: int64(state), Before: &before})
			if errors.Is(err, sql.ErrNoRows) {
				break
			}
			if err != nil {
				return forgotten, err
			}
			most := forgetPortion - forgotten
			gone, err := c.ForgetMembers(ctx, queries.ForgetMembersParams{Batch: id, Most: most})
			if err == nil && gone < most {
				gone++
				err = c.ForgetBatch(ctx, queries.ForgetBatchParams{ID: id})
			}
			if err != nil {
				return forgotten, err
			}
			forgotten += gone
		}
	}
	return forgotten, nil
}
