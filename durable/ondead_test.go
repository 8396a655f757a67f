package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/store"
)

var (
	refund = durable.NewJob[durable.Death]("refund")
	lament = durable.NewJob[durable.Death]("lament")
	debit  = durable.NewJob[order]("debit", durable.MaxAttempts(1), durable.OnDead(refund), durable.Alias("payment"), durable.WithCodec(reversing{}))
	other  = durable.NewJob[order]("other")
)

// reversing is a codec that wraps what it encodes.
type reversing struct{}

func (reversing) Encode(_ durable.CodecInfo, data []byte) ([]byte, error) {
	return json.Marshal(map[string]string{"sealed": string(data)})
}

func (reversing) Decode(_ durable.CodecInfo, data []byte) ([]byte, error) {
	var sealed map[string]string
	if err := json.Unmarshal(data, &sealed); err != nil || sealed["sealed"] == "" {
		return nil, errors.New("not sealed")
	}
	return []byte(sealed["sealed"]), nil
}

func TestOnDead_ARunIsStoredForEachDeath(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		var refunded, lamented []durable.Death
		kit.Worker(func(w *durable.Worker) {
			durable.Register(w, debit, func(context.Context, *durable.Run[order]) error { return errBoom })
			durable.Register(w, other, func(context.Context, *durable.Run[order]) error { return durable.Permanent(errBoom) })
			durable.Register(w, refund, func(_ context.Context, run *durable.Run[durable.Death]) error {
				refunded = append(refunded, run.Args)
				return nil
			})
			durable.Register(w, lament, func(_ context.Context, run *durable.Run[durable.Death]) error {
				lamented = append(lamented, run.Args)
				return durable.Permanent(errBoom)
			})
		}, func(c *durable.WorkerConfig) { c.OnDead = lament })
		first, err := debit.Enqueue(t.Context(), kit.Client, order{Total: 7})
		require.NoError(t, err)
		second, err := other.Enqueue(t.Context(), kit.Client, order{Total: 8})
		require.NoError(t, err)
		kit.RunAll()
		require.Len(t, refunded, 1)
		require.Equal(t, []any{first.ID, "debit", errBoom.Error()}, []any{refunded[0].Run, refunded[0].Job, refunded[0].Reason})
		require.Contains(t, string(refunded[0].Args), `7`)
		require.Len(t, lamented, 1, "the worker's job for deaths has none for its own")
		require.Equal(t, second.ID, lamented[0].Run)

		changed, err := kit.Store.Operate(t.Context(), store.RunCommand{Action: store.RetryRuns, Runs: []durable.RunID{first.ID}, By: "ann"})
		require.NoError(t, err)
		require.Equal(t, store.RunChanged, changed[0].Result)
		kit.RunAll()
		require.Len(t, refunded, 2, "a run that is retried and dies again has died twice")
	})
}

func TestOnDead_LeavesOutArgsThatAreTooLargeForAnotherRun(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		large := durable.NewJob[string]("large", durable.OnDead(refund))
		kit.Worker(func(w *durable.Worker) {
			durable.Register(w, large, func(context.Context, *durable.Run[string]) error { return durable.Permanent(errBoom) })
		})
		var got []durable.Death
		kit.Worker(func(w *durable.Worker) {
			durable.Register(w, refund, func(_ context.Context, run *durable.Run[durable.Death]) error {
				got = append(got, run.Args)
				return nil
			})
		})
		receipt, err := large.Enqueue(t.Context(), kit.Client, strings.Repeat("x", store.MaxArgsSize-10))
		require.NoError(t, err)
		kit.RunAll()
		require.Len(t, got, 1)
		require.Equal(t, receipt.ID, got[0].Run)
		require.Empty(t, got[0].Args)
	})
}

func TestOnDead_RefusesJobsThatAreEachForTheDeathsOfTheOther(t *testing.T) {
	t.Parallel()
	second := durable.NewJob[durable.Death]("second")
	first := durable.NewJob[durable.Death]("first", durable.OnDead(second))
	back := durable.NewJob[durable.Death]("second", durable.OnDead(first))
	w := durable.NewWorker(nil, durable.WorkerConfig{})
	nothing := func(context.Context, *durable.Run[durable.Death]) error { return nil }
	durable.Register(w, first, nothing)
	durable.Register(w, back, nothing)
	require.ErrorContains(t, w.Faults(), "[first second first]")

	own := durable.NewWorker(nil, durable.WorkerConfig{})
	durable.Register(own, durable.NewJob[order]("x", durable.OnDead(durable.NewJob[durable.Death]("x"))), func(context.Context, *durable.Run[order]) error { return nil })
	require.ErrorContains(t, own.Faults(), `job "x": OnDead: want another job`)
}
