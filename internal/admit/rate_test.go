package admit_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

func bucket(most int, period time.Duration, burst int) *store.Limit {
	return &store.Limit{ID: 3, Name: "bucket", Kind: store.LimitTokenBucket, Max: most, Period: period, Burst: burst}
}

func fixed(most int, period time.Duration) *store.Limit {
	return &store.Limit{ID: 4, Name: "fixed", Kind: store.LimitFixedWindow, Max: most, Period: period}
}

func sliding(most int, period time.Duration, buckets int) *store.Limit {
	return &store.Limit{ID: 5, Name: "sliding", Kind: store.LimitSlidingWindow, Max: most, Period: period, Buckets: buckets}
}

// rated is one gate of a rate, used as code outside of runs does.
type rated struct {
	t      *testing.T
	gate   admit.Gate
	starts []started
}

type started struct {
	at  time.Time
	k   int
	run uuid.UUID // of the simulator
}

func (r *rated) take(now time.Time, k int) admit.Taken {
	answer := admit.Take(now, k, r.gate)[0]
	r.gate.Rate, r.gate.Refunds = answer.Rate, nil
	if answer.OK {
		r.starts = append(r.starts, started{at: now, k: k})
	}
	return answer
}

// within is the most that started in any half-open time of a length.
func within(starts []started, length time.Duration) (most int) {
	first, sum := 0, 0
	for _, s := range starts {
		for sum += s.k; !starts[first].at.After(s.at.Add(-length)); first++ {
			sum -= starts[first].k
		}
		most = max(most, sum)
	}
	return most
}

// holdsBound checks the bound that a kind states.
//
// Mutants that it finds: bucket.free with b.burst for b.burst-1; window.leaves
// with a part less, so that a part counts only while its first instant is in the
// window, or with half a period; used without the last part.
func holdsBound(t *testing.T, l *store.Limit, starts []started) {
	t.Helper()
	switch l.Kind {
	case store.LimitFixedWindow:
		sums := map[int64]int{}
		for _, s := range starts {
			window := s.at.UnixMicro() / l.Period.Microseconds()
			sums[window] += s.k
			require.LessOrEqual(t, sums[window], l.Max)
		}
	case store.LimitTokenBucket:
		interval := float64(l.Period.Microseconds()) / float64(l.Max)
		for _, w := range []time.Duration{time.Millisecond, 10 * time.Millisecond, l.Period / 7, l.Period, 3 * l.Period} {
			bound := l.Burst - 1 + int(float64(w.Microseconds())/interval+1-1e-9)
			require.LessOrEqual(t, within(starts, w), max(bound, l.Burst), "in %v", w)
		}
	default:
		require.LessOrEqual(t, within(starts, l.Period), l.Max)
	}
}

var rates = []*store.Limit{
	bucket(500, time.Second, 10), bucket(7, time.Second, 1), bucket(3, time.Hour, 3), bucket(1_000_000, time.Second, 1000), bucket(300_000, time.Second, 5), bucket(1, 365*24*time.Hour, 10),
	fixed(5, time.Hour), fixed(5000, time.Hour),
	sliding(4, time.Hour, 3), sliding(64, time.Minute, 6), sliding(65, time.Minute, 6), sliding(5000, time.Hour, 60), sliding(100, time.Minute, 1),
}

func named(l *store.Limit) string {
	return fmt.Sprintf("%v %d per %v burst %d buckets %d", l.Kind, l.Max, l.Period, l.Burst, l.Buckets)
}

func TestRateNeverExceedsItsBound(t *testing.T) {
	for _, l := range rates {
		t.Run(named(l), func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, uint64(l.Max)))
			r := &rated{t: t, gate: admit.Gate{ID: admit.GateFor(l.ID, "k"), Limit: l}}
			now := start
			pace := int64(l.Period/time.Duration(l.Max)) + 1
			for range 20_000 {
				if now.Year() > 2200 { // where nanoseconds in 64 bits end soon
					break
				}
				if random.IntN(50) == 0 {
					pace = 1 + random.Int64N(int64(l.Period)/int64(1+random.IntN(4*l.Max)))
				}
				now = now.Add(time.Duration(random.Int64N(pace + 1)).Truncate(time.Microsecond))
				r.take(now, 1+random.IntN(min(3, l.Capacity())))
			}
			require.NotEmpty(t, r.starts)
			holdsBound(t, bounded(l), r.starts)
		})
	}
}

// bounded is the limit as its bound is stated: a sliding window of one bucket is
// fixed.
func bounded(l *store.Limit) *store.Limit {
	if l.Buckets == 1 {
		return fixed(l.Max, l.Period)
	}
	return l
}

func TestRateIsUsedFullyWhenAskedAtTheInstantItNames(t *testing.T) {
	for _, l := range rates {
		t.Run(named(l), func(t *testing.T) {
			r := &rated{t: t, gate: admit.Gate{ID: admit.GateFor(l.ID, "k"), Limit: l}}
			now := start.Add(time.Microsecond)
			began, n := now, 0
			for n < 4*l.Max && n < 20_000 {
				answer := r.take(now, 1)
				if answer.OK {
					n++
					now = now.Add((l.Period / time.Duration(16*l.Max)).Truncate(time.Microsecond))
					continue
				}
				require.True(t, answer.Next.After(now))
				early := admit.Take(answer.Next.Add(-time.Microsecond), 1, r.gate)[0]
				require.False(t, early.OK, "the instant is not a microsecond late")
				now = answer.Next
				require.True(t, r.take(now, 1).OK, "the instant is not early")
				n++
			}
			// A sliding window counts a part in full while it overlaps the window.
			parts := float64(max(l.Buckets, 1))
			if l.Max <= 64 {
				parts = 1e9
			}
			usable := float64(l.Max) / l.Period.Seconds() / (1 + 1/parts)
			if l.Kind != store.LimitSlidingWindow || l.Buckets == 1 {
				usable = float64(l.Max) / l.Period.Seconds()
			}
			took := now.Sub(began).Seconds()
			require.GreaterOrEqual(t, float64(n), .98*usable*took-float64(l.Max), "in %v", now.Sub(began))
		})
	}
}

func TestRefundGivesBackWhatWasCharged(t *testing.T) {
	for _, l := range rates {
		t.Run(named(l), func(t *testing.T) {
			gate := admit.Gate{ID: admit.GateFor(l.ID, "k"), Limit: l}
			for range l.Capacity() {
				taken := admit.Take(start, 1, gate)[0]
				require.True(t, taken.OK)
				gate.Rate = taken.Rate
			}
			require.False(t, admit.Take(start, 1, gate)[0].OK)
			gate.Refunds = []admit.Refund{{Weight: 1, ChargedAt: start}}
			taken := admit.Take(start, 1, gate)[0]
			require.True(t, taken.OK)
			gate.Rate, gate.Refunds = taken.Rate, nil
			require.False(t, admit.Take(start, 1, gate)[0].OK, "not more than was charged")
			gate.Refunds = []admit.Refund{{Weight: 9, ChargedAt: start.Add(-2 * l.Period)}, {Weight: 9, ChargedAt: start.Add(2 * l.Period)}}
			require.False(t, admit.Take(start, 1, gate)[0].OK, "of a window that is over nothing is given back")
		})
	}
}

// The mutant that it finds: current without bringing back what lies ahead.
func TestClockSetBackStallsARateForOnePeriodAndBurst(t *testing.T) {
	for _, l := range rates {
		t.Run(named(l), func(t *testing.T) {
			gate := admit.Gate{ID: admit.GateFor(l.ID, "k"), Limit: l}
			gate.Rate = admit.Take(start, l.Capacity(), gate)[0].Rate
			back := start.Add(-1000 * l.Period)
			longest := 2*l.Period + time.Duration(l.Burst)*(l.Period/time.Duration(l.Max)+1)
			for now := back; ; {
				taken := admit.Take(now, 1, gate)[0]
				if taken.OK {
					require.LessOrEqual(t, now.Sub(back), longest)
					return
				}
				require.LessOrEqual(t, taken.Next.Sub(back), longest)
				gate.Rate = taken.Rate
				now = taken.Next
			}
		})
	}
}

func TestChargePastTheLimitDelaysThoseThatFollow(t *testing.T) {
	for _, l := range rates {
		t.Run(named(l), func(t *testing.T) {
			gate := admit.Gate{ID: admit.GateFor(l.ID, "k"), Limit: l}
			for i := range 3 * 64 {
				gate.Rate = admit.Charge(start.Add(time.Duration(i)*time.Microsecond), l.Max, gate)
			}
			require.LessOrEqual(t, len(gate.Rate.At), max(64, l.Buckets+2), "the state is bounded")
			taken := admit.Take(start.Add(time.Millisecond), 1, gate)[0]
			require.False(t, taken.OK)
			require.LessOrEqual(t, taken.Next.Sub(start), 2*l.Period+time.Duration(l.Burst)*l.Period, "a debt is at most a period and a burst")
		})
	}
}

// The mutant that it finds: bucketOf rounding the interval down.
func TestIntervalThatIsNoNumberOfNanosecondsIsRoundedUp(t *testing.T) {
	l := bucket(1_000_000, time.Second+time.Microsecond, 1000)
	r := &rated{t: t, gate: admit.Gate{ID: admit.GateFor(3, "k"), Limit: l}}
	for ms := range 1100 {
		for k := 1000; k > 900 && !r.take(start.Add(time.Duration(ms)*time.Millisecond), k).OK; k-- {
		}
	}
	require.Greater(t, len(r.starts), 1000)
	holdsBound(t, l, r.starts)
}

func TestWhatWasChargedCountsUntilItLeavesTheWindow(t *testing.T) {
	gate := admit.Gate{ID: admit.GateFor(5, "k"), Limit: sliding(64, time.Minute, 6)}
	for i := range 100 {
		gate.Rate = admit.Charge(start.Add(time.Duration(i)*time.Millisecond), 1, gate)
	}
	require.Len(t, gate.Rate.At, 64)
	require.False(t, admit.Take(start.Add(time.Minute+10*time.Millisecond), 1, gate)[0].OK, "89 are in the window")
	require.True(t, admit.Take(start.Add(time.Minute+40*time.Millisecond), 5, gate)[0].OK, "59 are")
	require.False(t, admit.Take(start.Add(time.Minute+40*time.Millisecond), 6, gate)[0].OK)
}

// The mutant that it finds: newGate without g.changed.
func TestStateThatIsBroughtBackIsWritten(t *testing.T) {
	for _, l := range rates {
		gate := admit.Gate{ID: admit.GateFor(l.ID, "k"), Limit: l}
		gate.Rate = admit.Take(start, l.Capacity(), gate)[0].Rate
		back := start.Add(-9 * l.Period * time.Duration(max(l.Burst, 1)))
		in := admit.Input{Now: back, Room: 1, Gates: []admit.Gate{gate}, Lanes: []admit.Lane{ours}, Waiters: waiters(gate.ID, 1, 1, 1)}
		in.Waiters[0].DueAt = back
		d := admit.Decide(&in)
		require.Empty(t, d.Admitted)
		require.Len(t, d.Rates, 1, "or the clamp would move with the clock: %s", named(l))
		in.Gates[0].Rate, in.Now = d.Rates[0].Rate, d.Turns[0].DueAt
		require.Len(t, admit.Decide(&in).Admitted, 1)
	}
}

func TestChangeOfALimitKeepsWhatHasStarted(t *testing.T) {
	// From parts of ten seconds to exact instants and back: neither forgets.
	coarse, exact := sliding(100, time.Minute, 6), sliding(60, time.Minute, 6)
	r := &rated{t: t, gate: admit.Gate{ID: admit.GateFor(5, "k"), Limit: coarse}}
	for i := range 60 {
		require.True(t, r.take(start.Add(time.Duration(i)*100*time.Millisecond), 1).OK)
	}
	r.gate.Limit = exact
	for i := range 60_000 {
		r.take(start.Add(6*time.Second+time.Duration(i)*2*time.Millisecond), 1)
	}
	require.LessOrEqual(t, within(r.starts, time.Minute), 60)
	r.gate.Limit = sliding(65, time.Minute, 60)
	for i := range 60_000 {
		r.take(start.Add(126*time.Second+time.Duration(i)*2*time.Millisecond), 1)
	}
	require.LessOrEqual(t, within(r.starts, time.Minute), 65)
}

func TestPenalizedGateAdmitsNothingBeforeTheInstant(t *testing.T) {
	gate := admit.Gate{ID: admit.GateFor(3, "k"), Limit: bucket(500, time.Second, 10), NotBefore: start.Add(time.Minute)}
	taken := admit.Take(start, 1, gate)[0]
	require.False(t, taken.OK)
	require.Equal(t, start.Add(time.Minute), taken.Next)
	require.True(t, admit.Take(taken.Next, 1, gate)[0].OK)
}

// FuzzRate: whatever the history, the bound of the kind holds. Each byte is a
// pause, or a number of starts.
func FuzzRate(f *testing.F) {
	f.Add([]byte{0, 1, 2, 200, 1, 1, 1, 255, 3}, uint8(0))
	f.Add([]byte{10, 10, 10, 1, 1, 250, 10, 10, 10, 128, 3, 10, 10, 64, 10, 0, 10}, uint8(7))
	f.Fuzz(func(t *testing.T, history []byte, which uint8) {
		l := rates[int(which)%len(rates)]
		r := &rated{t: t, gate: admit.Gate{ID: admit.GateFor(l.ID, "k"), Limit: l}}
		now := start
		for _, step := range history {
			if step < 8 && len(r.starts) > 0 { // it has not happened after all
				i := max(len(r.starts)-1-int(step)/2, 0)
				r.gate.Refunds = append(r.gate.Refunds, admit.Refund{Weight: r.starts[i].k, ChargedAt: r.starts[i].at})
				r.starts = slices.Delete(r.starts, i, i+1)
				continue
			}
			if step >= 64 {
				pause := time.Duration(float64(l.Period) * float64(step-63) / 150)
				if now.Year() < 2200 {
					now = now.Add(pause.Truncate(time.Microsecond))
				}
				continue
			}
			answer := r.take(now, 1+int(step)%l.Capacity())
			if !answer.OK {
				require.True(t, answer.Next.After(now))
			}
		}
		holdsBound(t, bounded(l), r.starts)
	})
}
