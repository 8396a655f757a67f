package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// errBusy is what a write gets that has waited in vain.
var errBusy = errors.New("the file has been locked by another process for 5s")

// busyFile is a store of one process that makes one write at a time, and whose writes wait,
// up to five seconds each, while another program has the file locked. Reads do not wait.
type busyFile struct {
	durable.Store

	locked *atomic.Bool // shared with the other processes
	queue  chan struct{}
}

func (s *faultyStore) busyFile(locked *atomic.Bool) busyFile {
	return busyFile{Store: s, locked: locked, queue: make(chan struct{}, 1)}
}

// write makes one write when it is its turn and the file is free.
func write[T any](ctx context.Context, f busyFile, call func() (T, error)) (none T, err error) {
	select {
	case f.queue <- struct{}{}:
		defer func() { <-f.queue }()
	case <-ctx.Done():
		return none, ctx.Err()
	}
	for waited := time.Duration(0); f.locked.Load(); waited += 5 * time.Millisecond {
		if waited >= 5*time.Second {
			return none, errBusy
		}
		if err := sleeper(ctx, 5*time.Millisecond); err != nil {
			return none, err
		}
	}
	return call()
}

func (f busyFile) Claim(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
	return write(ctx, f, func() ([]store.ClaimedRun, error) { return f.Store.Claim(ctx, request) })
}

func (f busyFile) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error) {
	return write(ctx, f, func() ([]store.Verdict, error) { return f.Store.Settle(ctx, settlements) })
}

func (f busyFile) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	return write(ctx, f, func() ([]lease.ClaimID, error) { return f.Store.Renew(ctx, claims, d) })
}

func (f busyFile) Touch(ctx context.Context, worker store.WorkerID) error {
	_, err := write(ctx, f, func() (none struct{}, err error) { return none, f.Store.Touch(ctx, worker) })
	return err
}

func (f busyFile) Declare(ctx context.Context, declaration store.Declaration) error {
	_, err := write(ctx, f, func() (none struct{}, err error) { return none, f.Store.Declare(ctx, declaration) })
	return err
}

func (f busyFile) ReportWorker(ctx context.Context, report store.WorkerReport) (store.Shared, error) {
	return write(ctx, f, func() (store.Shared, error) { return f.Store.ReportWorker(ctx, report) })
}

func (f busyFile) Sweep(ctx context.Context, request store.SweepRequest) (store.SweepResult, error) {
	return write(ctx, f, func() (store.SweepResult, error) { return f.Store.Sweep(ctx, request) })
}

// Reclaim reads, and writes where it may take something.
func (f busyFile) Reclaim(ctx context.Context, request store.ReclaimRequest) (store.ReclaimResult, error) {
	if request.Limit == 0 {
		return f.Store.Reclaim(ctx, request)
	}
	return write(ctx, f, func() (store.ReclaimResult, error) { return f.Store.Reclaim(ctx, request) })
}

// Another program has the file locked for longer than a lease, as a backup has: each write
// takes long to fail, and what was refused once is not tried for long. Handlers succeed
// meanwhile. When the lock is gone their outcomes are stored before anybody takes the runs.
func TestAFileThatIsLockedForLongCostsNoRunACrash(t *testing.T) {
	for _, leased := range []time.Duration{5 * time.Second, 6 * time.Second, 30 * time.Second} {
		for _, poll := range []time.Duration{500 * time.Millisecond, 5 * time.Second} {
			for _, held := range []time.Duration{leased + leased/2, leased + 13*time.Second, 100 * time.Second, 250 * time.Second} {
				for _, runs := range []int{1, 2, 7} {
					t.Run(fmt.Sprintf("a lease of %v, a lock of %v, poll %v, %d runs", leased, held, poll, runs), func(t *testing.T) {
						play(t, func(t *testing.T, s *scene) { lockedForLong(t, s, leased, poll, held, runs) })
					})
				}
			}
		}
	}
}

func lockedForLong(t *testing.T, s *scene, leased, poll, held time.Duration, runs int) {
	t.Helper()
	job := durable.NewJob[letter]("mail")
	locked := new(atomic.Bool)
	var begun atomic.Int64
	var stops []func() error
	for range 3 {
		began := time.Now()
		w := durable.NewWorker(s.store.busyFile(locked), durable.WorkerConfig{Terms: lease.Terms{Duration: leased}, PollInterval: poll,
			MaxConcurrentRuns: (runs + 1) / 2, Process: new(durable.Process), Elapsed: func() time.Duration { return time.Since(began) }})
		durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error {
			begun.Add(1)
			return sleeper(context.WithoutCancel(ctx), leased/3)
		})
		stops = append(stops, s.begin(w))
	}
	s.pass(time.Minute)
	ids := make([]durable.RunID, runs)
	for i := range ids {
		ids[i] = s.enqueue(job.New(letter{}, durable.OnCrash([]store.CrashPolicy{durable.CrashRetry, durable.CrashDead}[i%2])))
	}
	s.pass(leased / 6)
	locked.Store(true)
	s.pass(held)
	locked.Store(false)
	s.pass(2 * time.Minute)
	for i, id := range ids {
		record := s.record(id)
		require.Equal(t, durable.Succeeded, record.State, "run %d", i)
		require.Zero(t, record.CrashCount, "run %d", i)
	}
	require.EqualValues(t, runs, begun.Load(), "nothing was executed twice")
	for _, stop := range stops {
		require.NoError(t, stop())
	}
}
