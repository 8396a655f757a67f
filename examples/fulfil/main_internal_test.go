package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
)

// noting is a shop that notes what it does.
type noting struct {
	kit     *durabletest.Kit
	missing string // the item that cannot be shipped
}

func (n noting) Charge(ctx context.Context, _ string, _ int) (string, error) {
	n.kit.Effect(ctx, "charge")
	return "payment", nil
}

func (n noting) Refund(ctx context.Context, payment string) error {
	n.kit.Effect(ctx, "refund "+payment)
	return nil
}

func (n noting) Ship(ctx context.Context, _, item string) (string, error) {
	if item == n.missing {
		return "", durable.Permanent(errors.New("no " + item))
	}
	n.kit.Effect(ctx, "ship "+item)
	return "parcel " + item, nil
}

func (n noting) Mail(ctx context.Context, to string, _ []string) error {
	n.kit.Effect(ctx, "mail "+to)
	return nil
}

func begin(t *testing.T, kit *durabletest.Kit, missing string) durable.RunID {
	t.Helper()
	kit.Worker(handlers{noting{kit, missing}}.register)
	stored, err := fulfil().Enqueue(t.Context(), kit.Client, Order{1, "ann", []string{"book", "lamp"}})
	require.NoError(t, err)
	return stored.ID
}

func TestTheOrdersArePlayed(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, play(t.Context(), filepath.Join(t.TempDir(), "fulfil.db"), &out))
	require.Equal(t, `order 1: charged
receipt to ann@example.com for [parcel with a book parcel with a lamp]
order 1 is succeeded
order 2: charged
payment of order 2 refunded
order 2 is dead
`, out.String())
}

func TestAnOrderIsShippedAndTheReceiptIsSentOnce(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		id := begin(t, kit, "")
		kit.RunAll()
		durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
		require.ElementsMatch(t, []string{"charge", "ship book", "ship lamp", "mail ann"}, kit.Effects())
	})
}

func TestWhatCannotBeShippedIsRefunded(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		id := begin(t, kit, "lamp")
		kit.RunAll()
		record := durabletest.RequireState(t, kit.Store, id, durable.Dead)
		require.Contains(t, *record.Error, "the lamp cannot be shipped: no lamp")
		require.ElementsMatch(t, []string{"charge", "ship book", "refund payment"}, kit.Effects())
	})
}

func TestAnOrderSurvivesCrashes(t *testing.T) {
	durabletest.CrashAfterEachStep(t, func(t *testing.T, kit *durabletest.Kit) {
		begin(t, kit, "lamp")
		kit.RunAll()
	})
}
