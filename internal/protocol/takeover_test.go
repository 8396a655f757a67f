package protocol_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/protocol"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func newTakeover() *protocol.Takeover {
	return &protocol.Takeover{Hold: 10 * time.Second, OutageHold: 3 * time.Second, Slack: 2 * time.Second}
}

func TestTakeover_NothingKnownIsNoBound(t *testing.T) {
	horizon, may := newTakeover().Horizon(0)
	require.True(t, may)
	require.True(t, horizon.IsZero())
}

func TestTakeover_JumpForwardLeavesLivingOwnersTime(t *testing.T) {
	m := newTakeover()
	require.Zero(t, m.Seen(0, noon))
	require.Zero(t, m.Seen(time.Second, noon.Add(2*time.Second)), "a second of gain is within the slack")
	horizon, may := m.Horizon(2 * time.Second)
	require.True(t, may)
	require.Equal(t, noon.Add(5*time.Second), horizon)

	require.Equal(t, time.Hour, m.Seen(3*time.Second, noon.Add(time.Hour+4*time.Second)))
	horizon, _ = m.Horizon(4 * time.Second)
	require.Equal(t, noon.Add(7*time.Second), horizon, "what expired by the old time may be reclaimed, nothing else")
	require.Zero(t, m.Seen(12*time.Second, noon.Add(time.Hour+13*time.Second)), "told once")
	require.Zero(t, m.Seen(14*time.Second, noon.Add(time.Hour+15*time.Second)))
	horizon, _ = m.Horizon(14 * time.Second)
	require.Equal(t, noon.Add(time.Hour+17*time.Second), horizon, "the hold is over, the new time counts")
}

func TestTakeover_JumpBackIsTakenOver(t *testing.T) {
	m := newTakeover()
	m.Seen(0, noon)
	require.Zero(t, m.Seen(time.Second, noon.Add(-2*time.Hour)))
	horizon, _ := m.Horizon(time.Second)
	require.Equal(t, noon.Add(-2*time.Hour+2*time.Second), horizon)
}

func TestTakeover_AfterAnOutageNobodyReclaimsForAWhile(t *testing.T) {
	m := newTakeover()
	m.Seen(0, noon)
	m.Recovered(60 * time.Second)
	_, may := m.Horizon(62 * time.Second)
	require.False(t, may)
	_, may = m.Horizon(63 * time.Second)
	require.True(t, may)
}
