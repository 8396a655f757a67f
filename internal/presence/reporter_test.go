package presence_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/presence"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// listened is a store that notes when it is reported to, and may fail.
type listened struct {
	*memory.Store

	mu      sync.Mutex
	reports []store.WorkerReport
	at      []time.Duration
	began   time.Time
	fail    func(n int) error // before the n-th report, from 1
	lose    func(n int) error // its answer
	alive   int               // answered; zero: the truth
}

func (l *listened) ReportWorker(ctx context.Context, report store.WorkerReport) (store.Shared, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reports, l.at = append(l.reports, report), append(l.at, time.Since(l.began))
	n := len(l.reports)
	if l.fail != nil && l.fail(n) != nil {
		return store.Shared{}, l.fail(n)
	}
	shared, err := l.Store.ReportWorker(ctx, report)
	if l.alive > 0 {
		shared.Alive = l.alive
	}
	if l.lose != nil && l.lose(n) != nil {
		return store.Shared{}, l.lose(n)
	}
	return shared, err
}

func (l *listened) seen() []store.WorkerReport {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.reports)
}

func (l *listened) times() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.at)
}

// reporting runs a Reporter for a while inside a bubble.
func reporting(t *testing.T, l *listened, tally *observe.Tally, during func(*presence.Reporter)) (failed int) {
	t.Helper()
	l.Store, l.began = memory.New(memory.Config{}), time.Now()
	r := presence.New(l, presence.Config{
		Worker: store.WorkerID{Name: "w", Instance: uuid.New()}, Tally: tally, Timeout: time.Second,
		State:  func() store.Presence { return presence.Named([]string{"default"}, []string{"mail"}) },
		Random: func() float64 { return 0.5 }, Reachable: func() bool { return true },
		Failed: func(context.Context, error) { failed++ },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	synctest.Wait()
	during(r)
	cancel()
	running.Wait()
	return failed
}

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time of the bubble
	synctest.Wait()
}

// sums returns what has been reported to the store.
func sums(t *testing.T, l *listened) (sum store.Tally) {
	t.Helper()
	points, err := l.Series(t.Context(), store.SeriesQuery{Span: store.Quarter, Within: 24 * time.Hour})
	require.NoError(t, err)
	for i := range points {
		sum.Add(&points[i].Tally)
	}
	return sum
}

func succeed(tally *observe.Tally, n int) {
	for range n {
		tally.Hooks().RunSettled(observe.RunVerdict{Run: store.RunInfo{Job: "mail", Queue: "default"}, Outcome: store.Success, Verdict: store.Applied})
	}
}

func TestAWorkerReportsFromItsStartToItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, tally := &listened{}, observe.NewTally()
		failed := reporting(t, l, tally, func(r *presence.Reporter) {
			workers, err := l.Workers(t.Context())
			require.NoError(t, err)
			require.Len(t, workers, 1, "it reports when it begins")
			succeed(tally, 3)
			pass(50 * time.Second)
			require.Equal(t, []time.Duration{0, 20 * time.Second, 40 * time.Second}, l.times())
			require.Equal(t, int64(3), sums(t, l).Succeeded)
			succeed(tally, 4)
			r.Wake()
			synctest.Wait()
			require.Len(t, l.seen(), 4)
			succeed(tally, 5)
		})
		require.Zero(t, failed)
		require.True(t, l.seen()[4].Stopped)
		require.Equal(t, int64(12), sums(t, l).Succeeded, "the last report brings the rest")
		workers, err := l.Workers(t.Context())
		require.NoError(t, err)
		require.Empty(t, workers)
	})
}

func TestALargeFleetReportsLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &listened{alive: 5000}
		reporting(t, l, observe.NewTally(), func(*presence.Reporter) {
			pass(250 * time.Second)
			require.Equal(t, []time.Duration{0, 100 * time.Second, 200 * time.Second}, l.times())
			require.Equal(t, 100*time.Second, time.Duration(l.seen()[2].Presence.Every))
		})
	})
}

var errGone = errors.New("the connection is gone")

func TestAReportWhoseAnswerWasLostIsCountedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, tally := &listened{}, observe.NewTally()
		l.lose = func(n int) error {
			if n == 2 || n == 3 {
				return errGone
			}
			return nil
		}
		failed := reporting(t, l, tally, func(*presence.Reporter) {
			succeed(tally, 7)
			pass(21 * time.Second) // the second report is lost
			succeed(tally, 1)
			pass(10 * time.Second) // and is repeated twice
			require.Equal(t, []int64{1, 2, 2, 2}, numbers(l))
			pass(20 * time.Second)
		})
		require.Equal(t, 2, failed)
		require.Equal(t, int64(8), sums(t, l).Succeeded)
	})
}

func numbers(l *listened) (all []int64) {
	for _, r := range l.seen() {
		all = append(all, r.Number)
	}
	return all
}

// A store that refuses the figures, and nothing else, learns all the same who is alive.
func TestFiguresThatAreRefusedDoNotSilenceAWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, tally := &listened{}, observe.NewTally()
		l.fail = func(n int) error {
			if len(l.reports[n-1].Did) > 0 {
				return errGone
			}
			return nil
		}
		reporting(t, l, tally, func(*presence.Reporter) {
			succeed(tally, 1)
			pass(2 * time.Minute)
			workers, err := l.Workers(t.Context())
			require.NoError(t, err)
			require.Equal(t, store.Working, workers[0].State)
		})
	})
}

func TestNamesAndVersionsFitAReport(t *testing.T) {
	t.Parallel()
	p := presence.Named([]string{"b", "a", "b"}, []string{"mail"})
	require.Equal(t, []string{"a", "b"}, p.Queues)
	require.False(t, p.More)
	many := make([]string, store.MaxReportNames+1)
	for i := range many {
		many[i] = uuid.NewString()
	}
	p = presence.Named([]string{"a"}, many)
	require.Len(t, p.Jobs, store.MaxReportNames)
	require.True(t, p.More)
	require.Equal(t, "v1 beta", presence.Version("v1\n beta\xff\x00"))
	require.Len(t, presence.Version(strings.Repeat("ü", 500)), store.MaxVersion)
	report := store.WorkerReport{Worker: store.WorkerID{Instance: uuid.New()}, Number: 1, Presence: p}
	report.Presence.Every, report.Presence.Version = store.Duration(time.Second), presence.Version("")
	require.NoError(t, report.Check())
}
