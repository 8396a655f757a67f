package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// forgetful is the store of one worker, which does what it is asked for and then loses the
// answer now and then. While it is cut off it does nothing, except that settlements arrive
// late, when others execute their runs.
type forgetful struct {
	store.Store

	lost *atomic.Int64
	cut  atomic.Bool
	late sync.WaitGroup
}

// answersOf is how many answers come between two that are lost, on average.
const answersOf = 15

// forgotten calls, and returns the answer if the caller is to know it.
func forgotten[A any](f *forgetful, call func() (A, error)) (answer A, err error) {
	if f.cut.Load() {
		return answer, errLost
	}
	got, err := call()
	if err == nil && (f.cut.Load() || rand.IntN(answersOf) == 0) {
		f.lost.Add(1)
		return answer, errLost
	}
	return got, err
}

func (f *forgetful) Claim(ctx context.Context, r store.ClaimRequest) ([]store.ClaimedRun, error) {
	return forgotten(f, func() ([]store.ClaimedRun, error) { return f.Store.Claim(ctx, r) })
}

func (f *forgetful) HandBack(ctx context.Context, r store.ClaimRequest) (int, error) {
	return forgotten(f, func() (int, error) { return f.Store.HandBack(ctx, r) })
}

func (f *forgetful) Settle(ctx context.Context, s []store.Settlement) ([]store.Verdict, error) {
	if f.cut.Load() {
		f.late.Go(func() { f.settleLate(context.WithoutCancel(ctx), s) })
	}
	return forgotten(f, func() ([]store.Verdict, error) { return f.Store.Settle(ctx, s) })
}

// settleLate settles when the first of the runs is executed once more.
func (f *forgetful) settleLate(ctx context.Context, s []store.Settlement) {
	id, crashes := s[0].Runs[0].ID, -1
	for began := time.Now(); time.Since(began) < 2*leaseDuration; <-time.After(time.Millisecond) {
		r, err := f.Run(ctx, id)
		if err != nil {
			return
		}
		if crashes < 0 {
			crashes = r.CrashCount
		}
		if r.CrashCount > crashes && r.State == durable.Running {
			_, _ = f.Store.Settle(ctx, s)
			return
		}
	}
}

func (f *forgetful) Renew(ctx context.Context, held []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	return forgotten(f, func() ([]lease.ClaimID, error) { return f.Store.Renew(ctx, held, d) })
}

func (f *forgetful) Reclaim(ctx context.Context, r store.ReclaimRequest) (store.ReclaimResult, error) {
	return forgotten(f, func() (store.ReclaimResult, error) { return f.Store.Reclaim(ctx, r) })
}

// The workers of this process lose answers of the store in memory, and are cut off from it
// for longer than their leases, while limits change.
func TestLimitsHold_MemoryLosingAnswers(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	p := newPit(t, db)
	var lost atomic.Int64
	var stores []*forgetful
	for n := range 3 {
		f := &forgetful{Store: db, lost: &lost}
		stores = append(stores, f)
		p.work(f, n)
	}
	p.holds(func(i int) {
		if i%2 > 0 {
			p.trouble(1 + 3*(i%4/2)) // a limit is lowered, or others are drained
			return
		}
		cut := &stores[rand.IntN(len(stores))].cut
		cut.Store(true)
		<-time.After(leaseDuration)
		for range 20 { // others wait for the places while what was cut off is executed once more
			p.enqueue(15)
			<-time.After(reclaimWithin / 20)
		}
		cut.Store(false)
	})
	for _, f := range stores {
		f.late.Wait()
	}
	require.Positive(t, lost.Load())
	t.Logf("%d answers were lost", lost.Load())
}

// work has a worker in this process execute runs until the test ends.
func (p *pit) work(db store.Store, n int) {
	p.t.Helper()
	w := durable.NewWorker(db, durable.WorkerConfig{
		Name: fmt.Sprintf("w%d", n), MaxConcurrentRuns: 8, PollInterval: pollInterval, Terms: lease.Terms{Duration: leaseDuration},
		DrainTimeout: drainTimeout, CancelGrace: cancelGrace, Queues: []durable.Queue{{Name: "default"}, {Name: cappedQueue}},
		Process: new(durable.Process),
	})
	boundedBy(w, p.dir, n)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx)
	}()
	p.t.Cleanup(func() {
		stop()
		<-ended
	})
}
