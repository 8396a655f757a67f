package poller_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/poller"
)

// source holds items and remembers when and for how many it was asked.
type source struct {
	mu    sync.Mutex
	items int
	fail  error
	asked []int
	at    []time.Time
}

func (s *source) ask(_ context.Context, n int) (poller.Answer[int], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.at = append(s.asked, n), append(s.at, time.Now())
	if s.fail != nil {
		return poller.Answer[int]{}, s.fail
	}
	got := min(n, s.items)
	s.items -= got
	return poller.Answer[int]{Items: make([]int, got), Left: got == n, Next: -1}, nil
}

func (s *source) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// poll runs a poller over a source; each item takes a second.
func poll(t *testing.T, config poller.Config, script func(t *testing.T, p *poller.Poller[int], s *source)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		config.Elapsed = func() time.Duration { return time.Since(began) }
		if config.Random == nil {
			config.Random = func() float64 { return 0.5 }
		}
		s := &source{}
		var work sync.WaitGroup
		var p *poller.Poller[int]
		p = poller.New(config, s.ask, func(int) {
			work.Go(func() { pass(time.Second); p.Free(1) })
		})
		ctx, cancel := context.WithCancel(t.Context())
		work.Go(func() { p.Run(ctx) })
		synctest.Wait()
		script(t, p, s)
		cancel()
		work.Wait()
	})
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time of the bubble
}

// watch lets virtual time go on until all else is at rest.
func watch(d time.Duration) {
	pass(d)
	synctest.Wait()
}

var ten = poller.Config{Capacity: 10, Batch: 10, Interval: 5 * time.Second, Linger: 5 * time.Millisecond}

func TestPoller_NeverSleepsWhileWorkRemains(t *testing.T) {
	poll(t, ten, func(t *testing.T, p *poller.Poller[int], s *source) {
		s.change(func() { s.items = 100 })
		began := time.Now()
		p.Wake()
		for left := 1; left > 0; s.change(func() { left = s.items }) {
			watch(10 * time.Millisecond)
		}
		require.Less(t, time.Since(began), 9500*time.Millisecond, "100 items of a second, ten at a time, the last ten under way")
		for _, n := range s.asked {
			require.LessOrEqual(t, n, 10)
		}
	})
}

func TestPoller_SleepStaysWithinTheJitter(t *testing.T) {
	config := ten
	config.Jitter = 0.2
	values := []float64{0, 0.999, 0.3, 0.7, 0.1}
	i := 0
	config.Random = func() float64 { i++; return values[i%len(values)] }
	poll(t, config, func(t *testing.T, _ *poller.Poller[int], s *source) {
		watch(10 * time.Minute)
		spread := map[time.Duration]bool{}
		s.change(func() {
			for i := 1; i < len(s.at); i++ {
				gap := s.at[i].Sub(s.at[i-1])
				require.GreaterOrEqual(t, gap, 4*time.Second)
				require.LessOrEqual(t, gap, 6*time.Second)
				spread[gap] = true
			}
		})
		require.Greater(t, len(spread), 2)
	})
}

func TestPoller_WakeEndsTheSleep(t *testing.T) {
	poll(t, ten, func(t *testing.T, p *poller.Poller[int], s *source) {
		watch(time.Second)
		before := len(s.asked)
		p.Wake()
		synctest.Wait()
		require.Len(t, s.asked, before+1)
	})
}

func TestPoller_FailuresBackOffAndHeal(t *testing.T) {
	poll(t, ten, func(t *testing.T, _ *poller.Poller[int], s *source) {
		s.change(func() { s.fail, s.asked = errors.New("down"), nil })
		watch(time.Minute)
		require.InDelta(t, 17, len(s.asked), 5, "quick at first, then once an interval")
		s.change(func() { s.fail, s.items, s.asked = nil, 5, nil })
		watch(6 * time.Second)
		s.change(func() { require.Zero(t, s.items) })
	})
}
