package protocol_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/protocol"
)

const longest = time.Duration(math.MaxInt64)

// anyDuration is one of any magnitude, the longest included.
func anyDuration(random *rand.Rand) time.Duration {
	switch magnitude := random.IntN(68); {
	case magnitude > 63:
		return longest
	case magnitude == 63:
		return longest - time.Duration(random.Int64N(int64(time.Second)))
	default:
		return time.Duration(random.Int64N(1 << magnitude))
	}
}

// However far ahead the next run is, and however long the interval: after an answer with
// nothing left a poller asks when the run is due or the interval is over, not before.
func TestAsk_SleepsHoweverFarAheadTheNextRunIs(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		a := &protocol.Ask{Capacity: 10, Batch: 10, Interval: max(anyDuration(random), 1), Jitter: []float64{0, 0.2, 1}[random.IntN(3)]}
		now := min(anyDuration(random), 100*365*24*time.Hour)
		next := anyDuration(random)
		require.Positive(t, a.Step(protocol.AskEvent{At: now}).Ask)
		e := a.Step(protocol.AskEvent{Kind: protocol.AskAnswered, At: now, Next: next, Random: random.Float64()})
		least := min(float64(next), float64(a.Interval)*(1-a.Jitter), float64(longest-now))
		if e.Ask > 0 { // it is due already, or the jitter has taken all of the interval
			require.Less(t, least, 1.0, "interval %d, next %d: asks again immediately", a.Interval, next)
			continue
		}
		require.GreaterOrEqual(t, e.Wake, now, "interval %d, next %d", a.Interval, next)
		require.GreaterOrEqual(t, float64(e.Wake-now), least*(1-1e-9)-1, "interval %d, next %d", a.Interval, next)
		require.Zero(t, a.Step(protocol.AskEvent{At: e.Wake - 1}).Ask, "interval %d, next %d: asks before it wakes", a.Interval, next)
		require.Positive(t, a.Step(protocol.AskEvent{At: e.Wake}).Ask, "interval %d, next %d", a.Interval, next)
	}
}

// A call for later than there is changes nothing, whenever it comes.
func TestAsk_IsNotCalledSoonerThanItIsAskedTo(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		a := &protocol.Ask{Capacity: 10, Batch: 10, Interval: time.Hour}
		now, call := min(anyDuration(random), 100*365*24*time.Hour), anyDuration(random)
		called := protocol.AskEvent{Kind: protocol.AskCalled, At: now, Next: call}
		asking := random.IntN(2) == 0
		a.Step(protocol.AskEvent{At: now})
		if asking {
			a.Step(called)
		}
		e := a.Step(protocol.AskEvent{Kind: protocol.AskAnswered, At: now, Next: -1})
		if !asking {
			e = a.Step(called)
		}
		if want := min(call, time.Hour); want > 0 {
			require.Zero(t, e.Ask, "called for %d: asks immediately", call)
			require.Equal(t, now+want, e.Wake, "called for %d", call)
		}
	}
}
