package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
)

// noting is a warehouse that notes what it does.
type noting struct {
	kit *durabletest.Kit
	out time.Time // until then there are no figures
}

func (n noting) Read(ctx context.Context, _ string) (Figures, error) {
	if time.Now().Before(n.out) {
		return nil, durable.Permanent(errors.New("no figures"))
	}
	n.kit.Effect(ctx, "read")
	return Figures{2, 1}, nil
}

func (n noting) Write(ctx context.Context, _ string, figures Figures) error {
	n.kit.Effect(ctx, fmt.Sprint("write ", figures))
	return nil
}

func (n noting) Alarm(ctx context.Context, _ string) error {
	n.kit.Effect(ctx, "alarm")
	return nil
}

func begin(t *testing.T, kit *durabletest.Kit, out time.Time) Night {
	t.Helper()
	kit.Worker(handlers{noting{kit, out}}.register)
	n := night("Monday")
	require.NoError(t, n.enqueue(t.Context(), kit.Client))
	return n
}

func TestTheNightsArePlayed(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, play(t.Context(), filepath.Join(t.TempDir(), "nightly.db"), &out))
	require.Equal(t, `Saturday: loaded [1 2 3]
Sunday: alarm
Sunday: load is pending
Sunday: loaded [1 2 3]
`, out.String())
}

func TestANightIsLoadedWithoutAnAlarm(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		n := begin(t, kit, time.Time{})
		kit.RunAll()
		durabletest.RequireState(t, kit.Store, n.Load.ID, durable.Succeeded)
		durabletest.RequireState(t, kit.Store, n.Alarm.ID, durable.Cancelled)
		require.Equal(t, []string{"read", "write [1 2]"}, kit.Effects())
	})
}

func TestANightThatFailsIsHeldAndRaisesOneAlarm(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		n := begin(t, kit, time.Now().Add(time.Hour))
		kit.Advance(time.Minute)
		durabletest.RequireState(t, kit.Store, n.Extract.ID, durable.Dead)
		durabletest.RequireState(t, kit.Store, n.Load.ID, durable.Pending)
		require.Equal(t, []string{"alarm"}, kit.Effects())
	})
}
