package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// stepHooks notes what the hooks of steps are called with.
type stepHooks struct {
	starts []observe.StepStart
	ends   []observe.StepEnd
	parks  [][]observe.Park
}

func (s *stepHooks) hooks() observe.Hooks {
	return observe.Hooks{
		Step: func(ctx context.Context, start observe.StepStart) (context.Context, func(observe.StepEnd)) {
			s.starts = append(s.starts, start)
			return context.WithValue(ctx, hookKey{}, start.Name), func(end observe.StepEnd) { s.ends = append(s.ends, end) }
		},
		Execute: func(ctx context.Context, _ observe.ExecuteStart) (context.Context, func(observe.ExecuteEnd)) {
			return ctx, func(end observe.ExecuteEnd) { s.parks = append(s.parks, end.Parks) }
		},
	}
}

type hookKey struct{}

func TestHooksSeeEachExecutedStepAndWhyARunIsPutBack(t *testing.T) {
	var seen stepHooks
	hotel, tries := durable.StepAttempts(2, durable.Fixed(time.Hour)), 0
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(func(w *durable.Worker) {
			durable.Register(w, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
				_, err := durable.Step(ctx, run, "charge", func(ctx context.Context) (int, error) {
					require.Equal(t, "charge", ctx.Value(hookKey{}))
					return 1, nil
				})
				require.NoError(t, err)
				_, err = durable.Step(ctx, run, "hotel", new(counted).do(0, errBoom), hotel)
				if !durable.Final(err) {
					return err
				}
				_, err = durable.Step(ctx, run, "undo", func(context.Context) (int, error) {
					if tries++; tries == 1 {
						panic("undo")
					}
					return 1, nil
				})
				if err != nil {
					return err
				}
				_, err = durable.Receive[string](ctx, run, "approved", 0)
				return err
			})
		}, func(c *durable.WorkerConfig) { c.Hooks = seen.hooks() })
		receipt, err := fulfil.Enqueue(t.Context(), kit.Client, order{})
		require.NoError(t, err)
		kit.RunDue()
		kit.Advance(time.Hour)
		kit.RunDue()
		kit.Advance(time.Hour)
		kit.RunDue()
		_, err = fulfil.Send(t.Context(), kit.Client, receipt.ID, "approved", "eva")
		require.NoError(t, err)
		require.Equal(t, 1, kit.RunAll().Succeeded)
	})
	var names []string
	var results []observe.StepResult
	for i, start := range seen.starts {
		names, results = append(names, start.Name), append(results, seen.ends[i].Result)
		require.Equal(t, seen.ends[i].Result == observe.StepDone, seen.ends[i].Err == nil)
	}
	require.Equal(t, []string{"charge", "hotel", "hotel", "undo", "undo"}, names)
	require.Equal(t, []observe.StepResult{observe.StepDone, observe.StepTried, observe.StepFailed, observe.StepError, observe.StepDone}, results)
	require.Equal(t, 2, seen.starts[2].Try)
	require.ErrorIs(t, seen.ends[1].Err, errBoom)
	require.ErrorContains(t, seen.ends[3].Err, "panicked")
	require.Len(t, seen.parks, 4)
	require.Equal(t, "hotel", seen.parks[0][0].Step)
	require.Equal(t, store.StepTried, seen.parks[0][0].Kind)
	require.Empty(t, seen.parks[1], "it has failed")
	require.Equal(t, []observe.Park{{Step: "approved", Kind: store.StepInput, In: -1}}, seen.parks[2])
	require.Empty(t, seen.parks[3])
}
