package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Batch names runs that are counted together: a hundred thousand mails, the pages of a file. Give it
// to InBatch, and to the conditions of what comes after them. The first call of Enqueue that names it
// makes it, in the transaction of that call. The zero value is refused.
type Batch struct{ made store.NewBatch }

// BatchOption is an option of NewBatch and Run.NewBatch.
type BatchOption func(*store.NewBatch)

// NewBatch returns a batch with a new ID. Name is for people, and not empty: no call makes a batch
// without one. Unless it is made with Open, the call
// of Enqueue that makes it closes it: only its own members add runs to it after that.
func NewBatch(name string, options ...BatchOption) Batch {
	return batchOf(store.NewBatch{ID: store.NewRunID(), Name: name}, options)
}

// BatchByID is a batch that was made before. A call that names it is store.ErrNotFound if it does not
// exist.
func BatchByID(id store.BatchID) Batch { return Batch{store.NewBatch{ID: id}} }

func batchOf(made store.NewBatch, options []BatchOption) Batch {
	for _, option := range options {
		option(&made)
	}
	return Batch{made}
}

// Open lets runs be added from outside for d, in any number of calls, until CloseBatch. A batch that
// has not been closed by then is closed, and has failed, as it may not be whole.
func Open(d time.Duration) BatchOption { return func(b *store.NewBatch) { b.OpenFor = d } }

// FailFast cancels the rest of the batch when the first of its members is dead or cancelled.
func FailFast() BatchOption { return func(b *store.NewBatch) { b.FailFast = true } }

// EndsWithin cancels what has not ended d after the batch was made.
func EndsWithin(d time.Duration) BatchOption {
	return func(b *store.NewBatch) { b.EndsWithin = d }
}

// ID is the batch's ID.
func (b Batch) ID() store.BatchID { return b.made.ID }

// OnSuccess is met when the batch is closed and all its members have succeeded; by an empty one,
// too. A dead member holds the dependent until it is retried or deleted; a cancelled one cancels it.
func (b Batch) OnSuccess() store.Condition { return b.on(store.WantSucceeded) }

// OnEnd is met when the batch is closed and all its members have ended, in whatever way.
func (b Batch) OnEnd() store.Condition { return b.on(store.WantEnded) }

// OnFailure is met when the first member is dead or cancelled, or the batch is cancelled. When all
// have succeeded, the dependent is cancelled.
func (b Batch) OnFailure() store.Condition { return b.on(store.WantFailed) }

func (b Batch) on(want store.Want) store.Condition {
	return store.Condition{Want: want, Batches: []store.NewBatch{b.made}}
}

// InBatch makes the run a member of a batch. A run for a batch that is closed or cancelled is
// ErrConflict, and nothing of the call is stored. A run whose unique key another one holds is not
// stored, and so it is no member.
func InBatch(b Batch) Option {
	return Option{"InBatch", onlyRun, func(p *policy) { p.batch = &b.made }}
}

// Batch is the batch that this run is a member of: through Run.Enqueue, a member adds further
// members, also to a batch that is closed. It fails for a run that is no member.
func (r *Run[A]) Batch() Batch { return Batch{store.NewBatch{Holders: true}} }

// NewBatch is a batch of this run: the same in every execution of its handler, as its ID follows from
// the run's ID and from name. Add to it with FanOut, or with InBatch through Run.Enqueue, and then
// Wait. It stays open until then, or until this run has succeeded or was cancelled. Open does not go
// with it.
func (r *Run[A]) NewBatch(name string, options ...BatchOption) OwnBatch {
	made := store.NewBatch{ID: IDFrom(r.ID, name), Name: name, Owned: true}
	return OwnBatch{Batch: batchOf(made, options), x: r.execution, fans: map[string]int{}}
}

// OwnBatch is a batch that a handler has made.
type OwnBatch struct {
	Batch

	x    *execution
	fans map[string]int // how many runs were added under a name, in this execution
}

// Wait closes the batch, and returns its counts when all its members have ended. While it waits,
// this run has no slot and no lease: Wait returns an error, the park, as Sleep does. The counts are
// recorded when the batch has ended for the first time: a later retry of a member does not change
// them. A batch to which nothing was added has ended.
func (b OwnBatch) Wait(ctx context.Context) (store.BatchCounts, error) {
	var counts store.BatchCounts
	name := b.made.Name
	known, err := b.x.book().Begin(ctx, name)
	switch {
	case err != nil:
		return counts, err
	case known != nil && known.Kind == store.StepDone:
		return b.recorded(known)
	case known != nil && known.Kind != store.StepChildren:
		return counts, fmt.Errorf("%w: step %q is stored as a %s, not as a batch: give it another name", ErrInvalid, name, known.Kind)
	}
	var batch store.Batch
	err = stepsOf{b.x}.Insist(ctx, func(ctx context.Context) (err error) {
		batch, err = b.x.w.store.AwaitBatch(ctx, b.x.holder(), b.ID(), name)
		return err
	})
	empty := errors.Is(err, store.ErrNotFound)
	switch {
	case err != nil && !empty:
		return counts, fmt.Errorf("wait for batch %q: %w", name, err)
	case empty || batch.EndedAt != nil:
		step, err := b.x.recordValue(ctx, store.NewStep{Name: name, Kind: store.StepDone}, batch.Counts)
		if err != nil {
			return counts, err
		}
		return b.recorded(&step)
	}
	if known == nil {
		if _, err := b.x.book().BeginChildren(ctx, name, 1); err != nil {
			return counts, err
		}
	}
	return counts, b.x.book().ParkForChildren(ctx, name)
}

func (b OwnBatch) recorded(step *store.StepRecord) (counts store.BatchCounts, err error) {
	text, err := b.x.unsealNamed(StepPart, step.Name, step.Value)
	if err == nil {
		err = json.Unmarshal(text, &counts)
	}
	if err != nil {
		err = fmt.Errorf("%w: step %q is stored, but not as a batch: %w", ErrInvalid, step.Name, err)
	}
	return counts, err
}

// fannedTogether bounds the runs of one call of a FanOut.
const fannedTogether = store.MaxSources

// FanOut adds n runs of the job to a batch of this run, with the args of their numbers from 0, in
// calls of a thousand. It adds each once, however often the handler is executed, and records that it
// is done, as a step does: args must follow from what is recorded, since they may be asked for again
// after a crash. Another n than before is ErrInvalid. It adds runs of several jobs to one batch, each
// by one call. Unique keys and conditions are refused.
func (j Job[A]) FanOut(ctx context.Context, run AnyRun, b OwnBatch, n int, args func(i int) A, options ...Option) error {
	x := run.underWay()
	name := j.fanName(b)
	err := store.CheckStepName(b.made.Name)
	if err == nil && n < 0 {
		err = fmt.Errorf("%d runs: want 0 or more", n)
	}
	if err != nil {
		return fmt.Errorf("%w: fan-out %q: %w", ErrInvalid, name, err)
	}
	known, err := x.book().Begin(ctx, name)
	if err != nil {
		return err
	}
	if known != nil {
		return b.fanned(known, name, n)
	}
	options = append(options[:len(options):len(options)], InBatch(b.Batch))
	for from := 0; from < n; from += fannedTogether {
		runs := make([]NewRun, min(fannedTogether, n-from))
		for i := range runs {
			runs[i], _ = j.make(onlyRun, args(from+i), append(options[:len(options):len(options)], withID(IDFrom(x.run.ID, name, from+i))))
			if runs[i].Key.Text != "" || len(runs[i].DependsOn) > 0 {
				return fmt.Errorf("%w: fan-out %q: its runs have neither unique keys nor conditions: their names make them once", ErrInvalid, name)
			}
		}
		if _, err := x.enqueueUnder(ctx, runs); err != nil {
			return fmt.Errorf("fan-out %q: %w", name, err)
		}
	}
	step, err := x.recordValue(ctx, store.NewStep{Name: name, Kind: store.StepDone}, n)
	if err != nil {
		return err
	}
	return b.fanned(&step, name, n)
}

func (j Job[A]) fanName(b OwnBatch) string { return b.made.Name + "/" + j.name }

// fanned compares how many runs were added with how many there should be.
func (b OwnBatch) fanned(step *store.StepRecord, name string, n int) error {
	var stored int
	text, err := b.x.unsealNamed(StepPart, step.Name, step.Value)
	if err == nil {
		err = json.Unmarshal(text, &stored)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: step %q is stored, but not as a fan-out: %w", ErrInvalid, name, err)
	case stored != n:
		return fmt.Errorf("%w: fan-out %q: it was made for %d runs, and now for %d: record in a step what they follow from", ErrInvalid, name, stored, n)
	}
	b.fans[name] = n
	return nil
}

// Results are the results of the runs that FanOut has added to a batch, in the order of their
// numbers, read in pages of a thousand. A run that has not succeeded gives an *EndedError in its
// place; another error is the last pair. Call it after FanOut and Wait.
func (j ReturningJob[A, R]) Results(ctx context.Context, run AnyRun, b OwnBatch) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		var none R
		x := run.underWay()
		name := j.fanName(b)
		n, known := b.fans[name]
		if !known {
			yield(none, fmt.Errorf("%w: results of batch %q: FanOut of job %s comes first", ErrInvalid, b.made.Name, j.name))
			return
		}
		for from := 0; from < n; from += fannedTogether {
			ids := make([]RunID, min(fannedTogether, n-from))
			for i := range ids {
				ids[i] = IDFrom(x.run.ID, name, from+i)
			}
			outcomes, err := x.book().Outcomes(ctx, ids)
			if err != nil {
				yield(none, fmt.Errorf("results of batch %q: %w", b.made.Name, err))
				return
			}
			for i := range outcomes {
				if !yield(j.resultOf(&outcomes[i])) {
					return
				}
			}
		}
	}
}

// resultOf is the result of a run that should have succeeded.
func (j ReturningJob[A, R]) resultOf(outcome *store.RunOutcome) (result R, err error) {
	end, err := j.childEnd(outcome)
	switch {
	case err != nil:
		return result, err
	case end.State != Succeeded:
		return result, &EndedError{ID: outcome.ID, State: end.State, Reason: end.Reason}
	}
	return decodeResult[R](outcome.ID, end.Result)
}

// Batch returns a batch with its counts, or ErrNotFound.
func (c *Client) Batch(ctx context.Context, id store.BatchID) (store.Batch, error) {
	return c.store.Batch(ctx, id)
}

// CloseBatch says that no run is added to an open batch from outside any more. A repeat does nothing.
func (c *Client) CloseBatch(ctx context.Context, id store.BatchID) error {
	return again(ctx, func(ctx context.Context) error { return c.store.CloseBatch(ctx, store.BatchClose{ID: id}) })
}

// CancelBatch cancels the unfinished members of a batch, and refuses further ones. A batch that has
// ended is left alone.
func (c *Client) CancelBatch(ctx context.Context, id store.BatchID, reason string) error {
	return again(ctx, func(ctx context.Context) error {
		return c.store.CancelBatch(ctx, store.BatchCancel{ID: id, Reason: reason})
	})
}

// The pauses between two looks of WaitBatch.
const (
	firstBatchLook = 20 * time.Millisecond
	lastBatchLook  = time.Second
)

// WaitBatch blocks until a batch has ended, and returns it. It looks at least once a second. The
// error is ErrNotFound when there is no such batch, or ctx's own when that ends first.
func (c *Client) WaitBatch(ctx context.Context, id store.BatchID) (store.Batch, error) {
	for pause := firstBatchLook; ; pause = min(2*pause, lastBatchLook) {
		batch, err := c.store.Batch(ctx, id)
		if err != nil || batch.EndedAt != nil && batch.State != store.BatchRunning {
			return batch, err
		}
		select {
		case <-ctx.Done():
			return batch, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
