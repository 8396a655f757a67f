package durable_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// suspect enqueues a run and crashes it until it is isolated.
func (s *scene) suspect(job durable.Job[letter]) durable.RunID {
	s.t.Helper()
	id := s.enqueue(job.New(letter{To: "suspect"}))
	for range 2 {
		s.crash(s.lane(job.Name()), 1, false)
	}
	require.True(s.t, s.record(id).Isolated)
	return id
}

// beside makes a worker of another store in the same process.
func (s *scene) beside(process *durable.Process, config durable.WorkerConfig) (*durable.Worker, *durable.Client) {
	store, began := memory.New(memory.Config{}), time.Now()
	config.Process, config.Elapsed = process, func() time.Duration { return time.Since(began) }
	config.Logger = slog.New(slog.NewTextHandler(s.log, nil))
	return durable.NewWorker(store, config), durable.NewClient(store)
}

// Two workers of one process, each with a store of its own, never execute
// anything beside an isolated run, whichever of them it is given to.
func TestIsolation_IsAloneInItsProcess(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job, process := durable.NewJob[letter]("mail"), new(durable.Process)
		other, client := s.beside(process, durable.WorkerConfig{MaxConcurrentRuns: 3})
		var executing, beside atomic.Int32
		handler := func(ctx context.Context, run *durable.Run[letter]) error {
			executing.Add(1)
			defer executing.Add(-1)
			if run.Args.To == "suspect" {
				beside.Add(executing.Load() - 1)
				defer func() { beside.Add(executing.Load() - 1) }()
			}
			return sleeper(ctx, 3*time.Second)
		}
		durable.Register(other, job, handler)
		for range 1000 {
			_, err := client.Enqueue(t.Context(), job.New(letter{To: "plain"}))
			require.NoError(t, err)
		}
		id := s.suspect(job)
		w := s.worker(durable.WorkerConfig{Process: process})
		durable.Register(w, job, handler)
		stopOther := s.begin(other)
		s.pass(time.Second)
		stop := s.begin(w)
		s.pass(20 * time.Second)
		require.Equal(t, durable.Succeeded, s.record(id).State, "it comes to its turn although the process is never idle by itself")
		require.Zero(t, beside.Load(), "something executed beside it")
		s.pass(10 * time.Second)
		require.EqualValues(t, 3, executing.Load(), "and the other worker goes on")
		require.NoError(t, stop())
		require.NoError(t, stopOther())
	})
}

// A handler that was given up may still crash its process: until it returns, no
// isolated run is taken, and nothing waits for that.
func TestIsolation_NotBesideAHandlerThatWasGivenUp(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job, process := durable.NewJob[letter]("mail"), new(durable.Process)
		id := s.suspect(job)
		other, client := s.beside(process, durable.WorkerConfig{CancelGrace: time.Second})
		release := make(chan struct{})
		durable.Register(other, job, func(context.Context, *durable.Run[letter]) error { <-release; return nil })
		_, err := client.Enqueue(t.Context(), job.New(letter{}, durable.Timeout(time.Second), durable.MaxAttempts(1)))
		require.NoError(t, err)
		stopOther := s.begin(other)
		s.pass(5 * time.Second)
		w := s.worker(durable.WorkerConfig{Process: process, MaxConcurrentRuns: 2})
		durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error { return sleeper(ctx, time.Second) })
		for range 200 {
			s.enqueue(job.New(letter{To: "plain"}))
		}
		stop := s.begin(w)
		s.pass(99 * time.Second)
		counts, err := s.store.Counts(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, counts[durable.Succeeded].N, int64(190), "the worker goes on with other work, without a pause")
		require.Error(t, stopOther(), "its handler was abandoned")
		s.pass(time.Minute)
		require.Equal(t, durable.Pending, s.record(id).State, "a worker that has ended leaves its handler to the process")
		require.Equal(t, 1, strings.Count(s.log.String(), "an abandoned handler has not returned"))
		close(release)
		s.pass(20 * time.Second)
		require.Equal(t, durable.Succeeded, s.record(id).State)
		require.NoError(t, stop())
	})
}

// A worker that makes room while its store is away stops no other.
func TestIsolation_AnOutageOfOneStoreHoldsUpNoOtherWorker(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job, process := durable.NewJob[letter]("mail"), new(durable.Process)
		other, client := s.beside(process, durable.WorkerConfig{MaxConcurrentRuns: 1})
		var done atomic.Int32
		durable.Register(other, job, func(ctx context.Context, _ *durable.Run[letter]) error {
			defer done.Add(1)
			return sleeper(ctx, 20*time.Second)
		})
		for range 100 {
			_, err := client.Enqueue(t.Context(), job.New(letter{}))
			require.NoError(t, err)
		}
		s.suspect(job)
		w := s.worker(durable.WorkerConfig{Process: process})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stopOther := s.begin(other)
		s.pass(time.Second)
		stop := s.begin(w)
		s.pass(12 * time.Second) // it makes room now
		s.store.down()
		s.pass(5 * time.Minute)
		require.GreaterOrEqual(t, done.Load(), int32(13))
		s.store.up()
		require.NoError(t, stop())
		require.NoError(t, stopOther())
	})
}

// The bound of docs/guarantees.md, G11. Four workers are never idle; an isolated
// run comes again and again.
func TestIsolation_ABusyFleetTakesASuspectWithinTheBound(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		const longest = 8 * time.Second
		job := durable.NewJob[letter]("mail")
		id := s.suspect(job)
		for range 6000 {
			s.enqueue(job.New(letter{To: "plain"}))
		}
		var most atomic.Int64
		var times atomic.Int32
		var stops []func() error
		for range 4 {
			w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 3})
			durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
				if run.Args.To != "suspect" {
					return sleeper(ctx, longest-time.Duration(rand.Int64N(int64(longest)/2))) //nolint:gosec // any
				}
				most.Store(max(most.Load(), int64(time.Since(run.DueAt))))
				if times.Add(1) == 50 {
					return nil
				}
				return durable.Snooze(time.Duration(20+rand.IntN(30)) * time.Second) //nolint:gosec // any
			})
			stops = append(stops, s.begin(w))
		}
		for range 50 {
			s.pass(time.Minute)
		}
		require.Equal(t, durable.Succeeded, s.record(id).State)
		counts, err := s.store.Counts(t.Context())
		require.NoError(t, err)
		require.Positive(t, counts[durable.Pending].N, "they were busy all the time")
		require.LessOrEqual(t, time.Duration(most.Load()), 10*time.Second+longest+500*time.Millisecond)
		for _, stop := range stops {
			require.NoError(t, stop())
		}
	})
}

// Handlers that outlast the first patience cost more, but it ends.
func TestIsolation_LongHandlersDelayASuspectTenTimesAtMost(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		const longest = 2 * time.Minute
		job := durable.NewJob[letter]("mail")
		id := s.suspect(job)
		for range 300 {
			s.enqueue(job.New(letter{To: "plain"}))
		}
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 3})
		var most atomic.Int64
		var times atomic.Int32
		durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
			if run.Args.To != "suspect" {
				return sleeper(ctx, longest-time.Duration(rand.Int64N(int64(longest)/2))) //nolint:gosec // any
			}
			most.Store(max(most.Load(), int64(time.Since(run.DueAt))))
			if times.Add(1) == 5 {
				return nil
			}
			return durable.Snooze(20 * time.Minute)
		})
		stop := s.begin(w)
		s.pass(150 * time.Minute)
		require.Equal(t, durable.Succeeded, s.record(id).State)
		require.Greater(t, time.Duration(most.Load()), 30*time.Second, "the first patience was not enough")
		require.LessOrEqual(t, time.Duration(most.Load()), 10*longest)
		require.NoError(t, stop())
	})
}

func TestIsolation_OtherWorkKeepsHalfOfTheTime(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		s.suspect(job)
		for range 3000 {
			s.enqueue(job.New(letter{To: "plain"}))
		}
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 4})
		var plain, suspects atomic.Int32
		durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
			if run.Args.To == "suspect" {
				suspects.Add(1)
				_ = sleeper(ctx, time.Second)
				return durable.Snooze(0)
			}
			plain.Add(1)
			return sleeper(ctx, time.Second)
		})
		stop := s.begin(w)
		s.pass(10 * time.Minute)
		require.GreaterOrEqual(t, plain.Load(), int32(1080), "of 2400 that have room in ten minutes, less what a second of draining costs each time")
		require.GreaterOrEqual(t, suspects.Load(), int32(200))
		require.NoError(t, stop())
	})
}

// heldLine is a store in which another transaction holds the isolated runs of a
// lane.
type heldLine struct {
	durable.Store
	lane store.LaneID
}

func (h heldLine) Claim(ctx context.Context, r store.ClaimRequest) ([]store.ClaimedRun, error) {
	if r.Alone && r.Steps[0].Lane == -h.lane {
		return nil, nil
	}
	return h.Store.Claim(ctx, r)
}

func TestIsolation_ALineThatIsHeldHidesNoOther(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job, letters := durable.NewJob[letter]("mail"), durable.NewJob[letter]("letters")
		stays, goes := s.suspect(job), s.suspect(letters)
		began := time.Now()
		w := durable.NewWorker(heldLine{s.store, s.lane("mail")}, durable.WorkerConfig{
			MaxConcurrentRuns: 2, Process: new(durable.Process), Elapsed: func() time.Duration { return time.Since(began) },
		})
		var plain atomic.Int32
		handler := func(ctx context.Context, _ *durable.Run[letter]) error {
			plain.Add(1)
			return sleeper(ctx, time.Second)
		}
		durable.Register(w, job, handler)
		durable.Register(w, letters, handler)
		for range 1000 {
			s.enqueue(job.New(letter{To: "plain"}))
		}
		stop := s.begin(w)
		s.pass(time.Second)
		require.NotEqual(t, durable.Pending, s.record(goes).State)
		s.pass(100 * time.Second)
		require.Equal(t, durable.Succeeded, s.record(goes).State)
		require.Equal(t, durable.Pending, s.record(stays).State)
		require.GreaterOrEqual(t, plain.Load(), int32(140), "what is held takes a quarter of the time at most")
		require.NoError(t, stop())
	})
}
