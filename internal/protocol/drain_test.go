package protocol_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/protocol"
)

func TestDrain_FinishThenCancelThenGiveUp(t *testing.T) {
	d := protocol.Drain{Timeout: 10 * time.Second, Grace: 5 * time.Second}
	e := d.Step(protocol.DrainEvent{Kind: protocol.DrainStop, Executing: 2})
	require.Equal(t, protocol.DrainEffects{Wake: 10 * time.Second}, e)
	e = d.Step(protocol.DrainEvent{At: 10 * time.Second, Executing: 2})
	require.Equal(t, protocol.DrainEffects{CancelHandlers: true, Wake: 15 * time.Second}, e)
	require.False(t, d.Step(protocol.DrainEvent{At: 14 * time.Second, Executing: 1}).Done)
	require.True(t, d.Step(protocol.DrainEvent{At: 15 * time.Second, Executing: 1}).Done)
	require.False(t, d.Step(protocol.DrainEvent{Kind: protocol.DrainHurry, At: 16 * time.Second}).CancelHandlers, "over is over")
}

func TestDrain_NothingInHandIsDoneImmediately(t *testing.T) {
	d := protocol.Drain{Timeout: 10 * time.Second}
	require.True(t, d.Step(protocol.DrainEvent{Kind: protocol.DrainStop}).Done)
}

func TestDrain_StopNowSkipsTheTimeToFinish(t *testing.T) {
	d := protocol.Drain{Timeout: time.Hour, Grace: 5 * time.Second}
	require.False(t, d.Step(protocol.DrainEvent{Kind: protocol.DrainHurry, Executing: 1}).CancelHandlers, "not draining yet")
	d.Step(protocol.DrainEvent{Kind: protocol.DrainStop, Executing: 1})
	e := d.Step(protocol.DrainEvent{Kind: protocol.DrainHurry, At: time.Second, Executing: 1})
	require.Equal(t, protocol.DrainEffects{CancelHandlers: true, Wake: 6 * time.Second}, e)
}

func TestDrain_TimesThatAreTooLongAreForever(t *testing.T) {
	d := protocol.Drain{Timeout: math.MaxInt64, Grace: math.MaxInt64}
	e := d.Step(protocol.DrainEvent{Kind: protocol.DrainStop, At: time.Hour, Executing: 1})
	require.Equal(t, protocol.DrainEffects{Wake: math.MaxInt64}, e)
	e = d.Step(protocol.DrainEvent{Kind: protocol.DrainHurry, At: 2 * time.Hour, Executing: 1})
	require.Equal(t, protocol.DrainEffects{CancelHandlers: true, Wake: math.MaxInt64}, e)
	require.False(t, d.Step(protocol.DrainEvent{At: 3 * time.Hour, Executing: 1}).Done)
}
