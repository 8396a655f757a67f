package observe_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

type nameKey struct{}

// noting are hooks that write down when they are called, under a name.
func noting(lines *[]string, name string) observe.Hooks {
	note := func(line string) { *lines = append(*lines, name+" "+line) }
	return observe.Hooks{
		Enqueue: func(_ context.Context, start observe.EnqueueStart) (context.Context, func(observe.EnqueueEnd)) {
			start.Runs[0].Trace += name
			return nil, func(observe.EnqueueEnd) { note("enqueued") }
		},
		Execute: func(ctx context.Context, _ observe.ExecuteStart) (context.Context, func(observe.ExecuteEnd)) {
			within, _ := ctx.Value(nameKey{}).(string)
			note("executes within " + within)
			return context.WithValue(ctx, nameKey{}, within+name), func(observe.ExecuteEnd) { note("executed") }
		},
		Step: func(ctx context.Context, _ observe.StepStart) (context.Context, func(observe.StepEnd)) {
			within, _ := ctx.Value(nameKey{}).(string)
			note("steps within " + within)
			return context.WithValue(ctx, nameKey{}, within+name), func(observe.StepEnd) { note("stepped") }
		},
		StoreCalled: func(observe.StoreCall) { note("called") },
		RunSettled:  func(observe.RunVerdict) { note("settled") },
		RunLost:     func(observe.RunLoss) { note("lost") },
		RunFailed:   func(context.Context, observe.RunFailure) { note("failed") },
		Lock: lock.Hooks{
			Decided: func(lock.Decision) { note("decided") }, Ended: func(lock.End) { note("ended") },
			Called: func(lock.Call) { note("asked") }, Degraded: func(lock.Degradation) { note("degraded") },
		},
	}
}

// fire calls every hook once.
func fire(h observe.Hooks) (trace, within string) {
	runs := []store.NewRun{{}}
	_, enqueued := h.Enqueue(context.Background(), observe.EnqueueStart{Runs: runs})
	enqueued(observe.EnqueueEnd{})
	ctx, executed := h.Execute(context.Background(), observe.ExecuteStart{})
	_, stepped := h.Step(ctx, observe.StepStart{})
	stepped(observe.StepEnd{})
	executed(observe.ExecuteEnd{})
	h.StoreCalled(observe.StoreCall{})
	h.RunSettled(observe.RunVerdict{})
	h.RunLost(observe.RunLoss{})
	h.RunFailed(context.Background(), observe.RunFailure{})
	h.Lock.Decided(lock.Decision{})
	h.Lock.Ended(lock.End{})
	h.Lock.Called(lock.Call{})
	h.Lock.Degraded(lock.Degradation{Passed: time.Second})
	within, _ = ctx.Value(nameKey{}).(string)
	return runs[0].Trace, within
}

func TestJoinCallsBoth(t *testing.T) {
	t.Parallel()
	var lines []string
	trace, within := fire(observe.Join(noting(&lines, "a"), noting(&lines, "b")))
	require.Equal(t, "ab", trace)
	require.Equal(t, "ab", within)
	require.Equal(t, []string{"b enqueued", "a enqueued", "a executes within ", "b executes within a",
		"a steps within ab", "b steps within aba", "b stepped", "a stepped", "b executed", "a executed",
		"a called", "b called", "a settled", "b settled", "a lost", "b lost", "a failed", "b failed",
		"a decided", "b decided", "a ended", "b ended", "a asked", "b asked", "a degraded", "b degraded"}, lines)

	for _, one := range []observe.Hooks{observe.Join(noting(&lines, "a"), observe.Hooks{}), observe.Join(observe.Hooks{}, noting(&lines, "a"))} {
		lines = nil
		trace, within = fire(one)
		require.Equal(t, "a", trace)
		require.Equal(t, "a", within)
		require.Len(t, lines, 13)
	}
}

// A hook that Join forgets would never be called.
func TestJoinKnowsEveryHook(t *testing.T) {
	t.Parallel()
	var lines []string
	all, none := noting(&lines, "a"), observe.Hooks{}
	for _, v := range []reflect.Value{reflect.ValueOf(observe.Join(all, none)), reflect.ValueOf(observe.Join(all, none).Lock),
		reflect.ValueOf(observe.Join(all, all)), reflect.ValueOf(observe.Join(all, all).Lock)} {
		for i := range v.NumField() {
			require.False(t, v.Field(i).IsZero(), v.Type().Field(i).Name)
		}
	}
	require.True(t, reflect.ValueOf(observe.Join(none, none)).IsZero(), "what is nil costs nothing")
}

func TestAPanicOfOneDoesNotKeepTheOtherFromBeingCalled(t *testing.T) {
	t.Parallel()
	broken := observe.Hooks{
		Execute: func(context.Context, observe.ExecuteStart) (context.Context, func(observe.ExecuteEnd)) {
			panic("execute")
		},
		StoreCalled: func(observe.StoreCall) { panic("called") },
	}
	for _, order := range []func(a, b observe.Hooks) observe.Hooks{observe.Join, func(a, b observe.Hooks) observe.Hooks { return observe.Join(b, a) }} {
		var lines []string
		h := order(broken, noting(&lines, "a"))
		ctx, executed := h.Execute(t.Context(), observe.ExecuteStart{})
		require.Equal(t, "a", ctx.Value(nameKey{}))
		require.PanicsWithValue(t, "execute", func() { executed(observe.ExecuteEnd{}) })
		require.PanicsWithValue(t, "called", func() { h.StoreCalled(observe.StoreCall{}) })
		require.Equal(t, []string{"a executes within ", "a executed", "a called"}, lines)
	}
}
