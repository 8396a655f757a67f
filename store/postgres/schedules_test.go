package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// TestSchedules_EightWorkersComeAndGo: eight workers with connections of their
// own, some stopped and started at random, on schedules of one second. Runs and
// recorded skips together are the calendar, and nothing is there twice.
func TestSchedules_EightWorkersComeAndGo(t *testing.T) {
	t.Parallel()
	const schedules, workers, length, least = 40, 8, 5 * time.Second, 3
	first := openStore(t, "")
	name := func(i int) string { return fmt.Sprintf("schedule-%d", i) }
	job := durable.NewJob[struct{}]("tick")
	worker := func(db store.Store) *durable.Worker {
		w := durable.NewWorker(db, durable.WorkerConfig{DrainTimeout: -1, PollInterval: 500 * time.Millisecond})
		durable.Register(w, job, func(context.Context, *durable.Run[struct{}]) error {
			<-time.After(5 * time.Millisecond)
			return nil
		})
		for i := range schedules {
			overlap := []store.OverlapPolicy{store.OverlapSkip, store.OverlapWait, store.OverlapAllow}[i%3]
			durable.AddSchedule(w, name(i), job, struct{}{}, store.Every(time.Second), durable.Overlap(overlap))
		}
		return w
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for i := range workers {
		store := openURL(t, first.url, first.schema)
		all.Go(func() {
			for ctx.Err() == nil {
				life := length
				if i > 0 {
					life = time.Duration(200+rand.IntN(1500)) * time.Millisecond
				}
				short, stop := context.WithTimeout(ctx, life)
				if err := worker(store).Run(short); err != nil {
					t.Error(err)
				}
				stop()
			}
		})
	}
	<-time.After(length)
	require.Eventually(t, func() bool { // a slow machine takes some seconds to begin
		for i := range schedules {
			if past, err := first.ScheduleHistory(t.Context(), name(i), 1000); err != nil || len(instants(past)) < least {
				return false
			}
		}
		return true
	}, 2*time.Minute, 500*time.Millisecond)
	cancel()
	all.Wait()
	for i := range schedules {
		past, err := first.ScheduleHistory(t.Context(), name(i), 1000)
		require.NoError(t, err)
		requireCalendar(t, name(i), past, least)
	}
}

// instants counts what became of each second.
func instants(past []store.HistoryEntry) map[int64]int {
	seen := map[int64]int{}
	for _, line := range past {
		switch line.Kind {
		case store.HistoryRun:
			if at, err := time.Parse(time.RFC3339, *line.Occurrence); err == nil {
				seen[at.Unix()]++
			}
		case store.HistorySkip:
			for at := line.First.Unix(); at <= line.At.Unix(); at++ {
				seen[at]++
			}
		}
	}
	return seen
}

// requireCalendar wants every second from the first to the last, once.
func requireCalendar(t *testing.T, name string, past []store.HistoryEntry, least int) {
	t.Helper()
	seen := instants(past)
	var first, last int64
	for at, n := range seen {
		require.Equal(t, 1, n, "%s at %d", name, at)
		if first == 0 || at < first {
			first = at
		}
		last = max(last, at)
	}
	require.Len(t, seen, int(last-first)+1, "an occurrence of %s is missing", name)
	require.GreaterOrEqual(t, len(seen), least)
}

// While more schedules are due than one transaction takes, two evaluate concurrently,
// each what the other has not; a third learns that they are at it, and so is a
// second when there are no more than one takes.
func TestMaterialize_TwoConcurrentlyInACrowd(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	other := openURL(t, db.url, db.schema)
	declareSome(t, db, 5)
	seen := map[string]int{}
	decide := func(now time.Time, s store.Schedule) store.Decision {
		seen[s.Name]++
		return store.Decision{NextAt: now.Add(time.Hour)}
	}
	materialize := func(s opened, limit int, decide func(time.Time, store.Schedule) store.Decision) store.MaterializeResult {
		made, err := s.Materialize(t.Context(), limit, decide)
		require.NoError(t, err)
		return made
	}
	require.Equal(t, 1, materialize(db, 1, decide).Due)
	made := materialize(db, 1, func(now time.Time, s store.Schedule) store.Decision {
		require.True(t, materialize(other, 1, decide).Busy, "a process that knows of no crowd")
		second := materialize(db, 1, func(now time.Time, s store.Schedule) store.Decision {
			require.True(t, materialize(db, 1, decide).Busy, "a third")
			return decide(now, s)
		})
		require.Equal(t, 1, second.Due)
		return decide(now, s)
	})
	require.Equal(t, 1, made.Due)
	require.Equal(t, 2, materialize(other, 10, decide).Due)
	require.Len(t, seen, 5)
	for name, times := range seen {
		require.Equal(t, 1, times, name)
	}
}

func declareSome(t *testing.T, db opened, n int) {
	t.Helper()
	declaration := store.Declaration{Worker: worker("w")}
	for i := range n {
		declaration.Schedules = append(declaration.Schedules, store.Schedule{
			Name: fmt.Sprintf("schedule-%d", i), Rule: store.Every(time.Minute), Hash: "1",
			Job: "mail", Queue: store.DefaultQueue, Args: []byte("{}"), MaxAttempts: 1,
		})
	}
	require.NoError(t, db.Declare(t.Context(), declaration))
}

// A crowd that never ends goes on in the index from where the last transaction
// was, and still comes back for what it had to pass over.
func TestMaterialize_NothingIsLeftBehindInACrowd(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	declareSome(t, db, 4)
	tx := hold(t, db, "schedules", "name = 'schedule-0'")
	seen := map[string]int{}
	examined := func(times int) {
		for range times {
			made, err := db.Materialize(t.Context(), 1, func(now time.Time, s store.Schedule) store.Decision {
				seen[s.Name]++
				return store.Decision{NextAt: now} // due again
			})
			require.NoError(t, err)
			require.Equal(t, 1, made.Due)
		}
	}
	examined(6)
	require.Zero(t, seen["schedule-0"])
	require.Equal(t, map[string]int{"schedule-1": 2, "schedule-2": 2, "schedule-3": 2}, seen, "in turn")
	require.NoError(t, tx.Rollback(t.Context()))
	examined(8)
	require.NotZero(t, seen["schedule-0"])
}
