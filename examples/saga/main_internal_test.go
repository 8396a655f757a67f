package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
)

// books is an agency that notes what it does.
type books struct {
	kit     *durabletest.Kit
	full    string    // the part that cannot be booked
	outage  time.Time // until then nothing can be cancelled
	refused int       // cancellations
}

func (b *books) Book(ctx context.Context, _, part, _ string) (string, error) {
	if part == b.full {
		return "", durable.Permanent(errors.New("no " + part))
	}
	b.kit.Effect(ctx, "book "+part)
	return part, nil
}

func (b *books) Cancel(ctx context.Context, booking string) error {
	if time.Now().Before(b.outage) {
		b.refused++
		return errors.New("the agency does not answer")
	}
	b.kit.Effect(ctx, "cancel "+booking)
	return nil
}

func begin(t *testing.T, kit *durabletest.Kit, agency *books) durable.RunID {
	t.Helper()
	kit.Worker(func(w *durable.Worker) { durable.Register(w, trip(), saga{agency, time.Second}.handle) })
	receipt, err := trip().Enqueue(t.Context(), kit.Client, Trip{City: "Rome"})
	require.NoError(t, err)
	return receipt.ID
}

func TestTheSagaIsPlayed(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, play(t.Context(), filepath.Join(t.TempDir(), "saga.db"), &out))
	require.Equal(t, `Paris: flight booked
Paris: hotel booked
Paris: car booked
the run of Paris is succeeded
Rome: flight booked
Rome: hotel booked
hotel in Rome not cancelled: the agency does not answer
hotel in Rome cancelled
flight in Rome cancelled
the run of Rome is dead
`, out.String())
}

func TestCancellationsAreTriedUntilTheyAreDone(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		agency := &books{kit: kit, full: "car", outage: time.Now().Add(3 * 24 * time.Hour)}
		id := begin(t, kit, agency)
		kit.Advance(2 * 24 * time.Hour)
		durabletest.RequireState(t, kit.Store, id, durable.Pending)
		kit.RunAll()
		record := durabletest.RequireState(t, kit.Store, id, durable.Dead)
		require.Contains(t, *record.Error, "no car")
		require.Equal(t, []string{"book flight", "book hotel", "cancel hotel", "cancel flight"}, kit.Effects())
		require.Greater(t, agency.refused, 24)
	})
}

func TestATripThatCannotBeginLeavesNothing(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		id := begin(t, kit, &books{kit: kit, full: "flight"})
		kit.RunAll()
		durabletest.RequireState(t, kit.Store, id, durable.Dead)
		require.Empty(t, kit.Effects())
	})
}

func TestAnInterruptionCancelsNothing(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		got := durabletest.PerformAfter(t, kit.Store, []durabletest.Fact{
			durabletest.Stored("book flight", "flight"), durabletest.Stored("book hotel", "hotel"), durabletest.Failed("book car", errors.New("no car")),
			durabletest.Stored("cancel hotel", true),
		}, trip(), saga{&books{kit: kit}, time.Second}.handle, Trip{City: "Rome"})
		require.Equal(t, []string{"cancel flight"}, kit.Effects(), "the rest was done before")
		require.Equal(t, durable.Dead, got.Record.State)
	})
}

func TestTheSagaSurvivesCrashes(t *testing.T) {
	durabletest.CrashAfterEachStep(t, func(t *testing.T, kit *durabletest.Kit) {
		begin(t, kit, &books{kit: kit, full: "car", outage: time.Now().Add(5 * time.Second)})
		kit.RunAll()
	})
}
