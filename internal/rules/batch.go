package rules

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// ofBatch is added to what is wanted of a source in the stored number of an edge to a batch.
const ofBatch = 10

// EdgeWant is what is wanted of the source of an edge: of a run, or of a batch. The numbers are
// stored: those of store.Want for a run, and ten more for a batch.
type EdgeWant int16

// WantOf is what is wanted of a run, or of a batch.
func WantOf(want store.Want, batch bool) EdgeWant {
	if batch {
		return EdgeWant(want) + ofBatch
	}
	return EdgeWant(want)
}

// Batch reports whether the source is a batch.
func (w EdgeWant) Batch() bool { return w > ofBatch }

// Want is what is wanted of it.
func (w EdgeWant) Want() store.Want {
	if w.Batch() {
		return store.Want(w - ofBatch)
	}
	return store.Want(w)
}

// BatchCancelled is why a member is cancelled with its batch, unless another reason was given.
const BatchCancelled = "its batch was cancelled"

// Why a batch cannot succeed any more.
const (
	batchNeverClosed = "it was not closed in time, so it may not be whole"
	batchTooLong     = "it has not ended in time"
	batchFailedFast  = "one of its members has failed"
)

// Decided is a batch after a decision.
type Decided struct {
	store.Batch

	Notify bool // something that others may wait for has become true
}

// DecideBatch decides about a batch from its counts, which must be whole: a difference that is not
// in them may be of a run that was added by one that has ended. Locked says whether it may be closed
// and cancelled: no call is adding runs to it.
func DecideBatch(b store.Batch, now time.Time, locked bool) Decided {
	d := Decided{Batch: b}
	ended := b.EndedAt != nil
	over := func(at *time.Time) bool { return locked && !ended && at != nil && !at.After(now) }
	if !d.Closed && over(d.OpenUntil) {
		d.Closed, d.Reason = true, batchNeverClosed
	}
	if !d.Cancelled && over(d.EndsBy) {
		d.cancel(batchTooLong)
	}
	if d.FailedAt == nil && (d.Counts.Failed() > 0 || d.Reason != "") {
		d.FailedAt, d.Notify = &now, true
	}
	if d.FailFast && d.FailedAt != nil && !d.Cancelled && !ended && locked {
		d.cancel(batchFailedFast)
	}
	d.State = store.BatchRunning
	if d.Closed && d.Counts.Unfinished() == 0 {
		d.State = endOf(&d.Batch)
		if !ended {
			d.EndedAt = &now
		}
	}
	d.Notify = d.Notify || d.State != b.State
	return d
}

func (d *Decided) cancel(reason string) {
	d.Closed, d.Cancelled = true, true
	if d.Reason == "" {
		d.Reason = reason
	}
}

func endOf(b *store.Batch) store.BatchState {
	switch {
	case b.Reason != "":
		return store.BatchCancelled
	case b.Counts.Failed() > 0:
		return store.BatchFailed
	default:
		return store.BatchSucceeded
	}
}

// NeedsLock reports whether the decision about a batch closes or cancels it.
func NeedsLock(b *store.Batch, now time.Time) bool {
	d := DecideBatch(*b, now, true)
	return d.Closed != b.Closed || d.Cancelled != b.Cancelled
}

// BatchTimer is the next instant at which a batch has to be decided about; the zero time: none.
func BatchTimer(b *store.Batch) (next time.Time) {
	for _, at := range []*time.Time{b.OpenUntil, b.EndsBy} {
		switch {
		case at == nil || b.EndedAt != nil || at == b.OpenUntil && b.Closed || at == b.EndsBy && b.Cancelled:
		case next.IsZero() || at.Before(next):
			next = *at
		}
	}
	return next
}

// OfBatch sets what an edge sees of its source, a batch.
func (e *Judged) OfBatch(b *store.Batch, happened Happened) {
	e.Found, e.Noted, e.State, e.happened = true, true, BatchAsRun(b), happened
}

// Happened is what has happened to a batch, and stays so, whatever it is now.
type Happened struct{ Ended, Failed bool }

// HappenedTo is what has happened to a batch.
func HappenedTo(b *store.Batch) Happened { return Happened{b.EndedAt != nil, b.FailedAt != nil} }

// BatchAsRun is what a batch is as a source, in the words of a run. One with cancelled members can
// never succeed.
func BatchAsRun(b *store.Batch) store.State {
	switch {
	case b.State == store.BatchSucceeded:
		return store.Succeeded
	case b.State == store.BatchRunning:
		return store.Running
	case b.State == store.BatchCancelled || b.Counts.Cancelled > 0:
		return store.Cancelled
	default:
		return store.Dead
	}
}

// CheckAdding refuses runs for a batch that takes none from the holder; nil: from outside.
func CheckAdding(b *store.Batch, holder *store.RunID, adder Adder) error {
	switch {
	case b.Cancelled:
		return fmt.Errorf("%w: batch %s was cancelled: %s", store.ErrConflict, b.ID, b.Reason)
	case adder == AddedByMember, !b.Closed && (b.Owner == nil || holder != nil && *holder == *b.Owner):
		return nil
	default:
		return store.BatchClosed(b.ID)
	}
}

// Adder says who adds runs to a batch.
type Adder int8

// Who adds runs.
const (
	AddedOutside Adder = iota
	AddedByMember
	AddedByOwner
)

// NotItsMember is the error of a run of a handler's batch whose id belongs to a run that is no
// member of it.
func NotItsMember(id store.RunID, batch store.BatchID) error {
	return fmt.Errorf("run %s exists, and is no member of batch %s: %w", id, batch, store.ErrConflict)
}

// UnknownBatch is the error of a call that names a batch that does not exist.
func UnknownBatch(id store.BatchID) error { return fmt.Errorf("batch %s: %w", id, store.ErrNotFound) }

// BatchesOf are the batches that runs belong to or depend on, each once, as the first of the runs
// names it.
func BatchesOf(runs []store.NewRun) (named []store.NewBatch) {
	seen := map[store.BatchID]bool{}
	add := func(b *store.NewBatch) {
		if b != nil && !b.Holders && !seen[b.ID] {
			seen[b.ID] = true
			named = append(named, *b)
		}
	}
	for i := range runs {
		add(runs[i].Batch)
	}
	for i := range runs {
		for k := range runs[i].DependsOn {
			for n := range runs[i].DependsOn[k].Batches {
				add(&runs[i].DependsOn[k].Batches[n])
			}
		}
	}
	return named
}

// BatchMade is a batch that a call makes; owner is the run whose handler makes it, or nil.
func BatchMade(b *store.NewBatch, owner *store.RunID, now time.Time) store.Batch {
	made := store.Batch{ID: b.ID, Name: b.Name, FailFast: b.FailFast, CreatedAt: now, Closed: b.OpenFor == 0 && (!b.Owned || owner == nil)}
	if b.Owned {
		made.Owner = owner
	}
	if b.OpenFor > 0 {
		at := now.Add(b.OpenFor)
		made.OpenUntil = &at
	}
	if b.EndsWithin > 0 {
		at := now.Add(b.EndsWithin)
		made.EndsBy = &at
	}
	return made
}

// BatchKept is how long an ended batch is kept.
func BatchKept(b *store.Batch, request *store.SweepRequest) time.Duration {
	if b.State == store.BatchSucceeded {
		return Kept(request.Retention)
	}
	return max(Kept(request.RetentionDead), Kept(request.Retention))
}

// NoMember is the error of a run that is added to the batch of a holder which is in none.
func NoMember(holder store.RunID) error {
	return fmt.Errorf("%w: run %s is no member of a batch", store.ErrConflict, holder)
}

// CancelBatch makes a batch take no more runs, and its members be cancelled.
func CancelBatch(b *store.Batch, reason string) {
	d := Decided{Batch: *b}
	if d.cancel(reason); d.Reason == "" {
		d.Reason = BatchCancelled
	}
	*b = d.Batch
}

// ChoosesBatch reports whether a filter chooses a batch.
func ChoosesBatch(f *store.BatchFilter, b *store.Batch) bool {
	return (len(f.States) == 0 || slices.Contains(f.States, b.State)) &&
		(f.Name == "" || f.Name == b.Name) &&
		(f.Before == store.BatchID{} || bytes.Compare(b.ID[:], f.Before[:]) < 0)
}

// MemberLimit is how many members a page has.
func MemberLimit(asked int) int { return min(max(asked, 1), store.MaxSources) }

// AnyMember reports whether one of the runs is to belong to a batch.
func AnyMember(runs []store.NewRun) bool {
	return slices.ContainsFunc(runs, func(run store.NewRun) bool { return run.Batch != nil })
}

// Joins says to which batch a new run will belong, and who adds it. Own is the batch of the holder;
// the zero ID: it is in none.
func Joins(holder *store.RunID, own store.BatchID, batch *store.NewBatch) (store.BatchID, Adder, error) {
	switch {
	case batch.Holders && (holder == nil || own == store.BatchID{}):
		var id store.RunID
		if holder != nil {
			id = *holder
		}
		return own, AddedOutside, NoMember(id)
	case holder == nil && batch.Owned:
		return own, AddedOutside, fmt.Errorf("%w: a handler adds runs to its batch through its Run", store.ErrConflict)
	case batch.Holders, holder != nil && own == batch.ID:
		return own, AddedByMember, nil
	case batch.Owned:
		return batch.ID, AddedByOwner, nil
	}
	return batch.ID, AddedOutside, nil
}
