package durable_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

func (s *scene) count(state durable.State) int {
	s.t.Helper()
	counts, err := s.store.Counts(s.t.Context())
	require.NoError(s.t, err)
	return int(counts[state].N)
}

func (s *scene) enqueueMany(n int, run func() durable.NewRun) (ids []durable.RunID) {
	s.t.Helper()
	runs := make([]durable.NewRun, n)
	for i := range runs {
		runs[i] = run()
		ids = append(ids, runs[i].ID)
	}
	_, err := s.client.Enqueue(s.t.Context(), runs...)
	require.NoError(s.t, err)
	return ids
}

func TestSettle_OneOutcomeThatTheStoreNeverTakesStopsNoOther(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 5})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		bad := job.New(letter{})
		s.store.refuse(bad.ID)
		stop := s.begin(w)
		s.enqueue(bad)
		s.pass(time.Second)
		s.enqueueMany(20, func() durable.NewRun { return job.New(letter{}) })
		s.pass(5 * time.Second)
		require.Equal(t, 20, s.count(durable.Succeeded))
		status := w.Status()
		require.True(t, status.Ready)
		require.Equal(t, durable.Unsettled{Count: 1, Runs: []durable.RunID{bad.ID}, Reason: errPage.Error()}, status.Unsettled)
		s.pass(time.Hour)
		require.Equal(t, durable.Running, s.record(bad.ID).State)
		require.Zero(t, s.record(bad.ID).CrashCount, "its lease is kept")
		require.Equal(t, 1, strings.Count(s.log.String(), "level=ERROR"), "it is told once")
		require.Contains(t, s.log.String(), `msg="the store does not accept the outcome of a run: it is set aside and retried at intervals" run=`+bad.ID.String())
		s.store.refuse()
		s.pass(90 * time.Second)
		require.Equal(t, durable.Succeeded, s.record(bad.ID).State)
		require.Zero(t, w.Status().Unsettled)
		require.NoError(t, stop())
	})
}

func TestSettle_BadOutcomeAloneIsSetAsideWhenAHeartbeatSucceeds(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		bad := job.New(letter{})
		s.store.refuse(bad.ID)
		stop := s.begin(w)
		s.enqueue(bad)
		s.pass(15 * time.Second)
		require.Equal(t, 1, w.Status().Unsettled.Count)
		began := time.Now()
		err := stop()
		var unsettled *durable.UnsettledError
		require.ErrorAs(t, err, &unsettled)
		require.Equal(t, []durable.RunID{bad.ID}, unsettled.Runs)
		require.ErrorContains(t, err, errPage.Error())
		require.Less(t, time.Since(began), time.Second)
		require.Equal(t, durable.Running, s.record(bad.ID).State)
	})
}

func TestSettle_DrainTriesWhatWasSetAsideOnceMore(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		bad := s.enqueueMany(3, func() durable.NewRun { return job.New(letter{}) })
		s.store.refuse(bad...)
		stop := s.begin(w)
		s.pass(10 * time.Minute)
		require.Equal(t, 3, w.Status().Unsettled.Count)
		s.store.refuse(bad[1])
		var unsettled *durable.UnsettledError
		require.ErrorAs(t, stop(), &unsettled)
		require.Equal(t, []durable.RunID{bad[1]}, unsettled.Runs)
		require.Equal(t, 2, s.count(durable.Succeeded))
	})
}

func TestSettle_PlacesOfALimitAreGivenBackImmediately(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		one := durable.NewLimit("one", durable.Mutex())
		job, long := durable.NewJob[letter]("mail", durable.Limited(one)), durable.NewJob[letter]("long")
		w := s.worker(durable.WorkerConfig{})
		var starts []time.Time
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error {
			starts = append(starts, time.Now())
			return nil
		})
		durable.Register(w, long, func(ctx context.Context, _ *durable.Run[letter]) error { return sleeper(ctx, 2*time.Second) })
		stop := s.begin(w)
		s.enqueue(long.New(letter{}))
		s.pass(time.Second)
		s.enqueueMany(5, func() durable.NewRun { return job.New(letter{}) })
		s.pass(2 * time.Second)
		require.Len(t, starts, 5)
		require.Less(t, starts[4].Sub(starts[0]), 4*time.Millisecond, "what another handler may end soon is not waited for")
		require.NoError(t, stop())
	})
}

func TestSettle_OutageBlamesNoOutcome(t *testing.T) {
	for name, methods := range map[string][]string{
		"of everything":             {"Heads", "Claim", "HandBack", "Settle", "Reclaim", "Renew", "Declare", "Touch", "Materialize", "Sweep"},
		"of writes, reads go on":    {"Claim", "HandBack", "Settle", "Reclaim", "Renew", "Declare", "Touch", "Materialize", "Sweep"},
		"of settles and heartbeats": {"Settle", "Renew"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				job := durable.NewJob[letter]("mail")
				w := s.worker(durable.WorkerConfig{})
				durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error { return sleeper(ctx, 2*time.Second) })
				stop := s.begin(w)
				s.enqueueMany(100, func() durable.NewRun { return job.New(letter{}) })
				s.pass(time.Second)
				for _, method := range methods {
					s.store.cutBefore(method, -1)
				}
				s.pass(20 * time.Second) // the leases last
				require.Zero(t, w.Status().Unsettled.Count)
				s.store.up()
				s.pass(2 * time.Second)
				require.Equal(t, 100, s.count(durable.Succeeded), "settled soon after")
				require.NotContains(t, s.log.String(), "set aside")
				require.NoError(t, stop())
			})
		})
	}
}

func TestSettle_TooManySetAsideStopClaimsUntilTheyAreSettled(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		large, small := durable.NewJob[letter]("large"), durable.NewJob[letter]("small")
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 20})
		var executed atomic.Int64
		text := strings.Repeat("x", 255<<10)
		durable.Register(w, large, func(_ context.Context, run *durable.Run[letter]) error { executed.Add(1); return run.SetResult(text) })
		durable.Register(w, small, func(context.Context, *durable.Run[letter]) error { return nil })
		s.store.refuse(s.enqueueMany(500, func() durable.NewRun { return large.New(letter{}) })...)
		s.enqueueMany(100, func() durable.NewRun { return small.New(letter{}) })
		stop := s.begin(w)
		s.pass(10 * time.Minute)
		require.Less(t, executed.Load(), int64((64+32)<<20/(255<<10)+2*20), "64 MiB that waited, 32 MiB set aside, and what was in hand")
		status := w.Status()
		require.True(t, status.Unsettled.Full)
		require.False(t, status.Ready)
		require.Len(t, status.Unsettled.Runs, 10)
		require.Contains(t, s.log.String(), "the worker claims no more runs")
		s.store.refuse()
		s.pass(2 * time.Minute)
		require.Equal(t, 600, s.count(durable.Succeeded))
		require.True(t, w.Status().Ready)
		require.Contains(t, s.log.String(), "the worker claims runs again")
		require.NoError(t, stop())
	})
}

func TestSettle_HandlersThatWaitForRoomAreTold(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 2})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		s.store.cutBefore("Settle", -1)
		stop := s.begin(w)
		s.enqueueMany(4000, func() durable.NewRun { return job.New(letter{}) })
		s.pass(time.Minute)
		require.False(t, w.Status().Ready)
		require.True(t, w.Status().Unsettled.Full)
		require.Contains(t, s.log.String(), "the slots of their handlers stay taken")
		s.store.up()
		s.pass(5 * time.Minute)
		require.Equal(t, 4000, s.count(durable.Succeeded))
		require.True(t, w.Status().Ready)
		require.NoError(t, stop())
	})
}

func TestSettle_LockedRunIsSettledUnderSteadyTraffic(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		held := job.New(letter{})
		s.store.lock(held.ID)
		s.enqueue(held)
		s.pass(time.Second)
		require.Equal(t, 1, w.Status().Unsettled.Locked)
		s.store.lock()
		for range 20 {
			s.enqueue(job.New(letter{}))
			s.pass(100 * time.Millisecond) // less than the pause of a deferred settle
		}
		require.Equal(t, durable.Succeeded, s.record(held.ID).State)
		require.NoError(t, stop())
	})
}

func TestSettle_IsolatedRunWhoseOutcomeIsSetAsideKeepsNoOtherWaiting(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		isolated, next := s.isolated(job), s.isolated(job)
		s.store.refuse(isolated)
		w := s.worker(durable.WorkerConfig{Queues: []durable.Queue{{Name: "default"}, {Name: "limbo"}}})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		other := s.enqueue(job.New(letter{}))
		s.pass(30 * time.Second)
		require.Equal(t, durable.Succeeded, s.record(other).State)
		require.Equal(t, durable.Succeeded, s.record(next).State, "the worker has nothing in hand but an outcome")
		require.Equal(t, durable.Running, s.record(isolated).State)
		s.store.refuse()
		s.pass(2 * time.Minute)
		require.Equal(t, durable.Succeeded, s.record(isolated).State)
		require.NoError(t, stop())
	})
}

// isolated makes a run that was in two crashes.
func (s *scene) isolated(job durable.Job[letter]) durable.RunID {
	s.t.Helper()
	id := s.enqueue(job.New(letter{}, durable.OnQueue("limbo")))
	for range 2 {
		heads, err := s.store.Heads(s.t.Context(), store.Serves{Queues: []string{"limbo"}, Jobs: []string{job.Name()}})
		require.NoError(s.t, err)
		for _, head := range heads {
			_, err = s.store.Claim(s.t.Context(), store.ClaimRequest{Claim: lease.NewClaimID(), Worker: store.WorkerID{Instance: uuid.New()},
				Duration: time.Second, Steps: []store.Step{{Lane: head.Lane, Take: 1}}, Limit: 1})
			require.NoError(s.t, err)
		}
		s.pass(1100 * time.Millisecond)
		_, err = s.store.Store.Reclaim(s.t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
		require.NoError(s.t, err)
	}
	return id
}

func TestSettle_OutcomeOfALostLeaseIsGivenUpInTheEnd(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.OnCrash(durable.CrashDead))
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		bad := job.New(letter{})
		s.store.refuse(bad.ID)
		stop := s.begin(w)
		s.enqueue(bad)
		s.pass(15 * time.Second)
		require.Equal(t, 1, w.Status().Unsettled.Count)
		s.store.cutBefore("Renew", -1)
		s.pass(time.Minute)
		s.store.up()
		s.pass(10 * time.Minute)
		require.Equal(t, durable.Dead, s.record(bad.ID).State)
		require.Zero(t, w.Status().Unsettled)
		require.Contains(t, s.log.String(), "the outcome of a run is given up")
		require.NoError(t, stop())
	})
}

// exiting are hooks that end the goroutine that calls them.
func exiting() observe.Hooks {
	return observe.Hooks{
		StoreCalled: func(observe.StoreCall) { runtime.Goexit() },
		RunSettled:  func(observe.RunVerdict) { runtime.Goexit() },
		RunLost:     func(observe.RunLoss) { runtime.Goexit() },
	}
}

func TestHooks_ThatExitEndNoLoop(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.Timeout(time.Second), durable.MaxAttempts(1))
		w := s.worker(durable.WorkerConfig{Hooks: exiting()})
		release := make(chan struct{})
		durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
			if run.Args.To == "hang" {
				<-release
			}
			return nil
		})
		stop := s.begin(w)
		hung := s.enqueue(job.New(letter{To: "hang"}))
		s.enqueueMany(10, func() durable.NewRun { return job.New(letter{}) })
		s.pass(time.Minute)
		s.enqueueMany(10, func() durable.NewRun { return job.New(letter{}) })
		s.pass(time.Minute)
		require.Equal(t, 20, s.count(durable.Succeeded))
		require.Equal(t, durable.Dead, s.record(hung).State)
		require.Contains(t, s.log.String(), "a hook has ended its goroutine")
		close(release)
		s.pass(time.Second)
		require.NoError(t, stop())
	})
}
