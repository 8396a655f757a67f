package durable_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// claimsStore is a store whose claims are carried out by the test.
type claimsStore struct {
	durable.Store
	claim func(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error)
}

func (s *claimsStore) Claim(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
	return s.claim(ctx, request)
}

// carryClaims puts a claimsStore between the workers and the store.
func (s *scene) carryClaims(claim func(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error)) (inner durable.Store) {
	inner = s.store.Store
	s.store.Store = &claimsStore{Store: inner, claim: claim}
	return inner
}

// The network carries a mebibyte in a second, and the first claims would be
// answered with more than a call's time allows.
func TestClaim_WhoseAnswerTakesTooLongIsHandedBackAndMadeSmaller(t *testing.T) {
	for _, d := range []time.Duration{2 * time.Second, 4 * time.Second, 30 * time.Second} {
		t.Run(d.String(), func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				const bytesPerSecond = 1 << 20
				var inner durable.Store
				var failed atomic.Int32
				inner = s.carryClaims(func(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
					runs, err := inner.Claim(context.WithoutCancel(ctx), request)
					total := 0
					for i := range runs {
						total += len(runs[i].Args)
					}
					select {
					case <-time.After(time.Duration(total) * time.Second / bytesPerSecond):
						return runs, err
					case <-ctx.Done():
						failed.Add(1)
						return nil, ctx.Err()
					}
				})
				w := s.worker(durable.WorkerConfig{Terms: lease.Terms{Duration: d}})
				job := durable.NewJob[letter]("mail", durable.OnCrash(durable.CrashDead))
				var begun atomic.Int32
				durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { begun.Add(1); return nil })
				for range 100 {
					s.enqueue(job.New(letter{To: strings.Repeat("x", 255<<10)}))
				}
				stop := s.begin(w)
				s.pass(10 * time.Minute)
				require.EqualValues(t, 100, begun.Load(), s.log)
				require.LessOrEqual(t, failed.Load(), int32(8), "claims are made smaller, and stay so")
				counts, err := s.store.Counts(t.Context())
				require.NoError(t, err)
				require.EqualValues(t, 100, counts[durable.Succeeded].N)
				page, err := s.store.Runs(t.Context(), durable.Filter{Limit: 100})
				require.NoError(t, err)
				for _, record := range page.Runs {
					require.Zero(t, record.CrashCount)
				}
				require.NoError(t, stop())
			})
		})
	}
}

// The answer to a claim is lost, and the worker is asked to stop.
func TestDrain_HandsBackAClaimWithoutAnAnswer(t *testing.T) {
	for name, lost := range map[string]int{"immediately": 0, "after some tries": 5} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				ctx, cancel := context.WithCancel(t.Context())
				var inner durable.Store
				inner = s.carryClaims(func(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
					runs, err := inner.Claim(ctx, request)
					if err == nil && len(runs) > 0 {
						s.store.cutBefore("HandBack", lost)
						cancel()
						return nil, errCut
					}
					return runs, err
				})
				w := s.worker(durable.WorkerConfig{})
				job := durable.NewJob[letter]("mail", durable.OnCrash(durable.CrashDead))
				durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { t.Error("begun"); return nil })
				id := s.enqueue(job.New(letter{}))
				began := time.Now()
				require.NoError(t, w.Run(ctx))
				require.Less(t, time.Since(began), 5*time.Second)
				record := s.record(id)
				require.Equal(t, durable.Pending, record.State)
				require.Zero(t, record.Attempt)
				require.Zero(t, record.CrashCount)
			})
		})
	}
}

// A worker that is asked to stop does not wait for a store that is away for longer
// than for its handlers.
func TestDrain_LeavesAClaimWithoutAnAnswerWhereTheStoreIsAway(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		ctx, cancel := context.WithCancel(t.Context())
		var inner durable.Store
		inner = s.carryClaims(func(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
			runs, err := inner.Claim(ctx, request)
			if err == nil && len(runs) > 0 {
				s.store.down()
				cancel()
				return nil, errCut
			}
			return runs, err
		})
		w := s.worker(durable.WorkerConfig{CancelGrace: 3 * time.Second})
		job := durable.NewJob[letter]("mail")
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		s.enqueue(job.New(letter{}))
		began := time.Now()
		require.NoError(t, w.Run(ctx))
		require.InDelta(t, 3, time.Since(began).Seconds(), 1)
		require.Contains(t, s.log.String(), "a claim whose reply was lost was left")
	})
}

// The answers to a claim are lost until another call would end too late, and that one
// hangs. There must be time left to hand the claim back.
func TestClaim_IsHandedBackBeforeItsLeaseExpires(t *testing.T) {
	for lost := time.Duration(0); lost < 8*time.Second; lost += time.Second / 2 {
		t.Run(lost.String(), func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				var first time.Time
				var inner durable.Store
				inner = s.carryClaims(func(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
					if first.IsZero() {
						first = time.Now()
					}
					switch since := time.Since(first); {
					case since <= lost:
						_, err := inner.Claim(ctx, request)
						return nil, errors.Join(err, errCut)
					case since < 30*time.Second: // this one, and what is sent in its place
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return inner.Claim(ctx, request)
				})
				job := durable.NewJob[letter]("mail", durable.OnCrash(durable.CrashDead))
				id := s.enqueue(job.New(letter{}))
				w := s.worker(durable.WorkerConfig{})
				durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
				stop := s.begin(w)
				s.pass(25 * time.Second) // 7.5 until it is late, half a lease for one call more, a pause
				require.Equal(t, durable.Pending, s.record(id).State, s.log)
				s.pass(3 * time.Minute)
				record := s.record(id)
				require.Zero(t, record.CrashCount, s.log)
				require.Equal(t, durable.Succeeded, record.State)
				require.NoError(t, stop())
			})
		})
	}
}

// Workers come and go while the answers to many claims, and many claims, are
// lost. Every run is executed once, or handed back and then executed once.
func TestClaim_LostAnswersStrandNoRun(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) { loseAnswers(t, s, rand.New(rand.NewPCG(seed, 7))) }) //nolint:gosec // a test's
		})
	}
}

func loseAnswers(t *testing.T, s *scene, random *rand.Rand) {
	var mu sync.Mutex
	fates := rand.New(rand.NewPCG(random.Uint64(), 8)) //nolint:gosec // a test's; of the calls, which come from many goroutines
	chance := func(n int) bool { mu.Lock(); defer mu.Unlock(); return fates.IntN(n) == 0 }
	var calm atomic.Bool
	var inner durable.Store
	inner = s.carryClaims(func(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
		switch {
		case calm.Load():
		case chance(4):
			return nil, errCut
		case chance(3):
			_, _ = inner.Claim(ctx, request)
			return nil, errCut
		case chance(10):
			_, _ = inner.Claim(ctx, request)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return inner.Claim(ctx, request)
	})
	const runs = 200
	var begun [runs]atomic.Int32
	type number struct{ N int }
	jobs := make([]durable.Job[number], 4)
	for i := range jobs {
		jobs[i] = durable.NewJob[number](fmt.Sprint("job", i), durable.OnCrash(store.CrashPolicy(i%2)), durable.OnQueue(fmt.Sprint("queue", i%3)))
	}
	config := durable.WorkerConfig{MaxConcurrentRuns: 20, ClaimBatchSize: 12,
		Queues: []durable.Queue{{Name: "queue0", Max: 3}, {Name: "queue1"}, {Name: "queue2", Max: 5}}}
	work := func() func() error {
		w := s.worker(config)
		for _, job := range jobs {
			durable.Register(w, job, func(_ context.Context, run *durable.Run[number]) error {
				begun[run.Args.N].Add(1)
				time.Sleep(50 * time.Millisecond) //nolint:forbidigo // virtual time
				return nil
			})
		}
		return s.begin(w)
	}
	stops := []func() error{work(), work()}
	for i := range runs {
		s.enqueue(jobs[random.IntN(len(jobs))].New(number{i}, durable.Priority(random.IntN(3))))
		if i%10 == 0 {
			s.pass(time.Duration(random.IntN(1000)) * time.Millisecond)
		}
		if i%25 == 0 {
			k := random.IntN(len(stops))
			require.NoError(t, stops[k]())
			stops[k] = work()
		}
	}
	s.pass(2 * time.Minute)
	calm.Store(true)
	s.pass(time.Minute)
	for _, stop := range stops {
		require.NoError(t, stop())
	}
	counts, err := s.store.Counts(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, runs, counts[durable.Succeeded].N, "%v", counts)
	page, err := s.store.Runs(t.Context(), durable.Filter{Limit: runs})
	require.NoError(t, err)
	for _, record := range page.Runs {
		require.Zero(t, record.CrashCount, record.ID)
	}
	for i := range begun {
		require.EqualValues(t, 1, begun[i].Load(), i)
	}
}
