package durable_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// throng is handlers that take a while, and how many of them have begun, and execute.
type throng struct {
	begun, executing, most atomic.Int32
}

func (c *throng) register(w *durable.Worker, job durable.Job[letter], while time.Duration) {
	durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error {
		c.begun.Add(1)
		if n := c.executing.Add(1); n > c.most.Load() {
			c.most.Store(n)
		}
		defer c.executing.Add(-1)
		return sleeper(context.WithoutCancel(ctx), while)
	})
}

// floor is how many handlers execute whatever the latency is.
func floor() int { return 4 * runtime.GOMAXPROCS(0) }

func latency(is *atomic.Int64) func() time.Duration {
	return func() time.Duration { return time.Duration(is.Load()) }
}

func (s *scene) countOf(state store.State) int {
	s.t.Helper()
	counts, err := s.store.Counts(s.t.Context())
	require.NoError(s.t, err)
	return int(counts[state].N)
}

func TestShortage_FewBeginAndTheOthersGoToWhoHasCPU(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("spin")
		var slow, quick throng
		var late atomic.Int64
		late.Store(int64(2 * time.Second))
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 1000, ClaimBatchBytes: 1 << 30, SchedulingLatency: latency(&late)})
		slow.register(w, job, time.Minute)
		n := 20 * floor()
		s.enqueueMany(n, func() durable.NewRun { return job.New(letter{}) })
		stop := s.begin(w)
		s.pass(7 * time.Second)
		require.EqualValues(t, floor(), slow.begun.Load())
		require.Equal(t, n, s.countOf(durable.Running), "claimed")
		s.pass(2 * time.Second)
		require.Equal(t, floor(), s.countOf(durable.Running), "a quarter of the lease later the others are handed back")
		require.Equal(t, n-floor(), s.countOf(durable.Pending))
		status := w.Status()
		require.Equal(t, 2*time.Second, status.SchedulingLatency)
		require.Zero(t, status.Waiting)

		other := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 1000, ClaimBatchBytes: 1 << 30})
		quick.register(other, job, time.Second)
		stopOther := s.begin(other)
		s.pass(10 * time.Second)
		require.EqualValues(t, n-floor(), quick.begun.Load())
		s.pass(50 * time.Second)
		require.Equal(t, n, s.countOf(durable.Succeeded))
		require.EqualValues(t, floor(), slow.begun.Load())
		require.Equal(t, 1, strings.Count(s.log.String(), "worker.short_of_cpu"), "not repeated each time")
		require.NotContains(t, s.log.String(), "lease lost")
		require.NoError(t, stop())
		require.NoError(t, stopOther())
	})
}

func TestShortage_AllEndAFewAtATime(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("spin")
		var c throng
		var late atomic.Int64
		late.Store(int64(2 * time.Second))
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 1000, ClaimBatchBytes: 1 << 30, SchedulingLatency: latency(&late)})
		c.register(w, job, time.Second)
		n := 30 * floor()
		s.enqueueMany(n, func() durable.NewRun { return job.New(letter{}) })
		stop := s.begin(w)
		s.pass(40 * time.Second)
		require.Equal(t, n, s.countOf(durable.Succeeded))
		require.EqualValues(t, n, c.begun.Load())
		require.EqualValues(t, floor(), c.most.Load())
		late.Store(0)
		s.pass(time.Minute)
		s.enqueueMany(n, func() durable.NewRun { return job.New(letter{}) })
		s.pass(6 * time.Second)
		require.EqualValues(t, n, c.most.Load(), "short no more")
		require.NoError(t, stop())
	})
}

func TestShortage_HandlersThatWaitBeginTogether(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("fetch")
		var c throng
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 1000, ClaimBatchBytes: 1 << 30})
		c.register(w, job, 5*time.Second)
		s.enqueueMany(1000, func() durable.NewRun { return job.New(letter{}) })
		stop := s.begin(w)
		require.EqualValues(t, 1000, c.executing.Load(), "in no time")
		s.pass(6 * time.Second)
		require.NoError(t, stop())
	})
}

func TestShortage_ADrainHandsBackWhatHasNotBegun(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("spin")
		var c throng
		var late atomic.Int64
		late.Store(int64(2 * time.Second))
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 1000, ClaimBatchBytes: 1 << 30, SchedulingLatency: latency(&late)})
		c.register(w, job, 5*time.Second)
		s.enqueueMany(2*floor(), func() durable.NewRun { return job.New(letter{}) })
		stop := s.begin(w)
		s.pass(time.Second)
		require.Equal(t, floor(), w.Status().Waiting)
		require.NoError(t, stop())
		require.EqualValues(t, floor(), c.begun.Load())
		require.Equal(t, floor(), s.countOf(durable.Succeeded))
		require.Equal(t, floor(), s.countOf(durable.Pending))
	})
}

// It may be they who compute: others begin one at a time, until they have returned.
func TestShortage_HandlersThatWereGivenUpKeepNotAllOut(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		hangs, job := durable.NewJob[letter]("hangs", durable.Timeout(time.Second), durable.MaxAttempts(1)), durable.NewJob[letter]("spin")
		var c throng
		var late atomic.Int64
		late.Store(int64(2 * time.Second))
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 1000, ClaimBatchBytes: 1 << 30, CancelGrace: time.Second, SchedulingLatency: latency(&late)})
		release := make(chan struct{})
		durable.Register(w, hangs, func(context.Context, *durable.Run[letter]) error {
			<-release
			return nil
		})
		c.register(w, job, time.Second)
		s.enqueueMany(floor(), func() durable.NewRun { return hangs.New(letter{}) })
		stop := s.begin(w)
		s.pass(3 * time.Second)
		require.Equal(t, floor(), w.Status().Stuck)
		s.enqueueMany(2*floor(), func() durable.NewRun { return job.New(letter{}) })
		s.pass(time.Duration(floor()) * time.Second)
		require.EqualValues(t, 1, c.most.Load())
		require.GreaterOrEqual(t, int(c.begun.Load()), floor()-1)
		close(release)
		s.pass(time.Minute)
		require.EqualValues(t, floor(), c.most.Load())
		require.EqualValues(t, 2*floor(), c.begun.Load())
		require.NoError(t, stop())
	})
}

// The turns of a few handlers would take longer than a heartbeat may.
func TestShortage_WhereHeartbeatsCanHardlyArriveOneBeginsAtATime(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("spin")
		var c throng
		var late atomic.Int64
		late.Store(int64(4 * time.Second))
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 1000, ClaimBatchBytes: 1 << 30, SchedulingLatency: latency(&late)})
		c.register(w, job, time.Second)
		stop := s.begin(w)
		s.pass(10 * time.Second)
		s.enqueueMany(10, func() durable.NewRun { return job.New(letter{}) })
		s.pass(30 * time.Second)
		require.Equal(t, 10, s.countOf(durable.Succeeded))
		require.EqualValues(t, 1, c.most.Load())
		late.Store(0)
		s.pass(time.Minute)
		s.enqueueMany(10, func() durable.NewRun { return job.New(letter{}) })
		s.pass(5 * time.Second)
		require.EqualValues(t, 10, c.most.Load(), "short no more")
		require.NoError(t, stop())
	})
}

func TestNothingIsClaimedWhileHeartbeatsFail(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		var c throng
		w := s.worker(durable.WorkerConfig{})
		c.register(w, job, 20*time.Second)
		stop := s.begin(w)
		s.enqueueMany(1, func() durable.NewRun { return job.New(letter{}) })
		s.pass(time.Second)
		require.EqualValues(t, 1, c.begun.Load())
		s.store.cutBefore("Renew", -1)
		s.pass(10 * time.Second)
		s.enqueueMany(5, func() durable.NewRun { return job.New(letter{}) })
		s.pass(time.Minute)
		require.EqualValues(t, 1, c.begun.Load(), "also when no lease is left to renew")
		s.store.cutBefore("Renew", 0)
		s.pass(2 * time.Second)
		require.EqualValues(t, 6, c.begun.Load())
		s.pass(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, 6, s.countOf(durable.Succeeded))
	})
}
