package durable_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// misfitLanes notes the lanes whose workers a store is to notify of misfits.
type misfitLanes struct {
	durable.Store
	mu    sync.Mutex
	lanes []store.LaneID
}

func (m *misfitLanes) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, settlement := range settlements {
		for i := range settlement.Runs {
			if settlement.Runs[i].Outcome.Kind == store.Misfit {
				m.lanes = append(m.lanes, settlement.Runs[i].Lane)
			}
		}
	}
	return m.Store.Settle(ctx, settlements)
}

func TestTheStoreNotifiesAllProcessesOfAMisfit(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		noted := &misfitLanes{Store: s.store.Store}
		s.store.Store = noted
		w := s.worker(durable.WorkerConfig{})
		job := durable.NewJob[letter]("mail")
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		s.enqueue(badLetter(job))
		s.pass(time.Second / 2)
		require.NoError(t, stop())
		require.Equal(t, []store.LaneID{0}, noted.lanes, "a lane would keep the notification in this process")
	})
}

func TestAMisfitSpendsNoStartOfARate(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		daily := durable.Limited(durable.NewLimit("daily", durable.TokenBucket(1, 24*time.Hour, 1)))
		job, fits := durable.NewJob[letter]("mail", daily), durable.NewJob[struct{ To int }]("mail", daily)
		old := s.worker(durable.WorkerConfig{})
		durable.Register(old, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(old)
		id := s.enqueue(badLetter(job))
		s.pass(time.Minute)
		require.NoError(t, stop())
		recent := s.worker(durable.WorkerConfig{})
		durable.Register(recent, fits, func(context.Context, *durable.Run[struct{ To int }]) error { return nil })
		stop = s.begin(recent)
		s.pass(time.Minute)
		require.Equal(t, durable.Succeeded, s.record(id).State)
		require.NoError(t, stop())
	})
}

func TestACrashBetweenMisfitsDoesNotExtendTheirTime(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.RetryArgsFor(2*time.Minute))
		begin := func() (stop func() error) {
			w := s.worker(durable.WorkerConfig{})
			durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
			return s.begin(w)
		}
		stop := begin()
		id := s.enqueue(badLetter(job))
		s.pass(time.Minute)
		require.NoError(t, stop())
		s.pass(time.Minute / 2)
		s.crash(s.lane("mail"), 1, false)
		require.Equal(t, 1, s.record(id).CrashCount)
		stop = begin()
		s.pass(time.Minute)
		require.Equal(t, durable.Dead, s.record(id).State)
		require.NoError(t, stop())
	})
}
