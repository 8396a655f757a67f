package operate_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// parked enqueues a run, and executes it until its handler has parked it in a step of this name.
func parked(t *testing.T, db store.Store, handler func(context.Context, *durable.Run[int]) error, step string) store.RunID {
	t.Helper()
	receipt, err := durable.NewJob[int]("order").Enqueue(t.Context(), durable.NewClient(db), 1)
	require.NoError(t, err)
	work(t, db, handler, receipt.ID, step)
	return receipt.ID
}

// work executes runs until a handler has parked this one in a step of this name.
func work(t *testing.T, db store.Store, handler func(context.Context, *durable.Run[int]) error, id store.RunID, step string) {
	t.Helper()
	worker := durable.NewWorker(db, durable.WorkerConfig{})
	durable.Register(worker, durable.NewJob[int]("order"), handler)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	require.Eventually(t, func() bool {
		record, err := db.Run(t.Context(), id)
		recorded, fault := store.StepsOf(t.Context(), db, id)
		return err == nil && fault == nil && record.State == store.Pending &&
			slices.ContainsFunc(recorded.Steps, func(s store.StepRecord) bool { return s.Name == step && s.Until.Before(record.DueAt.Add(time.Second)) })
	}, time.Minute, 5*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

// TestARunIsExplainedByItsWaits: by those that are open, and by no others.
func TestARunIsExplainedByItsWaits(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	o := operate.New(db, operate.Config{}).As("ann")
	defer o.Close()
	handler := func(ctx context.Context, run *durable.Run[int]) error {
		if err := run.Sleep(ctx, "short", 50*time.Millisecond); err != nil {
			return err
		}
		if _, err := durable.Receive[int](ctx, run, "first", time.Hour); err != nil && !errors.Is(err, durable.ErrNoInput) {
			return err
		}
		return run.Sleep(ctx, "long", 100*time.Hour)
	}
	id := parked(t, db, handler, "first")
	kinds := func() (kinds []operate.BlockerKind) {
		e, err := o.Explain(t.Context(), id)
		require.NoError(t, err)
		for _, b := range e.Blockers {
			if b.Kind == operate.BlockerInput || b.Kind == operate.BlockerAsleep || b.Kind == operate.BlockerSnoozed {
				kinds = append(kinds, b.Kind)
			}
		}
		return kinds
	}
	require.Equal(t, []operate.BlockerKind{operate.BlockerInput}, kinds(), "the sleep before it is over")
	list, err := o.Steps(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, list.Waits, 1)
	require.Equal(t, "first", list.Waits[0].Name)
	_, err = o.Send(t.Context(), operate.InputOrder{Run: id, Name: "second", Value: json.RawMessage("1")})
	require.NoError(t, err)
	require.Equal(t, []operate.BlockerKind{operate.BlockerInput}, kinds(), "an input that it does not wait for")
	_, err = o.Send(t.Context(), operate.InputOrder{Run: id, Name: "first", Value: json.RawMessage("1")})
	require.NoError(t, err)
	require.Empty(t, kinds(), "it is due")

	work(t, db, handler, id, "long")
	require.Equal(t, []operate.BlockerKind{operate.BlockerAsleep}, kinds(), "the input has come, before its deadline")
	e, err := o.Explain(t.Context(), id)
	require.NoError(t, err)
	require.Contains(t, e.Summary, `it sleeps in its step "long": that is over in 4 d 3 h`)
	_, err = o.Cancel(t.Context(), "", id)
	require.NoError(t, err)
	list, err = o.Steps(t.Context(), id)
	require.NoError(t, err)
	require.Empty(t, list.Waits, "it has ended")
}

// TestWhatAnOperatorSendsAndForgetsIsPassedOn: with the name and the size of a value, and never
// with the value.
func TestWhatAnOperatorSendsAndForgetsIsPassedOn(t *testing.T) {
	t.Parallel()
	var changes []store.Change
	db := memory.New(memory.Config{})
	o := operate.New(db, operate.Config{Changed: func(change store.Change) { changes = append(changes, change) }})
	made, err := o.Enqueue(t.Context(), durable.NewJob[int]("order").New(1, durable.Unique("o1")))
	require.NoError(t, err)
	order := operate.InputOrder{Job: "order", Key: "o1", Name: "approved", Value: json.RawMessage(` {"by": "canary<&>"} `)}
	sent, err := o.As("ann").Send(t.Context(), order)
	require.NoError(t, err)
	require.Equal(t, operate.SentInput{Run: made.ID, Name: "approved"}, sent)
	again, err := o.As("bob").Send(t.Context(), order)
	require.NoError(t, err)
	require.True(t, again.Existing)
	receipt, err := durable.NewJob[int]("order").SendTo(t.Context(), db, "o1", "approved", map[string]string{"by": "canary<&>"})
	require.NoError(t, err)
	require.True(t, receipt.Existing, "the same value, sent by code")
	require.Len(t, changes, 1, "the second one has changed nothing")
	require.Equal(t, []string{"ann", "run", made.ID.String(), operate.SendsInput}, []string{changes[0].Actor, changes[0].Kind, changes[0].Subject, changes[0].Action})
	require.JSONEq(t, `{"input":"approved","size":33}`, string(changes[0].Detail))

	for _, by := range []string{"", "a\x1bb"} {
		_, err = o.As(by).Send(t.Context(), order)
		require.ErrorIs(t, err, store.ErrInvalid)
		_, err = o.As(by).ForgetSteps(t.Context(), made.ID, "x")
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	for _, names := range [][]string{nil, {""}, {"a\nb"}, make([]string, store.MaxSteps+1)} {
		_, err = o.As("ann").ForgetSteps(t.Context(), made.ID, names...)
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	_, err = o.As("ann").ForgetSteps(t.Context(), made.ID, "x")
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = o.Steps(t.Context(), store.NewRunID())
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Len(t, changes, 1)
}

// TestAStepOfARunThatExecutesIsNotForgotten: its handler has the result already.
func TestAStepOfARunThatExecutesIsNotForgotten(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	o := operate.New(db, operate.Config{}).As("ann")
	defer o.Close()
	id := parked(t, db, func(ctx context.Context, run *durable.Run[int]) error {
		if _, err := durable.Step(ctx, run, "one", func(context.Context) (int, error) { return 1, nil }); err != nil {
			return err
		}
		_, err := o.ForgetSteps(ctx, run.ID, "one")
		require.ErrorIs(t, err, store.ErrConflict)
		return run.Sleep(ctx, "long", time.Hour)
	}, "long")
	forgotten, err := o.ForgetSteps(t.Context(), id, "one")
	require.NoError(t, err)
	require.Equal(t, operate.Forgotten{Run: id, Steps: 1}, forgotten)
}
