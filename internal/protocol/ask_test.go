package protocol_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/protocol"
)

func newAsk() *protocol.Ask {
	return &protocol.Ask{Capacity: 100, Batch: 60, Interval: 5 * time.Second, Jitter: 0.2, Linger: 5 * time.Millisecond}
}

func TestAsk_NeverMoreThanBatchOrFreeSlots(t *testing.T) {
	a := newAsk()
	require.Equal(t, 60, a.Step(protocol.AskEvent{}).Ask)
	e := a.Step(protocol.AskEvent{Kind: protocol.AskAnswered, Count: 60, Left: true})
	require.Equal(t, 500*time.Microsecond, e.Wake, "forty of a hundred are free, more than a quarter: the rest gets a moment")
	e = a.Step(protocol.AskEvent{At: e.Wake})
	require.Equal(t, 40, e.Ask)
	e = a.Step(protocol.AskEvent{Kind: protocol.AskAnswered, Count: 40, Left: true})
	require.Zero(t, e.Ask, "no slot is free")
	require.Negative(t, e.Wake)
}

func TestAsk_RefillsAtAQuarterOrAfterLingering(t *testing.T) {
	a := newAsk()
	a.Batch = 100
	a.Step(protocol.AskEvent{})
	a.Step(protocol.AskEvent{Kind: protocol.AskAnswered, Count: 100, Left: true})
	e := a.Step(protocol.AskEvent{Kind: protocol.AskFreed, Count: 1, At: time.Second})
	require.Zero(t, e.Ask)
	require.Equal(t, time.Second+5*time.Millisecond, e.Wake)
	require.Equal(t, 24, a.Wanted())
	e = a.Step(protocol.AskEvent{Kind: protocol.AskFreed, Count: 24, At: time.Second + time.Millisecond})
	require.Equal(t, time.Second+1500*time.Microsecond, e.Wake)
	require.Equal(t, 75, a.Wanted())
	require.Equal(t, 100, a.Step(protocol.AskEvent{Kind: protocol.AskFreed, Count: 75, At: time.Second + time.Millisecond}).Ask, "idle: immediately")
}

func TestAsk_SleepsOnlyAfterAnEmptyAnswer(t *testing.T) {
	for _, random := range []float64{0, 0.25, 0.5, 0.999999} {
		a := newAsk()
		a.Step(protocol.AskEvent{})
		e := a.Step(protocol.AskEvent{Kind: protocol.AskAnswered, Next: -1, Random: random})
		require.Zero(t, e.Ask)
		require.InDelta(t, (4 + 2*random), e.Wake.Seconds(), 0.001, "interval 5 s, ratio 0.2")
		require.Positive(t, a.Step(protocol.AskEvent{At: e.Wake}).Ask)
	}
}

func TestAsk_JitterSwitchedOffSleepsTheInterval(t *testing.T) {
	a := newAsk()
	a.Jitter = 0
	a.Step(protocol.AskEvent{})
	require.Equal(t, 5*time.Second, a.Step(protocol.AskEvent{Kind: protocol.AskAnswered, Next: -1, Random: 0.99}).Wake)
}

func TestAsk_WakesForTheNextDueInstant(t *testing.T) {
	a := newAsk()
	a.Step(protocol.AskEvent{})
	e := a.Step(protocol.AskEvent{Kind: protocol.AskAnswered, Next: 300 * time.Millisecond, Random: 0.5})
	require.GreaterOrEqual(t, e.Wake, 300*time.Millisecond)
	require.LessOrEqual(t, e.Wake, 320*time.Millisecond)
}

func TestAsk_WokenWhileAskingAsksOnceMore(t *testing.T) {
	a := newAsk()
	a.Step(protocol.AskEvent{})
	require.Zero(t, a.Step(protocol.AskEvent{Kind: protocol.AskWoken}).Ask, "one question at a time")
	require.Positive(t, a.Step(protocol.AskEvent{Kind: protocol.AskAnswered, Next: -1}).Ask, "the answer may be older than the wake-up")
	require.Zero(t, a.Step(protocol.AskEvent{Kind: protocol.AskAnswered, Next: -1}).Ask)
}

func TestAsk_WakeUpsInVainAreSpread(t *testing.T) {
	a := newAsk()
	woken := func(now time.Duration, found int) time.Duration {
		e := a.Step(protocol.AskEvent{Kind: protocol.AskWoken, At: now, Random: 0.5})
		if e.Ask == 0 {
			again := a.Step(protocol.AskEvent{Kind: protocol.AskWoken, At: now, Random: 0.1})
			require.Equal(t, e.Wake, again.Wake, "a second wake-up draws no second lot")
			require.Positive(t, a.Step(protocol.AskEvent{At: e.Wake}).Ask)
		}
		asked := max(e.Wake, now)
		a.Step(protocol.AskEvent{Kind: protocol.AskAnswered, At: asked, Count: found, Next: -1})
		if found > 0 {
			a.Step(protocol.AskEvent{Kind: protocol.AskFreed, At: asked, Count: found})
		}
		return asked - now
	}
	a.Step(protocol.AskEvent{})
	a.Step(protocol.AskEvent{Kind: protocol.AskAnswered, Next: -1})
	now := time.Second
	for range 16 {
		require.Zero(t, woken(now, 0), "a few are for nothing")
		now += 300 * time.Millisecond
	}
	require.Zero(t, woken(now, 0))
	require.Equal(t, 500*time.Microsecond, woken(now+time.Second, 0))
	require.Equal(t, time.Millisecond, woken(now+2*time.Second, 1), "this one found something")
	require.Zero(t, woken(now+3*time.Second, 0), "which counts for many")
	for i := range 1000 {
		require.LessOrEqual(t, woken(now+time.Duration(4+i)*time.Second, 0), 125*time.Millisecond, "it is bounded")
	}
}

func TestAsk_FailuresBackOff(t *testing.T) {
	a := newAsk()
	var now, last time.Duration
	for range 12 {
		require.Positive(t, a.Step(protocol.AskEvent{At: now}).Ask)
		e := a.Step(protocol.AskEvent{Kind: protocol.AskFailed, At: now, Random: 0.5})
		pause := e.Wake - now
		require.GreaterOrEqual(t, pause, last)
		require.LessOrEqual(t, pause, 5*time.Second)
		now, last = e.Wake, pause
	}
	require.Equal(t, 5*time.Second, last)
}
