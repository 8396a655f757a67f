package protocol_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/protocol"
)

// crowd are handlers on one CPU, in virtual time: those that compute get 10 ms each in turn,
// so that the latency is 10 ms times their number.
type crowd struct {
	begin   protocol.Begin
	now     time.Duration
	waiting int
	takes   time.Duration // CPU time of a handler; zero: it waits for I/O, and does not end
	work    []time.Duration
	most    int
	logged  []time.Duration
}

// round lets those begin that may, and gives each handler one turn.
func (c *crowd) round() {
	for c.waiting > 0 && c.begin.Open() {
		c.waiting--
		c.begin.Began()
		c.work = append(c.work, c.takes)
	}
	c.most = max(c.most, len(c.work))
	began := c.now
	if c.takes > 0 {
		c.turn()
	}
	effects := c.begin.Sampled(protocol.BeginSample{At: c.now, Latency: c.now - began, Waiting: c.waiting})
	if effects.Tell {
		c.logged = append(c.logged, c.now)
	}
}

func (c *crowd) turn() {
	var left []time.Duration
	for _, work := range c.work {
		c.now += 10 * time.Millisecond
		if work -= 10 * time.Millisecond; work <= 0 {
			c.begin.Ended()
		} else {
			left = append(left, work)
		}
	}
	c.work = left
}

func TestBegin_HandlersThatComputeLeaveHeartbeatsTheirTurn(t *testing.T) {
	for lease, most := range map[time.Duration]int{time.Second: 16, 3 * time.Second: 16, 30 * time.Second: 64} {
		c := crowd{begin: protocol.Begin{Lease: lease, Floor: 4}, waiting: 1000, takes: 150 * time.Millisecond}
		for rounds := 0; c.waiting > 0 || len(c.work) > 0; rounds++ {
			require.Less(t, rounds, 10_000, "each begins")
			c.round()
		}
		require.LessOrEqual(t, c.most, most, "lease %v", lease)
		require.Less(t, c.now, 151*time.Second, "the CPU is never idle")
		require.NotEmpty(t, c.logged)
		for i := 1; i < len(c.logged); i++ {
			require.GreaterOrEqual(t, c.logged[i]-c.logged[i-1], time.Minute)
		}
	}
}

func TestBegin_HandlersThatWaitBeginWithinAFewRounds(t *testing.T) {
	c := crowd{begin: protocol.Begin{Lease: 30 * time.Second, Floor: 4}, waiting: 1000}
	for range 9 {
		c.round()
	}
	require.Zero(t, c.waiting)
	require.Zero(t, c.now)
	require.Equal(t, math.MaxInt, c.begin.Room(c.now, 0), "claims are not bounded")
	require.Empty(t, c.logged)
}

// starved are handlers that compute, of a process that gets so little CPU that the turns of four of
// them take longer than a heartbeat may. A handler whose lease is lost is given up, continues to
// compute, and its run is executed again.
type starved struct {
	begin   protocol.Begin
	now     time.Duration
	waiting int
	working []*computing
	redone  int
}

// computing is one handler.
type computing struct {
	turns   int // left until it ends
	began   time.Duration
	givenUp bool
}

const (
	starvedTurn     = 70 * time.Millisecond // until a handler has had its 10 ms
	starvedTurns    = 15
	starvedSteps    = 6 // of a heartbeat
	starvedDeadline = 1650 * time.Millisecond
)

// round lets those begin that may, and gives each handler one turn, those included that were
// given up.
func (s *starved) round() {
	for s.waiting > 0 && s.begin.Open() {
		s.waiting--
		s.begin.Began()
		s.working = append(s.working, &computing{turns: starvedTurns, began: s.now})
	}
	latency := max(time.Duration(len(s.working))*starvedTurn, starvedTurn/7)
	s.now += latency
	s.working = slices.DeleteFunc(s.working, s.turn)
	if starvedSteps*latency > starvedDeadline {
		s.lose()
	}
	s.begin.Sampled(protocol.BeginSample{At: s.now, Latency: latency, Waiting: s.waiting})
}

// turn reports whether the handler has ended.
func (s *starved) turn(c *computing) bool {
	c.turns--
	switch {
	case c.turns > 0:
		return false
	case c.givenUp:
		s.begin.Returned()
	default:
		s.begin.Ended()
	}
	return true
}

// lose gives those up whose leases have ended without a heartbeat.
func (s *starved) lose() {
	for _, c := range s.working {
		if !c.givenUp && s.now-c.began > starvedDeadline {
			c.givenUp = true
			s.begin.GivenUp()
			s.waiting++
			s.redone++
		}
	}
}

func TestBegin_WhereTheCPUIsSharedFewLeasesAreLost(t *testing.T) {
	const runs = 150
	s := starved{begin: protocol.Begin{Lease: 2 * time.Second, Floor: 4}, waiting: runs}
	for s.waiting > 0 || len(s.working) > 0 {
		require.Less(t, s.redone, runs/10, "after %v %d runs wait and %d handlers compute", s.now, s.waiting, len(s.working))
		s.round()
	}
	require.Less(t, s.now, runs*starvedTurns*starvedTurn*5/4, "the CPU is never idle for long")
}

func TestBegin_AHandlerThatWasGivenUpCountsWhileGoroutinesWait(t *testing.T) {
	b := executing(4)
	for range 4 {
		b.GivenUp()
	}
	require.True(t, b.Open(), "they block, and compute nothing")
	for range 3 {
		b.Began()
	}
	sample(b, time.Second, time.Second, 10)
	require.False(t, b.Open(), "seven may compute")
	require.Zero(t, b.Room(time.Second, 0))
	for range 4 {
		b.Returned()
	}
	require.True(t, b.Open())
}

func TestBegin_OneHandlerAlwaysMayExecute(t *testing.T) {
	b := executing(4)
	for at := range 10 {
		sample(b, time.Duration(at)*time.Second, 4*time.Second, 10)
	}
	for range 3 {
		require.False(t, b.Open())
		b.Ended()
	}
	require.False(t, b.Open(), "one executes")
	b.GivenUp()
	require.True(t, b.Open(), "whatever computes")
	require.Equal(t, 1, b.Room(10*time.Second, 0))
	sample(b, 11*time.Second, 400*time.Millisecond, 10)
	require.False(t, func() bool { b.Began(); b.Began(); return b.Open() }(), "it has not been low since")
	sample(b, 12*time.Second, 0, 10)
	require.True(t, b.Open())
}

func sample(b *protocol.Begin, at, latency time.Duration, waiting int) protocol.BeginEffects {
	return b.Sampled(protocol.BeginSample{At: at, Latency: latency, Waiting: waiting})
}

// executing returns a Begin with a lease of 30 s and so many handlers, which have begun while
// the latency was low.
func executing(n int) *protocol.Begin {
	b := &protocol.Begin{Lease: 30 * time.Second, Floor: 4}
	for range n {
		if !b.Open() {
			sample(b, 0, 0, 1)
		}
		b.Began()
	}
	return b
}

func TestBegin_ModerateLatencyReplacesAndHighLatencyShrinks(t *testing.T) {
	b := executing(100)
	b.Ended()
	sample(b, time.Second, 400*time.Millisecond, 10)
	require.False(t, b.Open())
	b.Ended()
	require.True(t, b.Open(), "one begins when one ends")
	b.Began()
	sample(b, 2*time.Second, 2*time.Second, 10)
	for range 99 - 73 {
		require.False(t, b.Open())
		b.Ended()
	}
	require.True(t, b.Open())
	for at := 3 * time.Second; at < 30*time.Second; at += time.Second {
		sample(b, at, 2*time.Second, 10)
	}
	for range 70 {
		b.Ended()
	}
	require.True(t, b.Open(), "a few may always execute")
}

func TestBegin_HandlersThatTakeLongDoNotKeepOthersOutForever(t *testing.T) {
	b := executing(4)
	for at := range 20 {
		sample(b, time.Duration(at)*time.Second, 400*time.Millisecond, 1)
		require.True(t, b.Open())
		b.Began()
	}
}

func TestBegin_AWorkerShortOfCPUClaimsWhatCanBegin(t *testing.T) {
	b := executing(50)
	require.Equal(t, math.MaxInt, b.Room(0, 0))
	b.Ended()
	sample(b, time.Second, 400*time.Millisecond, 0)
	require.Equal(t, 0, b.Room(time.Second, 0))
	b.Ended()
	b.Ended()
	require.Equal(t, 2, b.Room(2*time.Second, 0))
	require.Equal(t, 1, b.Room(2*time.Second, 1))
	require.Equal(t, 0, b.Room(2*time.Second, 5))
	require.Equal(t, math.MaxInt, b.Room(31*time.Second, 0), "a lease later it is short no more")
}

func TestBegin_WhatHasNotBegunForAQuarterOfTheLeaseIsHandedBack(t *testing.T) {
	b := executing(4)
	require.Equal(t, 12500*time.Millisecond, sample(b, 20*time.Second, time.Second, 4).HandBack)
}

func TestBegin_OneSlowTurnIsNotWorthAWord(t *testing.T) {
	b := executing(50)
	require.False(t, sample(b, time.Second, 2*time.Second, 5).Tell)
	require.False(t, sample(b, 40*time.Second, 2*time.Second, 5).Tell, "the first one is long ago")
	require.False(t, sample(b, 42*time.Second, 400*time.Millisecond, 0).Tell, "nothing waits, and it is moderate")
	require.True(t, sample(b, 43*time.Second, 400*time.Millisecond, 1).Tell)
}
