package main

import (
	"bytes"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
)

func TestATripIsBookedOrUndone(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, book(t.Context(), filepath.Join(t.TempDir(), "steps.db"), &out))
	require.Equal(t, `booking a flight
booking a room
Paris: flight-1 and room-1, approved by eva
booking a flight
booking a room
cancelling flight-1
Rome: dead
`, out.String())
}

func TestATripWithoutAnApprovalEnds(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(func(w *durable.Worker) { durable.Register(w, trip(), agency{io.Discard}.handle) })
		receipt, err := trip().Enqueue(t.Context(), kit.Client, Trip{City: "Oslo", Rooms: 1})
		require.NoError(t, err)
		kit.Advance(8 * 24 * time.Hour)
		record, err := kit.Store.Run(t.Context(), receipt.ID)
		require.NoError(t, err)
		require.Equal(t, durable.Dead, record.State)
		_, err = trip().Send(t.Context(), kit.Client, receipt.ID, "approved", Approval{By: "eva"})
		require.ErrorIs(t, err, durable.ErrConflict)
	})
}
