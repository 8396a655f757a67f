package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// batch is a batch with its members, of which those that were deleted are skipped. Its counts are
// taken when they are asked for.
type batch struct {
	store.Batch

	members []store.RunID
}

// checkBatches refuses runs for batches that take none, and batches that do not exist. Holder is the
// run whose handler adds them; nil: they come from outside. The caller holds mu.
func (s *Store) checkBatches(holder *run, runs []store.NewRun) error {
	for _, named := range rules.BatchesOf(runs) {
		if s.batches[named.ID] == nil && named.Name == "" {
			return rules.UnknownBatch(named.ID)
		}
	}
	for i := range runs {
		n := &runs[i]
		if n.Batch == nil {
			continue
		}
		by, own := owner(holder)
		id, adder, err := rules.Joins(by, own, n.Batch)
		if err != nil {
			return err
		}
		b := s.batches[id]
		if r := s.runs[n.ID]; r != nil {
			if n.Batch.Owned && (b == nil || r.batch != id) {
				return rules.NotItsMember(n.ID, id)
			}
			continue
		}
		if b != nil {
			if err := rules.CheckAdding(&b.Batch, by, adder); err != nil {
				return err
			}
		}
	}
	return nil
}

// owner is the run whose handler enqueues, and its batch.
func owner(holder *run) (*store.RunID, store.BatchID) {
	if holder == nil {
		return nil, store.BatchID{}
	}
	return &holder.id, holder.batch
}

// gather makes the batches that runs name, and adds those that were stored. Runs were checked.
func (s *Store) gather(holder *run, runs []store.NewRun, receipts []store.Receipt, now time.Time) {
	by, own := owner(holder)
	for _, named := range rules.BatchesOf(runs) {
		if s.batches[named.ID] == nil {
			s.batches[named.ID] = &batch{Batch: rules.BatchMade(&named, by, now)}
			s.made = append(s.made, named.ID)
		}
	}
	for i := range runs {
		if n := &runs[i]; n.Batch != nil && !receipts[i].Existing {
			id, _, _ := rules.Joins(by, own, n.Batch)
			r, b := s.runs[n.ID], s.batches[id]
			r.batch, b.members = id, append(b.members, r.id)
		}
	}
}

// count takes the counts of a batch.
func (s *Store) count(b *batch) {
	b.Counts = store.BatchCounts{}
	for _, id := range b.members {
		r := s.runs[id]
		if r == nil {
			continue
		}
		b.Counts.Members++
		switch r.state {
		case store.Succeeded:
			b.Counts.Succeeded++
		case store.Dead:
			b.Counts.Dead++
		case store.Cancelled:
			b.Counts.Cancelled++
		case store.Pending, store.Running:
		}
	}
}

// decideBatches decides about every batch, and cancels the members of cancelled ones. It returns how
// many members it has cancelled, and whether others may wait for what was decided.
func (s *Store) decideBatches(now time.Time) (ended int, notify bool) {
	for _, id := range s.made {
		b := s.batches[id]
		if b == nil {
			continue
		}
		if owner := b.Owner; owner != nil && !b.Closed {
			r := s.runs[*owner]
			b.Closed = r == nil || r.state.Terminal() && r.state != store.Dead
		}
		s.count(b)
		d := rules.DecideBatch(b.Batch, now, true)
		b.Batch, notify = d.Batch, notify || d.Notify
		if !b.Cancelled || b.EndedAt != nil {
			continue
		}
		for _, id := range b.members {
			if r := s.runs[id]; r != nil && !r.state.Terminal() && r.cancel == "" {
				s.cancel(r, b.Reason, now)
				ended, notify = ended+1, true
			}
		}
	}
	return ended, notify
}

// batchTimer is how long it is until the first batch has to be decided about; negative: none has.
func (s *Store) batchTimer(now time.Time) time.Duration {
	next := time.Duration(-1)
	for _, b := range s.batches {
		if at := rules.BatchTimer(&b.Batch); !at.IsZero() && (next < 0 || at.Sub(now) < next) {
			next = max(at.Sub(now), 0)
		}
	}
	return next
}

// forgetBatches drops ended batches that are no longer kept, which frees their members.
func (s *Store) forgetBatches(request *store.SweepRequest, now time.Time) {
	s.made = slices.DeleteFunc(s.made, func(id store.BatchID) bool {
		b := s.batches[id]
		if b.EndedAt == nil || b.Counts.Unfinished() > 0 || s.isAwaited(id) || now.Sub(*b.EndedAt) <= rules.BatchKept(&b.Batch, request) {
			return false
		}
		delete(s.batches, id)
		return true
	})
}

// isAwaited reports whether an unfinished run waits for a batch, or may want its results.
func (s *Store) isAwaited(id store.BatchID) bool {
	return slices.ContainsFunc(s.waiters, func(waiter store.RunID) bool {
		w := s.runs[waiter]
		return w != nil && !w.state.Terminal() && w.waitsFor(id)
	})
}

// inBatch reports whether a run is a member of a batch that is kept.
func (s *Store) inBatch(r *run) bool { return s.batches[r.batch] != nil }

// Batch returns a batch.
func (s *Store) Batch(ctx context.Context, id store.BatchID) (store.Batch, error) {
	if err := ctx.Err(); err != nil {
		return store.Batch{}, fmt.Errorf("batch: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.batches[id]
	if b == nil {
		return store.Batch{}, rules.UnknownBatch(id)
	}
	s.count(b)
	return b.Batch, nil
}

// Batches lists batches, newest first.
func (s *Store) Batches(ctx context.Context, filter store.BatchFilter) ([]store.Batch, error) {
	most, err := filter.Most()
	if err := firstOf(ctx.Err(), err); err != nil {
		return nil, fmt.Errorf("batches: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []store.Batch
	for _, b := range s.batches {
		if rules.ChoosesBatch(&filter, &b.Batch) {
			s.count(b)
			found = append(found, b.Batch)
		}
	}
	slices.SortFunc(found, func(a, b store.Batch) int { return bytes.Compare(b.ID[:], a.ID[:]) })
	return found[:min(most, len(found))], nil
}

// Members returns members of a batch, in the order of their ids.
func (s *Store) Members(ctx context.Context, id store.BatchID, after store.RunID, limit int) (page store.MemberPage, err error) {
	if err := ctx.Err(); err != nil {
		return page, fmt.Errorf("members: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.batches[id]
	if b == nil {
		return page, rules.UnknownBatch(id)
	}
	ids := slices.DeleteFunc(slices.Clone(b.members), func(id store.RunID) bool {
		return s.runs[id] == nil || bytes.Compare(id[:], after[:]) <= 0
	})
	slices.SortFunc(ids, func(a, b store.RunID) int { return bytes.Compare(a[:], b[:]) })
	if limit = rules.MemberLimit(limit); len(ids) > limit {
		ids = ids[:limit]
		page.Next = ids[limit-1]
	}
	for _, id := range ids {
		page.Members = append(page.Members, s.outcome(s.runs[id]))
	}
	return page, nil
}

// CloseBatch closes a batch.
func (s *Store) CloseBatch(ctx context.Context, closing store.BatchClose) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("close batch: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.batches[closing.ID]
	if b == nil {
		return rules.UnknownBatch(closing.ID)
	}
	if !b.Closed {
		b.Closed = true
		s.note(change{at: s.now(), kind: rules.KindBatch, subject: closing.ID.String(), what: rules.BatchCloses, by: closing.By})
	}
	s.hint()
	return nil
}

// CancelBatch has the members of a batch cancelled.
func (s *Store) CancelBatch(ctx context.Context, cancel store.BatchCancel) error {
	if err := firstOf(ctx.Err(), cancel.Check()); err != nil {
		return fmt.Errorf("cancel batch: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.batches[cancel.ID]
	if b == nil {
		return rules.UnknownBatch(cancel.ID)
	}
	if b.EndedAt == nil && !b.Cancelled {
		rules.CancelBatch(&b.Batch, cancel.Reason)
		s.note(change{at: s.now(), kind: rules.KindBatch, subject: cancel.ID.String(), what: string(store.CancelRuns), by: cancel.By})
		s.hint()
	}
	return nil
}

// AwaitBatch closes the holder's batch, and has its end noted for a step.
func (s *Store) AwaitBatch(ctx context.Context, holder store.Holder, id store.BatchID, name string) (store.Batch, error) {
	if err := firstOf(ctx.Err(), store.CheckStepName(name)); err != nil {
		return store.Batch{}, fmt.Errorf("wait for batch %s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.verdict(holder.Run, holder.Claim) != store.Applied {
		return store.Batch{}, fmt.Errorf("wait for batch %s: %w", id, lease.ErrLost)
	}
	b := s.batches[id]
	if b == nil || b.Owner == nil || *b.Owner != holder.Run {
		return store.Batch{}, rules.UnknownBatch(id)
	}
	b.Closed = true
	r := s.runs[holder.Run]
	if edge := (rules.Edge{Waiter: r.id, Source: id, Want: rules.WantOf(store.WantEnded, true), Name: name}); !slices.Contains(r.edges, edge) {
		r.edges = append(slices.Clone(r.edges), edge)
		s.noteWaiter(r)
	}
	s.count(b)
	s.hint()
	return b.Batch, nil
}
