package durable_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// An outage of writes alone answers every read. Two workers live through one
// that is longer than their leases, with twenty runs whose handlers have
// succeeded; a third has been idle all the time, and never had a write to fail.
func TestAnOutageOfWritesCostsNoRunACrash(t *testing.T) {
	for poll, longest := range map[time.Duration]time.Duration{100 * time.Millisecond: 5 * time.Minute, 5 * time.Second: time.Hour} {
		for _, length := range []time.Duration{25 * time.Second, 31 * time.Second, 35 * time.Second, time.Minute, longest} {
			t.Run(fmt.Sprintf("of %v, poll %v", length, poll), func(t *testing.T) {
				play(t, func(t *testing.T, s *scene) { outageOfWrites(t, s, length, poll) })
			})
		}
	}
}

func outageOfWrites(t *testing.T, s *scene, length, poll time.Duration) {
	t.Helper()
	job := durable.NewJob[letter]("mail")
	var stops []func() error
	begin := func(config durable.WorkerConfig, other durable.Job[letter]) {
		w := s.worker(config)
		durable.Register(w, other, func(ctx context.Context, _ *durable.Run[letter]) error {
			return sleeper(context.WithoutCancel(ctx), 2*time.Second)
		})
		stops = append(stops, s.begin(w))
	}
	begin(durable.WorkerConfig{PollInterval: poll}, durable.NewJob[letter]("another"))
	for range 2 {
		begin(durable.WorkerConfig{PollInterval: poll, MaxConcurrentRuns: 10}, job)
	}
	s.pass(time.Minute)
	ids := make([]durable.RunID, 20)
	for i := range ids {
		if i%2 == 0 {
			ids[i] = s.enqueue(job.New(letter{}))
		} else {
			ids[i] = s.enqueue(job.New(letter{}, durable.OnCrash(durable.CrashDead)))
		}
	}
	s.pass(time.Second)
	s.store.freezeWrites()
	s.pass(length)
	s.store.thawWrites()
	s.pass(time.Minute)
	for i, id := range ids {
		record := s.record(id)
		require.Equal(t, durable.Succeeded, record.State, "run %d", i)
		require.Zero(t, record.CrashCount, "run %d", i)
	}
	for _, stop := range stops {
		require.NoError(t, stop())
	}
}

// holds claims a run directly, for a worker that does not renew it.
func (s *scene) holds(t *testing.T, id durable.RunID) (settle func() store.Verdict) {
	t.Helper()
	living := store.WorkerID{Name: "living", Instance: uuid.New()}
	heads, err := s.store.Store.Heads(t.Context(), store.Serves{Queues: []string{durable.DefaultQueue}, Jobs: []string{"mail"}})
	require.NoError(t, err)
	claim := lease.NewClaimID()
	runs, err := s.store.Store.Claim(t.Context(), store.ClaimRequest{Claim: claim, Worker: living, Duration: 30 * time.Second,
		Steps: []store.Step{{Lane: heads[0].Lane, Take: 1}}, Limit: 1})
	require.NoError(t, err)
	require.Len(t, runs, 1)
	return func() store.Verdict {
		verdicts, err := s.store.Store.Settle(t.Context(), []store.Settlement{{Claim: claim, Worker: living, Last: true,
			Runs: []store.Settled{{ID: id, Outcome: store.Outcome{Kind: store.Success}}}}})
		require.NoError(t, err)
		return verdicts[0]
	}
}

func TestAWorkerThatStartsInAnOutageHoldsBack(t *testing.T) {
	for _, started := range []string{"in it", "after it"} {
		t.Run(started, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				job := durable.NewJob[letter]("mail", durable.OnCrash(durable.CrashDead))
				id := s.enqueue(job.New(letter{}))
				settle := s.holds(t, id)
				s.store.down()
				w := s.worker(durable.WorkerConfig{PollInterval: 100 * time.Millisecond})
				durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
				var stop func() error
				if started == "in it" {
					stop = s.begin(w)
				}
				s.pass(time.Minute)
				s.store.up()
				if started != "in it" {
					stop = s.begin(w)
				}
				s.pass(9900 * time.Millisecond)
				require.Equal(t, store.Applied, settle())
				require.Equal(t, durable.Succeeded, s.record(id).State)
				require.NoError(t, stop())
			})
		})
	}
}

// What a worker has to know before it reclaims must not make a crash cost more
// time: an idle worker proves that writes work while the lease runs out.
func TestAnIdleWorkerTakesOverAsSoonAsABusyOne(t *testing.T) {
	for _, poll := range []time.Duration{100 * time.Millisecond, 5 * time.Second} {
		t.Run(poll.String(), func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				job := durable.NewJob[letter]("mail")
				w := s.worker(durable.WorkerConfig{PollInterval: poll})
				durable.Register(w, durable.NewJob[letter]("another"), func(context.Context, *durable.Run[letter]) error { return nil })
				stop := s.begin(w)
				s.pass(time.Hour)
				id := s.enqueue(job.New(letter{}))
				s.holds(t, id)
				s.pass(30 * time.Second)
				require.Equal(t, durable.Running, s.record(id).State)
				s.pass(poll + poll/5 + time.Second)
				require.Equal(t, durable.Pending, s.record(id).State)
				require.NoError(t, stop())
			})
		})
	}
}

func TestAWorkerIsNotReadyWhenTheStoreTakesNoWrites(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error { return sleeper(ctx, 10*time.Second) })
		stop := s.begin(w)
		s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		s.store.freezeWrites()
		s.pass(25 * time.Second)
		require.True(t, w.Status().Ready)
		s.pass(15 * time.Second)
		require.False(t, w.Status().Ready, "reads are answered all the time")
		s.store.thawWrites()
		s.pass(2 * time.Second)
		require.True(t, w.Status().Ready)
		require.NoError(t, stop())
	})
}

// What the store has no time for it is asked for in smaller parts.
func TestReclaimAsksForLessAfterAnError(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{PollInterval: time.Second})
		durable.Register(w, durable.NewJob[letter]("another"), func(context.Context, *durable.Run[letter]) error { return nil })
		s.store.reclaimMost = 100
		for range 300 {
			s.enqueue(job.New(letter{}))
		}
		s.holdsAll(t, 300)
		stop := s.begin(w)
		s.pass(2 * time.Minute)
		counts, err := s.store.Counts(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 300, counts[durable.Pending].N)
		require.NoError(t, stop())
	})
}

func TestWhatIsPassedOverIsListed(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.worker(durable.WorkerConfig{PollInterval: time.Second})
		durable.Register(w, durable.NewJob[letter]("mail"), func(context.Context, *durable.Run[letter]) error { return nil })
		s.store.passes = []store.SetAside{{Kind: "run", Name: "r1", Again: time.Minute, Err: errBoom}}
		stop := s.begin(w)
		s.pass(5 * time.Second)
		listed := w.Status().SetAside
		require.Len(t, listed, 1)
		require.Equal(t, "reclaim run r1: boom", fmt.Sprintf("%s %s %s: %s", listed[0].Doing, listed[0].Kind, listed[0].Name, listed[0].Error))
		require.Equal(t, 1, listed[0].Tries)
		require.Contains(t, s.log.String(), "name=r1")
		s.pass(3 * time.Minute)
		require.Empty(t, w.Status().SetAside, "it has not been seen again")
		require.NoError(t, stop())
	})
}

// A schedule of which a declaration in a row has failed is no one's orphan.
func TestADeclarationThatFailsIsRepeatedSoon(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		durable.AddSchedule(w, "s", job, letter{}, durable.Every(24*time.Hour))
		stop := s.begin(w)
		for range 5 {
			s.pass(time.Minute)
			declared := s.declaredAt(t)
			s.store.cutBefore("Declare", 2)
			s.pass(75 * time.Minute)
			require.Less(t, time.Since(s.declaredAt(t)), 75*time.Minute)
			require.NotEqual(t, declared, s.declaredAt(t))
		}
		require.NoError(t, stop())
	})
}

// A store that refuses a part of a declaration keeps no worker from starting.
func TestADeclarationThatIsRefusedInPartCounts(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		s.store.declares = &store.SetAsideError{SetAside: []store.SetAside{{Kind: "schedule", Name: "s", Again: time.Minute, Err: errBoom}}}
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(10 * time.Second)
		require.Equal(t, durable.Succeeded, s.record(id).State)
		require.Len(t, w.Status().SetAside, 1)
		require.NoError(t, stop())
	})
}

func (s *scene) declaredAt(t *testing.T) time.Time {
	t.Helper()
	list, err := s.store.ListSchedules(t.Context(), "s")
	require.NoError(t, err)
	return *list[0].DeclaredAt
}

// holdsAll claims runs together, for a worker that does not renew them.
func (s *scene) holdsAll(t *testing.T, n int) {
	t.Helper()
	heads, err := s.store.Store.Heads(t.Context(), store.Serves{Queues: []string{durable.DefaultQueue}, Jobs: []string{"mail"}})
	require.NoError(t, err)
	runs, err := s.store.Store.Claim(t.Context(), store.ClaimRequest{Claim: lease.NewClaimID(), Worker: store.WorkerID{Instance: uuid.New()},
		Duration: 30 * time.Second, Steps: []store.Step{{Lane: heads[0].Lane, Take: n}}, Limit: n})
	require.NoError(t, err)
	require.Len(t, runs, n)
}

// What is stored of an attempt is how long its handler took, not how long the store
// was away.
func TestAnOutageDoesNotLengthenAnAttempt(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.worker(durable.WorkerConfig{})
		job := durable.NewJob[letter]("mail", durable.MaxAttempts(1))
		durable.Register(w, job, func(_ context.Context, _ *durable.Run[letter]) error {
			s.store.cutBefore("Settle", -1)
			<-time.After(1200 * time.Millisecond)
			return errBoom
		})
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(20 * time.Second)
		s.store.up()
		s.pass(10 * time.Second)
		attempts := s.record(id).Attempts
		require.Len(t, attempts, 1)
		require.Equal(t, 1200*time.Millisecond, attempts[0].EndedAt.Sub(attempts[0].StartedAt))
		require.NoError(t, stop())
	})
}

// slowSettles is a store that answers settles late.
type slowSettles struct {
	durable.Store
	by time.Duration
}

func (s slowSettles) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error) {
	verdicts, err := s.Store.Settle(ctx, settlements)
	return verdicts, errors.Join(err, sleeper(ctx, s.by))
}

// The last outcome under a lease is stored, which ends the lease, and a heartbeat is
// answered before the worker knows.
func TestALeaseThatItsWorkerEndsIsNotLost(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.store.Store = slowSettles{Store: s.store.Store, by: time.Second}
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error { return sleeper(ctx, 9500*time.Millisecond) })
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, durable.Succeeded, s.record(id).State)
		require.NotContains(t, s.log.String(), "lease lost")
	})
}
