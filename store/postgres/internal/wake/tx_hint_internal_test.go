package wake

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

// trailer returns a store that sends nothing, and a function that trails a run of a lane.
func trailer() (s *Waker, trail func(store.LaneID)) {
	s = New(nil, someWorkers(0), false)
	return s, func(lane store.LaneID) { s.trail([]store.Due{{Lane: lane, Runs: 1}}) }
}

func TestTrailingHintsEndWithTheStore(t *testing.T) {
	t.Parallel()
	s, _ := trailer()
	dues, overrun := s.trailing.end()
	require.Empty(t, dues, "none is armed")
	require.False(t, overrun)
	s, trail := trailer()
	trail(1)
	trail(2)
	dues, _ = s.trailing.end()
	require.ElementsMatch(t, []store.Due{{Lane: 1, Runs: 1}, {Lane: 2, Runs: 1}}, dues)
	for i := range s.trailing.rungs {
		require.False(t, s.trailing.rungs[i].timer.Stop(), "a timer goes on")
	}
	s, trail = trailer()
	s.trailing.end()
	trail(1)
	require.Nil(t, s.trailing.rungs[0].timer, "armed after the end")
}

// TestTrailingHintsComeInTime trails a run every 7 ms, each of its own lane, and looks
// when each is announced.
func TestTrailingHintsComeInTime(t *testing.T) {
	t.Parallel()
	for _, lanes := range []int{1, 300} {
		synctest.Test(t, func(t *testing.T) {
			s, trail := trailer()
			const tick = time.Millisecond
			trailed, announced := map[store.LaneID]time.Duration{}, map[store.LaneID][]time.Duration{}
			for now := time.Duration(0); now < 5*time.Second; now += tick {
				if now%(7*tick) == 0 && len(trailed) < lanes {
					lane := store.LaneID(len(trailed) + 1)
					trailed[lane] = now
					trail(lane)
				}
				pass(tick)
				dues, _ := s.hints.due.take(nil)
				for _, due := range dues {
					require.Zero(t, due.Draw)
					announced[due.Lane] = append(announced[due.Lane], now+tick-trailed[due.Lane])
				}
			}
			require.Len(t, announced, lanes)
			for lane, after := range announced {
				for _, delay := range trailing {
					inTime := 0
					for _, a := range after {
						if a >= delay && a <= 2*delay {
							inTime++
						}
					}
					require.Positive(t, inTime, "lane %d: %v later: %v", lane, delay, after)
				}
				require.LessOrEqual(t, len(after), 2*len(trailing))
			}
			require.Equal(t, trailing[:], announced[1][:len(trailing)], "the first of all")
		})
	}
}

// TestTrailingHintsDoNotAddUp trails a thousand runs of one lane within a second, and once
// one of another.
func TestTrailingHintsDoNotAddUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, trail := trailer()
		const runs = 1000
		trail(2)
		for range runs {
			trail(1)
			pass(time.Millisecond)
		}
		pass(2 * time.Second)
		dues, overrun := s.hints.due.take(nil)
		require.False(t, overrun)
		require.Len(t, dues, 2)
		for _, due := range dues {
			want := map[store.LaneID]int{1: runs, 2: 1}[due.Lane]
			t.Logf("lane %d: %d runs announced of %d", due.Lane, due.Runs, want)
			require.GreaterOrEqual(t, due.Runs, want*len(trailing))
			require.LessOrEqual(t, due.Runs, want*len(trailing)*2)
		}
		pass(time.Minute)
		require.False(t, s.hints.due.any(), "it goes on")
	})
}

// TestTrailingHintsOverrun trails runs of more lanes than a box holds.
func TestTrailingHintsOverrun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, trail := trailer()
		trail(1)
		pass(time.Millisecond)
		for lane := range store.LaneID(MostDue + 1) {
			trail(lane + 1)
		}
		times := 0
		for range 3000 {
			pass(time.Millisecond)
			times += len(s.hints.out.Take())
		}
		require.Equal(t, 2*len(trailing), times, "that runs are due is said early, and in time")
	})
}
