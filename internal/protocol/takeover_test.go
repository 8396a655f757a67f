package protocol_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/protocol"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func newTakeover() *protocol.Takeover {
	return &protocol.Takeover{Hold: 10 * time.Second, OutageHold: 3 * time.Second, Gap: 5 * time.Second, Slack: 2 * time.Second}
}

// proven is a machine that has written every second for a minute before zero.
func proven() *protocol.Takeover {
	m := newTakeover()
	for at := -time.Minute; at <= 0; at += time.Second {
		m.Wrote(at, at)
	}
	return m
}

// writing has a machine write every second in a span of time.
func writing(m *protocol.Takeover, from, to time.Duration) {
	for at := from; at <= to; at += time.Second {
		m.Wrote(at, at)
	}
}

func may(m *protocol.Takeover, at time.Duration) bool {
	_, ok := m.Horizon(at)
	return ok
}

func TestTakeover_NothingKnownIsNoBound(t *testing.T) {
	horizon, may := proven().Horizon(0)
	require.True(t, may)
	require.True(t, horizon.IsZero())
}

func TestTakeover_JumpForwardLeavesLivingOwnersTime(t *testing.T) {
	m := proven()
	writing(m, 0, 14*time.Second)
	require.Zero(t, m.Seen(0, noon))
	require.Zero(t, m.Seen(time.Second, noon.Add(2*time.Second)), "a second of gain is within the slack")
	horizon, may := m.Horizon(2 * time.Second)
	require.True(t, may)
	require.Equal(t, noon.Add(5*time.Second), horizon)

	require.Equal(t, time.Hour, m.Seen(3*time.Second, noon.Add(time.Hour+4*time.Second)))
	horizon, _ = m.Horizon(4 * time.Second)
	require.Equal(t, noon.Add(7*time.Second), horizon, "what expired by the old time may be reclaimed, nothing else")
	require.Zero(t, m.Seen(12*time.Second, noon.Add(time.Hour+13*time.Second)), "reported once")
	require.Zero(t, m.Seen(14*time.Second, noon.Add(time.Hour+15*time.Second)))
	horizon, _ = m.Horizon(14 * time.Second)
	require.Equal(t, noon.Add(time.Hour+17*time.Second), horizon, "the hold is over, the new time counts")
}

func TestTakeover_JumpBackIsTakenOver(t *testing.T) {
	m := proven()
	m.Seen(0, noon)
	require.Zero(t, m.Seen(time.Second, noon.Add(-2*time.Hour)))
	horizon, _ := m.Horizon(time.Second)
	require.Equal(t, noon.Add(-2*time.Hour+2*time.Second), horizon)
}

func TestTakeover_WithoutAWriteNothingIsReclaimed(t *testing.T) {
	m := newTakeover()
	m.Seen(0, noon) // a read says nothing
	require.False(t, may(m, time.Hour))
	m.Wrote(time.Hour, time.Hour)
	require.False(t, may(m, time.Hour+2*time.Second))
	require.Equal(t, time.Second, m.Rest(time.Hour+2*time.Second))
	require.True(t, may(m, time.Hour+3*time.Second))
	require.True(t, may(m, time.Hour+5*time.Second))
	require.False(t, may(m, time.Hour+6*time.Second), "no one knows any more")
}

func TestTakeover_AfterAnOutageNoWorkerReclaimsForAWhile(t *testing.T) {
	m := proven()
	m.Wrote(60*time.Second, 60*time.Second)
	require.False(t, may(m, 62*time.Second))
	require.True(t, may(m, 63*time.Second))
}

func TestTakeover_AShortGapIsNoOutage(t *testing.T) {
	m := proven()
	require.True(t, may(m, 5*time.Second))
	m.Wrote(5*time.Second, 5*time.Second)
	require.True(t, may(m, 5*time.Second))
}

func TestTakeover_AWriteThatTookLongMayHaveHappenedImmediately(t *testing.T) {
	m := proven()
	m.Wrote(4*time.Second, 6*time.Second) // at 4, or only at 6: then there was time for an outage
	require.False(t, may(m, 6*time.Second))
	writing(m, 7*time.Second, 9*time.Second)
	require.True(t, may(m, 9*time.Second))
}

func TestTakeover_AnAnswerThatComesLateProvesNothingNew(t *testing.T) {
	m := proven()
	writing(m, time.Second, 10*time.Second)
	m.Wrote(2*time.Second, 10*time.Second)
	require.Zero(t, m.Unwritten(10*time.Second))
	require.True(t, may(m, 10*time.Second))
}

func TestTakeover_AnotherServerIsAnOutageThatNoOneMayHaveNoticed(t *testing.T) {
	m := proven()
	require.True(t, may(m, time.Second))
	m.Replaced()
	require.False(t, may(m, time.Second))
	writing(m, 2*time.Second, 4*time.Second)
	require.False(t, may(m, 4*time.Second))
	m.Wrote(5*time.Second, 5*time.Second)
	require.True(t, may(m, 5*time.Second))
}
