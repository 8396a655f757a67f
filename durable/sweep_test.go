package durable_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func TestSweep_EndedRunsGoWhenTheirTimeIsOver(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		mail, brief := durable.NewJob[letter]("mail"), durable.NewJob[letter]("brief", durable.Retention(time.Minute))
		kept := durable.NewJob[letter]("kept", durable.Retention(durable.KeepForever))
		w := s.worker(durable.WorkerConfig{Retention: 2 * time.Hour, RetentionDead: 5 * time.Hour, PollInterval: time.Minute})
		for _, job := range []durable.Job[letter]{mail, brief, kept} {
			durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
				if run.Args.To == "nobody" {
					return durable.Permanent(errBoom)
				}
				return nil
			})
		}
		stop := s.begin(w)
		short, long, dead, ever := s.enqueue(brief.New(letter{})), s.enqueue(mail.New(letter{})), s.enqueue(mail.New(letter{To: "nobody"})), s.enqueue(kept.New(letter{}))
		left := func(ids ...durable.RunID) (n int) {
			for _, id := range ids {
				if _, err := s.store.Run(t.Context(), id); err == nil {
					n++
				}
			}
			return n
		}
		s.pass(50 * time.Second)
		require.Equal(t, 4, left(short, long, dead, ever))
		s.pass(100 * time.Second)
		require.Equal(t, 3, left(long, dead, ever))
		s.pass(115 * time.Minute)
		require.Equal(t, 3, left(long, dead, ever))
		s.pass(5 * time.Minute)
		require.Equal(t, 2, left(dead, ever))
		s.pass(4 * time.Hour)
		require.Equal(t, 1, left(ever))
		s.pass(2 * time.Hour)
		require.Equal(t, 1, left(ever))
		require.NoError(t, stop())
		require.Contains(t, s.log.String(), "ended runs deleted, kept long enough")
	})
}

// endlessStore always has more to delete, and takes its time.
type endlessStore struct {
	*faultyStore
	took    atomic.Int64 // a time.Duration, as the next one
	working atomic.Int64
	calls   atomic.Int64
	deleted int
}

func (s *endlessStore) Sweep(ctx context.Context, _ store.SweepRequest) (store.SweepResult, error) {
	s.calls.Add(1)
	took := time.Duration(s.took.Load())
	select {
	case <-ctx.Done():
		return store.SweepResult{}, ctx.Err()
	case <-time.After(took):
		s.working.Add(int64(took))
		return store.SweepResult{Deleted: s.deleted}, nil
	}
}

func TestSweep_WorksNoMoreThanHalfOfTheTime(t *testing.T) {
	for name, deleted := range map[string]int{"while there is much to delete": 1000, "while there is only much to look at": 0} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				store := &endlessStore{faultyStore: s.store, deleted: deleted}
				store.took.Store(int64(20 * time.Millisecond))
				worked := func() float64 { return time.Duration(store.working.Load()).Seconds() }
				began := time.Now()
				config := durable.WorkerConfig{SweepInterval: 10 * time.Second, Elapsed: func() time.Duration { return time.Since(began) }}
				w := durable.NewWorker(store, config)
				durable.Register(w, durable.NewJob[letter]("mail"), func(context.Context, *durable.Run[letter]) error { return nil })
				stop := s.begin(w)
				s.pass(50 * time.Second)
				if deleted > 0 {
					require.InDelta(t, 2, worked(), 0.3, "a twentieth of the time")
				} else {
					require.Less(t, worked(), 5.0)
					require.Greater(t, store.calls.Load(), int64(50))
				}
				s.pass(20 * time.Second)
				calm := worked()
				s.pass(100 * time.Second)
				if deleted > 0 {
					require.InDelta(t, 50, worked()-calm, 2, "half of the time, now that it has fallen behind")
				} else {
					require.Less(t, worked()-calm, 10.0, "what is only looked at is no hurry")
				}
				store.took.Store(int64(time.Hour))
				s.pass(time.Second)
				stopped := time.Now()
				require.NoError(t, stop())
				require.Less(t, time.Since(stopped), time.Second, "a drain does not wait for a step")
			})
		})
	}
}

func TestSweep_OutageIsSurvived(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{Retention: time.Hour})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(59 * time.Minute)
		s.store.cutAfter("Sweep", 2)
		s.store.cutBefore("Sweep", 2)
		s.pass(10 * time.Minute)
		_, err := s.store.Run(t.Context(), id)
		require.ErrorIs(t, err, durable.ErrNotFound)
		require.Contains(t, s.log.String(), "sweep failed, will be retried")
		require.NoError(t, stop())
	})
}

func TestSweep_StrandedRunIsExecuted(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		lost, other := s.enqueue(job.New(letter{})), s.enqueue(job.New(letter{}))
		gone := store.WorkerID{Name: "gone", Instance: uuid.New()}
		claim := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: gone, Duration: time.Hour, Limit: 2, Steps: []store.Step{{Lane: 1, Take: 2}}}
		claimed, err := s.store.Claim(t.Context(), claim)
		require.NoError(t, err)
		require.Len(t, claimed, 2)
		_, err = s.store.Settle(t.Context(), []store.Settlement{{Claim: claim.Claim, Worker: gone, Last: true,
			Runs: []store.Settled{{ID: other, Outcome: store.Outcome{Kind: store.Success}}}}})
		require.NoError(t, err)
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		s.pass(2 * time.Minute)
		require.Equal(t, durable.Succeeded, s.record(lost).State)
		require.Contains(t, s.log.String(), "requeued a running run whose lease row is missing")
		require.NoError(t, stop())
	})
}

func TestSweep_ConfigurationIsChecked(t *testing.T) {
	t.Parallel()
	w := durable.NewWorker(newFaultyStore(), durable.WorkerConfig{Retention: time.Millisecond, RetentionDead: time.Nanosecond, SweepInterval: time.Millisecond})
	err := w.Faults()
	require.ErrorContains(t, err, "retention 1ms: want at least 1s")
	require.ErrorContains(t, err, "retention of dead runs 1ns")
	require.ErrorContains(t, err, "sweep interval 1ms: want at least 1s")
	require.NotContains(t, durable.NewWorker(newFaultyStore(), durable.WorkerConfig{Retention: -1, RetentionDead: durable.KeepForever}).Faults().Error(), "retention")

	_, err = durable.NewJob[letter]("mail", durable.Retention(time.Millisecond)).Enqueue(t.Context(), newFaultyStore(), letter{})
	require.ErrorIs(t, err, durable.ErrInvalid)
	require.ErrorContains(t, err, "retention 1ms")
	_, err = durable.NewJob[letter]("mail").Enqueue(t.Context(), newFaultyStore(), letter{}, durable.Retention(time.Hour))
	require.ErrorContains(t, err, "Retention is for a job")
	require.EqualValues(t, durable.KeepForever, durable.NewJob[letter]("mail", durable.Retention(-time.Hour)).Info().Retention)
}
