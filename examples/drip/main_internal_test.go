package main

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
)

const day = 24 * time.Hour

// letterbox is a mailer that notes what it sends.
type letterbox struct{ kit *durabletest.Kit }

func (l letterbox) Send(ctx context.Context, _, to, text string) error {
	l.kit.Effect(ctx, "to "+to+": "+text)
	return nil
}

func inFourDays(kit *durabletest.Kit) drip { return drip{letterbox{kit}, 3 * day, day} }

func begin(t *testing.T, kit *durabletest.Kit) durable.RunID {
	t.Helper()
	kit.Worker(func(w *durable.Worker) { durable.Register(w, onboard(), inFourDays(kit).handle) })
	receipt, err := onboard().Enqueue(t.Context(), kit.Client, User{Name: "ada"}, durable.Unique("ada"))
	require.NoError(t, err)
	kit.RunDue()
	return receipt.ID
}

func TestTheDripIsPlayed(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, play(t.Context(), filepath.Join(t.TempDir(), "drip.db"), drip{printer{&out}, 30 * time.Millisecond, 50 * time.Millisecond}))
	require.Equal(t, `to ada: welcome
to ada: come in, says eva
to bob: welcome
to bob: are you still there?
`, out.String())
}

func TestTheDripGrantsAccessWhenItIsApproved(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		id := begin(t, kit)
		durabletest.RequireWaiting(t, kit.Store, id, "pause")
		kit.Advance(3 * day)
		durabletest.RequireWaiting(t, kit.Store, id, "approved")
		kit.Advance(day - time.Minute)
		_, err := onboard().SendTo(t.Context(), kit.Client, "ada", "approved", Approval{Yes: true, By: "eva"})
		require.NoError(t, err)
		kit.RunDue()
		durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
		require.Equal(t, []string{"to ada: welcome", "to ada: come in, says eva"}, kit.Effects())
	})
}

func TestTheDripNudgesWhenNoApprovalComes(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		id := begin(t, kit)
		kit.Advance(4*day - time.Minute)
		durabletest.RequireWaiting(t, kit.Store, id, "approved")
		kit.Advance(time.Minute)
		durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
		require.Equal(t, []string{"to ada: welcome", "to ada: are you still there?"}, kit.Effects())
		_, err := onboard().Send(t.Context(), kit.Client, id, "approved", Approval{Yes: true})
		require.ErrorIs(t, err, durable.ErrConflict, "of the approval and the deadline, one counts")
	})
}

func TestTheDripSaysNo(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		got := durabletest.PerformAfter(t, kit.Store, []durabletest.Fact{
			durabletest.Stored("welcome", true), durabletest.Slept("pause"), durabletest.Sent("approved", Approval{By: "eva"}),
		}, onboard(), inFourDays(kit).handle, User{Name: "ada"})
		require.NoError(t, got.Err)
		require.Len(t, got.Steps, 1)
		require.Equal(t, []string{"to ada: not now, says eva"}, kit.Effects())
	})
}

func TestTheDripSurvivesCrashes(t *testing.T) {
	durabletest.CrashAfterEachStep(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(func(w *durable.Worker) { durable.Register(w, onboard(), inFourDays(kit).handle) })
		receipt, err := onboard().Enqueue(t.Context(), kit.Client, User{Name: "ada"})
		require.NoError(t, err)
		kit.Advance(3 * day)
		_, err = onboard().Send(t.Context(), kit.Client, receipt.ID, "approved", Approval{Yes: true, By: "eva"})
		require.NoError(t, err)
		kit.RunAll()
	})
}

func TestTheDripReturnsItsParks(t *testing.T) {
	durabletest.Run(t, func(_ *testing.T, kit *durabletest.Kit) {
		handler := inFourDays(kit).handle
		durabletest.CheckParks(kit, onboard(), handler, User{Name: "ada"}, durabletest.Sent("approved", Approval{Yes: true, By: "eva"}))
		durabletest.CheckParks(kit, onboard(), handler, User{Name: "bob"}) // no approval: the deadline passes
	})
}
