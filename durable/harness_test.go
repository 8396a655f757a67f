package durable_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// errCut is what a caller sees of a call whose answer was lost.
var errCut = errors.New("connection cut")

// faultyStore is a store whose calls can be made to fail, before or after they
// have been carried out.
type faultyStore struct {
	durable.Store

	mu     sync.Mutex
	before map[string]int // method → calls that fail without being carried out; negative: all
	after  map[string]int // method → calls that are carried out and reported failed

	frozen     bool            // every write fails and every read is answered: a full disk, a read-only server
	settleMost int             // runs; a Settle of more fails. Zero: no bound
	defers     int             // Settles that are answered with Deferred
	refused    []durable.RunID // a Settle with one of these fails
	locked     []durable.RunID // these are answered with Deferred

	reclaimMost int              // runs; a Reclaim that may take more fails when something has expired. Zero: no bound
	passes      []store.SetAside // answered by the next Reclaim, once
	declares    error            // answered by each Declare that was carried out
}

// errPage is what a store answers that cannot write one run.
var errPage = errors.New("could not read block 7 (SQLSTATE XX001)")

// refuse makes each Settle of these runs fail; none: they are written again.
func (s *faultyStore) refuse(ids ...durable.RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = ids
}

// lock makes each Settle put off these runs; none: they are written again.
func (s *faultyStore) lock(ids ...durable.RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked = ids
}

// isRefused tells whether a Settle fails because of one of its runs.
func (s *faultyStore) isRefused(settlements []store.Settlement) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, settlement := range settlements {
		for _, settled := range settlement.Runs {
			if slices.Contains(s.refused, settled.ID) {
				return true
			}
		}
	}
	return false
}

// settleUnlocked settles the runs that are not locked and defers the others.
func (s *faultyStore) settleUnlocked(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error) {
	s.mu.Lock()
	locked := slices.Clone(s.locked)
	s.mu.Unlock()
	var verdicts []store.Verdict
	for _, settlement := range settlements {
		for _, settled := range settlement.Runs {
			if slices.Contains(locked, settled.ID) {
				verdicts = append(verdicts, store.Deferred)
				continue
			}
			one := store.Settlement{Claim: settlement.Claim, Worker: settlement.Worker, Runs: []store.Settled{settled}}
			given, err := s.Store.Settle(ctx, []store.Settlement{one})
			if err != nil {
				return nil, err
			}
			verdicts = append(verdicts, given...)
		}
	}
	return verdicts, nil
}

func newFaultyStore() *faultyStore {
	return &faultyStore{Store: memory.New(memory.Config{}), before: map[string]int{}, after: map[string]int{}}
}

func (s *faultyStore) cutBefore(method string, n int) { s.set(s.before, method, n) }
func (s *faultyStore) cutAfter(method string, n int)  { s.set(s.after, method, n) }

func (s *faultyStore) set(faults map[string]int, method string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	faults[method] = n
}

// down makes every call fail until up.
func (s *faultyStore) down() {
	for _, method := range []string{"Heads", "Claim", "HandBack", "Settle", "Reclaim", "Renew", "Declare", "Touch", "Materialize", "Sweep"} {
		s.cutBefore(method, -1)
	}
}

func (s *faultyStore) up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.before)
}

// freezeWrites makes every call fail that would write, until thawWrites. A
// Reclaim or a Materialize that finds nothing to do is a read.
func (s *faultyStore) freezeWrites() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = true
}

func (s *faultyStore) thawWrites() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = false
}

// writes are the calls that fail while writes are frozen.
var writes = []string{"Enqueue", "Claim", "Settle", "Renew", "Declare", "Touch", "Sweep"}

func (s *faultyStore) refusesWrites() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frozen
}

func (s *faultyStore) spend(faults map[string]int, method string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if faults[method] == 0 {
		return false
	}
	if faults[method] > 0 {
		faults[method]--
	}
	return true
}

func (s *faultyStore) spendDefer() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.defers--
	return s.defers >= 0
}

// faulty carries out one call under the faults of its method.
func faulty[T any](s *faultyStore, method string, call func() (T, error)) (T, error) {
	var zero T
	if s.spend(s.before, method) || s.refusesWrites() && slices.Contains(writes, method) {
		return zero, errCut
	}
	answer, err := call()
	if s.spend(s.after, method) {
		return zero, errCut
	}
	return answer, err
}

func (s *faultyStore) Enqueue(ctx context.Context, runs ...durable.NewRun) ([]durable.Receipt, error) {
	return faulty(s, "Enqueue", func() ([]durable.Receipt, error) { return s.Store.Enqueue(ctx, runs...) })
}

func (s *faultyStore) Heads(ctx context.Context, serves store.Serves) ([]store.Head, error) {
	return faulty(s, "Heads", func() ([]store.Head, error) { return s.Store.Heads(ctx, serves) })
}

func (s *faultyStore) Claim(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
	return faulty(s, "Claim", func() ([]store.ClaimedRun, error) { return s.Store.Claim(ctx, request) })
}

func (s *faultyStore) HandBack(ctx context.Context, request store.ClaimRequest) (int, error) {
	return faulty(s, "HandBack", func() (int, error) { return s.Store.HandBack(ctx, request) })
}

func (s *faultyStore) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error) {
	var runs int
	for _, settlement := range settlements {
		runs += len(settlement.Runs)
	}
	if s.spendDefer() {
		verdicts := make([]store.Verdict, runs)
		for i := range verdicts {
			verdicts[i] = store.Deferred
		}
		return verdicts, nil
	}
	if s.settleMost > 0 && runs > s.settleMost {
		return nil, errCut
	}
	if s.isRefused(settlements) {
		return nil, errPage
	}
	s.mu.Lock()
	locks := len(s.locked) > 0
	s.mu.Unlock()
	if locks {
		return s.settleUnlocked(ctx, settlements)
	}
	return faulty(s, "Settle", func() ([]store.Verdict, error) { return s.Store.Settle(ctx, settlements) })
}

func (s *faultyStore) Report(ctx context.Context, holder store.Holder, report store.Report) error {
	_, err := faulty(s, "Report", func() (struct{}, error) { return struct{}{}, s.Store.Report(ctx, holder, report) })
	return err
}

func (s *faultyStore) Checkpoint(ctx context.Context, id durable.RunID) ([]byte, error) {
	return faulty(s, "Checkpoint", func() ([]byte, error) { return s.Store.Checkpoint(ctx, id) })
}

func (s *faultyStore) Reclaim(ctx context.Context, request store.ReclaimRequest) (store.ReclaimResult, error) {
	return faulty(s, "Reclaim", func() (store.ReclaimResult, error) {
		if request.Limit > 0 && (s.refusesWrites() || s.reclaimMost > 0 && request.Runs > s.reclaimMost) {
			if done, err := s.Store.Reclaim(ctx, store.ReclaimRequest{}); err != nil || done.Soon {
				return store.ReclaimResult{}, errCut
			}
		}
		done, err := s.Store.Reclaim(ctx, request)
		s.mu.Lock()
		defer s.mu.Unlock()
		done.SetAside, s.passes = s.passes, nil
		return done, err
	})
}

func (s *faultyStore) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	return faulty(s, "Renew", func() ([]lease.ClaimID, error) { return s.Store.Renew(ctx, claims, d) })
}

func (s *faultyStore) Declare(ctx context.Context, declaration store.Declaration) error {
	_, err := faulty(s, "Declare", func() (struct{}, error) { return struct{}{}, s.Store.Declare(ctx, declaration) })
	if err == nil {
		err = s.declares
	}
	return err
}

func (s *faultyStore) Touch(ctx context.Context, worker store.WorkerID) error {
	_, err := faulty(s, "Touch", func() (struct{}, error) { return struct{}{}, s.Store.Touch(ctx, worker) })
	return err
}

func (s *faultyStore) Materialize(ctx context.Context, limit int, decide func(time.Time, store.Schedule) store.Decision) (store.MaterializeResult, error) {
	return faulty(s, "Materialize", func() (store.MaterializeResult, error) { return s.Store.Materialize(ctx, limit, decide) })
}

func (s *faultyStore) Sweep(ctx context.Context, request store.SweepRequest) (store.SweepResult, error) {
	return faulty(s, "Sweep", func() (store.SweepResult, error) { return s.Store.Sweep(ctx, request) })
}

// logBook keeps the messages a worker logs.
type logBook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBook) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// scene is one store with workers, in virtual time.
type scene struct {
	t      *testing.T
	store  *faultyStore
	client *durable.Client
	log    *logBook
}

// play runs a test in a bubble of virtual time. Every goroutine that a worker
// started must have ended when it returns; the bubble sees to that.
func play(t *testing.T, script func(t *testing.T, s *scene)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		script(t, &scene{t: t, store: store, client: durable.NewClient(store), log: &logBook{}})
	})
}

// worker makes a worker on the bubble's clock.
func (s *scene) worker(config durable.WorkerConfig) *durable.Worker {
	began := time.Now()
	config.Elapsed = func() time.Duration { return time.Since(began) }
	if config.Process == nil {
		config.Process = new(durable.Process) // each worker is a process of its own
	}
	config.Logger = slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return durable.NewWorker(s.store, config)
}

// begin runs a worker; stop makes it drain and returns what Run returned.
func (s *scene) begin(w *durable.Worker) (stop func() error) {
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	synctest.Wait()
	return func() error { cancel(); return <-ended }
}

// pass lets virtual time go on, and everything that it makes happen settle.
func (s *scene) pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time of the bubble
	synctest.Wait()
}

func (s *scene) record(id durable.RunID) durable.Record {
	s.t.Helper()
	record, err := s.store.Run(s.t.Context(), id)
	require.NoError(s.t, err)
	return record
}

func (s *scene) enqueue(run durable.NewRun) durable.RunID {
	s.t.Helper()
	receipts, err := s.client.Enqueue(s.t.Context(), run)
	require.NoError(s.t, err)
	return receipts[0].ID
}

type letter struct {
	To string `json:"to"`
}

var errBoom = errors.New("boom")
