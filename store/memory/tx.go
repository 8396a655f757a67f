package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

var _ store.Tx = (*Tx)(nil)

// errEnded is the answer of a transaction that was committed or rolled back.
var errEnded = errors.New("the transaction has ended")

// Tx is a transaction over runs, for tests of code that takes a durable.Tx.
// What is done through it is seen through it, and by others once Commit has
// returned nil. It locks nothing: that a run it has guarded or completed is no
// longer the claim's is found out by Commit. It is for one goroutine at a time.
type Tx struct {
	store    *Store
	ended    bool
	runs     []store.NewRun
	receipts []store.Receipt               // what was answered for each
	holds    map[store.RunID]lease.ClaimID // guarded or completed
	done     map[store.RunID]store.Completion
	steps    []store.NewStep
	inputs   []store.NewInput

	schedules map[string]*scheduling // by name
}

// Begin begins a transaction. It holds nothing that would have to be given
// back; Rollback only forgets.
func (s *Store) Begin() *Tx {
	return &Tx{store: s, holds: make(map[store.RunID]lease.ClaimID), done: make(map[store.RunID]store.Completion)}
}

// EnqueueUnder stores the runs while the holder's run is its claim's.
func (s *Store) EnqueueUnder(ctx context.Context, holder store.Holder, runs ...store.NewRun) ([]store.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("enqueue under run %s: %w", holder.Run, err)
	}
	if err := store.CheckRuns(runs); err != nil {
		return nil, fmt.Errorf("enqueue under run %s: %w", holder.Run, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.verdict(holder.Run, holder.Claim) != store.Applied {
		return nil, fmt.Errorf("enqueue under run %s: %w", holder.Run, lease.ErrLost)
	}
	if err := errors.Join(s.checkLimits(runs), s.checkSources(runs), s.checkBatches(s.runs[holder.Run], runs)); err != nil {
		return nil, fmt.Errorf("enqueue under run %s: %w", holder.Run, err)
	}
	return s.take(s.runs[holder.Run], runs), nil
}

// Commit stores all that was done through the transaction, or nothing:
// lease.ErrLost says that a run in it is no longer the claim's.
func (t *Tx) Commit() error {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	return t.commit()
}

// commit needs the store's mutex.
func (t *Tx) commit() error {
	if t.ended {
		return errEnded
	}
	t.ended = true
	s := t.store
	for id, claim := range t.holds {
		if s.verdict(id, claim) != store.Applied {
			return fmt.Errorf("commit: run %s: %w", id, lease.ErrLost)
		}
	}
	if !slices.Equal(t.after().take(nil, t.runs), t.receipts) {
		return fmt.Errorf("commit: a unique key of one of the runs has changed hands since it was enqueued: %w", store.ErrConflict)
	}
	if err := t.checkSchedules(); err != nil {
		return err
	}
	now := s.now()
	if err := t.keepRecorded(now); err != nil {
		return err
	}
	for id, c := range t.done {
		r := s.runs[id]
		s.end(r, r.worker, &store.Outcome{Kind: store.Success, Result: c.Result, Log: c.Log}, now)
	}
	s.take(nil, t.runs)
	s.hintIf(t.sendAll(now))
	return t.changeSchedules()
}

// Rollback forgets what was done through the transaction. After Commit it does
// nothing.
func (t *Tx) Rollback() { t.ended = true }

// Enqueue keeps the runs for Commit.
func (t *Tx) Enqueue(ctx context.Context, runs ...store.NewRun) ([]store.Receipt, error) {
	if err := t.usable(ctx); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	if err := store.CheckRuns(runs); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if err := t.store.checkLimits(runs); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	shadow := t.after()
	shadow.take(nil, t.runs)
	if err := errors.Join(shadow.checkSources(runs), shadow.checkBatches(nil, runs)); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	fixed := make([]store.NewRun, len(runs))
	for i := range runs {
		fixed[i] = t.fixed(runs[i])
	}
	receipts := shadow.take(nil, fixed)
	t.runs, t.receipts = append(t.runs, fixed...), append(t.receipts, receipts...)
	return slices.Clone(receipts), nil
}

// fixed is the run with its due time counted from now. The caller holds the
// store's mutex.
func (t *Tx) fixed(n store.NewRun) store.NewRun {
	if n.At.IsZero() && len(n.DependsOn) == 0 && n.Key.Policy != store.KeyDebounce {
		n.At, n.After = t.store.now().Add(n.After), 0
	}
	n.Args, n.Tags, n.Metadata = bytes.Clone(n.Args), slices.Clone(n.Tags), maps.Clone(n.Metadata)
	return n
}

func (t *Tx) usable(ctx context.Context) error {
	if t.ended {
		return errEnded
	}
	return ctx.Err()
}

// Guard makes Commit refuse when the run is not the claim's then.
func (t *Tx) Guard(ctx context.Context, holder store.Holder) error {
	if err := t.hold(ctx, holder); err != nil {
		return fmt.Errorf("guard run %s: %w", holder.Run, err)
	}
	return nil
}

// Complete ends the run when the transaction is committed.
func (t *Tx) Complete(ctx context.Context, holder store.Holder, completion store.Completion) error {
	if err := completion.Check(); err != nil {
		return fmt.Errorf("complete run %s: %w", holder.Run, err)
	}
	if err := t.hold(ctx, holder); err != nil {
		return fmt.Errorf("complete run %s: %w", holder.Run, err)
	}
	completion.Result = bytes.Clone(completion.Result)
	t.done[holder.Run] = completion
	return nil
}

func (t *Tx) hold(ctx context.Context, holder store.Holder) error {
	if err := t.usable(ctx); err != nil {
		return err
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if _, done := t.done[holder.Run]; done || t.store.verdict(holder.Run, holder.Claim) != store.Applied {
		return lease.ErrLost
	}
	t.holds[holder.Run] = holder.Claim
	return nil
}

// Run returns one run as it will be when the transaction is committed.
func (t *Tx) Run(ctx context.Context, id store.RunID) (store.Record, error) {
	if err := t.usable(ctx); err != nil {
		return store.Record{}, fmt.Errorf("run %s: %w", id, err)
	}
	return t.seen().Run(ctx, id)
}

// Runs lists runs as they will be when the transaction is committed.
func (t *Tx) Runs(ctx context.Context, filter store.Filter) (store.Page, error) {
	if err := t.usable(ctx); err != nil {
		return store.Page{}, fmt.Errorf("runs: %w", err)
	}
	return t.seen().Runs(ctx, filter)
}

// seen is a store as it will be when the transaction is committed.
func (t *Tx) seen() *Store {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	shadow := t.after()
	shadow.take(nil, t.runs)
	return shadow
}

// after is a copy of the store with what the transaction completes completed,
// and nothing enqueued: enough of one to read, and to enqueue. The caller holds
// the store's mutex.
func (t *Tx) after() *Store {
	s := t.store
	now := s.now()
	shadow := New(Config{Clock: s.clock})
	shadow.latest = now
	shadow.limits = s.limits.copy()
	for _, l := range s.lanes {
		shadow.lane(l.name)
	}
	for _, r := range s.byID {
		c := *r
		c.attempts = slices.Clone(r.attempts) // one more may be appended
		c.lane = shadow.lane(r.lane.name)
		c.permits, c.gate = nil, nil
		c.steps, c.inputs = copiedSteps(r.steps), slices.Clone(r.inputs)
		shadow.runs[c.id] = &c
		shadow.byID = append(shadow.byID, &c)
		if c.state == store.Pending {
			shadow.wait(&c, c.dueAt, now)
		}
	}
	for name, holder := range s.keys {
		c := *holder
		shadow.keys[name] = &c
	}
	for id, b := range s.batches {
		shadow.batches[id] = &batch{Batch: b.Batch, members: slices.Clone(b.members)}
	}
	for id, c := range t.done {
		r := shadow.runs[id]
		shadow.end(r, r.worker, &store.Outcome{Kind: store.Success, Result: c.Result, Log: c.Log}, now)
	}
	return shadow
}
