package tracing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/observe/tracing"
	"github.com/durable-worker/durable-worker/store"
)

// all finds the spans of a name.
func all(spans tracetest.SpanStubs, name string) (found tracetest.SpanStubs) {
	for _, s := range spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

func TestEachExecutedStepHasASpanBelowItsAttempt(t *testing.T) {
	spans, provider, hooks := recorder(tracing.Config{})
	order := durable.NewJob[string]("order")
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(func(w *durable.Worker) {
			durable.Register(w, order, func(ctx context.Context, run *durable.Run[string]) error {
				_, err := durable.Step(ctx, run, "charge", func(ctx context.Context) (string, error) {
					_, span := provider.Tracer("test").Start(ctx, "POST /charges")
					defer span.End()
					return "canary", nil
				})
				if err != nil {
					return err
				}
				_, err = durable.First(ctx, run, "decision", durable.WaitInput("approved", 0), durable.WaitSleep("deadline", time.Hour))
				return err
			})
		}, func(c *durable.WorkerConfig) { c.Hooks = hooks })
		_, err := order.Enqueue(t.Context(), kit.Client, "")
		require.NoError(t, err)
		require.Equal(t, 1, kit.RunAll().Succeeded)
	})
	taken := spans.GetSpans()
	attempts := all(taken, "execute order")
	require.Len(t, attempts, 2)
	step := named(t, taken, "step order")
	require.Equal(t, attempts[0].SpanContext.SpanID(), step.Parent.SpanID())
	require.Equal(t, step.SpanContext.SpanID(), named(t, taken, "POST /charges").Parent.SpanID())
	require.Equal(t, codes.Unset, step.Status.Code)
	require.Subset(t, attributesOf(step), map[string]string{"durable.step.name": "charge", "durable.step.try": "1", "durable.outcome": "done", "durable.job": "order"})
	require.NotContains(t, attributesOf(step), "error.type")

	require.Empty(t, attempts[1].Events, "it was not parked")
	events := map[string]map[string]string{}
	for _, event := range attempts[0].Events {
		require.Equal(t, "parked", event.Name)
		about := attributesOf(tracetest.SpanStub{Attributes: event.Attributes})
		events[about["durable.step.name"]] = about
	}
	require.Len(t, events, 2)
	require.Equal(t, "input", events["approved"]["durable.park.kind"])
	require.NotContains(t, events["approved"], "durable.park.seconds", "it has no end")
	require.Equal(t, "sleep", events["deadline"]["durable.park.kind"])
	require.Contains(t, events["deadline"], "durable.park.seconds")
}

func TestAStepThatFailsIsAFailedSpan(t *testing.T) {
	for _, one := range []struct {
		result observe.StepResult
		want   string
		config tracing.Config
		text   string
	}{
		{observe.StepTried, "tried", tracing.Config{}, ""},
		{observe.StepFailed, "failed", tracing.Config{ErrorText: true}, "no rooms"},
		{observe.StepError, "error", tracing.Config{}, ""},
	} {
		spans, _, hooks := recorder(one.config)
		ctx, end := hooks.Execute(t.Context(), observe.ExecuteStart{Run: run()})
		_, stepEnd := hooks.Step(ctx, observe.StepStart{Run: run(), Name: "hotel", Try: 3})
		stepEnd(observe.StepEnd{Result: one.result, Err: errors.New("no rooms")})
		end(observe.ExecuteEnd{Outcome: store.Outcome{Kind: store.Snoozed}})
		step := named(t, spans.GetSpans(), "step mail")
		require.Equal(t, codes.Error, step.Status.Code)
		require.Equal(t, one.text, step.Status.Description)
		require.Subset(t, attributesOf(step), map[string]string{"durable.step.name": "hotel", "durable.step.try": "3", "durable.outcome": one.want, "error.type": "step " + one.want})
	}
}

func TestAStepOfAnAttemptThatIsNotTracedHasNoSpan(t *testing.T) {
	spans, _, hooks := recorder(tracing.Config{})
	ctx, end := hooks.Step(t.Context(), observe.StepStart{Run: run(), Name: "hotel", Try: 1})
	require.Equal(t, t.Context(), ctx)
	require.Nil(t, end)
	require.Empty(t, spans.GetSpans())
}
