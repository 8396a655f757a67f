package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/observe/tracing"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// recorder keeps spans in memory, and makes the hooks that produce them.
func recorder(config tracing.Config) (*tracetest.InMemoryExporter, trace.TracerProvider, observe.Hooks) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	config.Provider = provider
	return spans, provider, tracing.Hooks(config)
}

// named finds the span of a name, of which there is one.
func named(t *testing.T, spans tracetest.SpanStubs, name string) tracetest.SpanStub {
	t.Helper()
	var found tracetest.SpanStubs
	for _, s := range spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	require.Len(t, found, 1, name)
	return found[0]
}

func attributesOf(s tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// A request enqueues a run, whose handler enqueues another one: one trace.
func TestOneTraceFromARequestToTheLastRun(t *testing.T) {
	t.Parallel()
	spans, provider, hooks := recorder(tracing.Config{Calls: true})
	engine := memory.New(memory.Config{})
	client := durable.NewClient(engine).WithHooks(hooks)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	order, receipt := durable.NewJob[string]("order"), durable.NewJob[string]("receipt")
	w := durable.NewWorker(engine, durable.WorkerConfig{Hooks: hooks})
	durable.Register(w, order, func(ctx context.Context, _ *durable.Run[string]) error {
		_, err := receipt.Enqueue(ctx, client, "canary-2")
		return err
	})
	durable.Register(w, receipt, func(_ context.Context, run *durable.Run[string]) error {
		defer stop()
		return run.SetResult("canary-3")
	})

	request, span := provider.Tracer("test").Start(ctx, "POST /orders", trace.WithSpanKind(trace.SpanKindServer))
	_, err := order.Enqueue(request, client, "canary-1")
	require.NoError(t, err)
	span.End()
	require.NoError(t, w.Run(ctx))

	all := spans.GetSpans()
	parents := map[string]string{"enqueue order": "POST /orders", "execute order": "enqueue order", "settle order": "execute order",
		"enqueue receipt": "execute order", "execute receipt": "enqueue receipt", "settle receipt": "execute receipt"}
	kinds := map[string]trace.SpanKind{"enqueue": trace.SpanKindProducer, "execute": trace.SpanKindConsumer, "settle": trace.SpanKindClient}
	for name, parent := range parents {
		child, above := named(t, all, name), named(t, all, parent)
		require.Equal(t, above.SpanContext.SpanID(), child.Parent.SpanID(), name)
		require.Equal(t, span.SpanContext().TraceID(), child.SpanContext.TraceID(), name)
		verb, job, _ := strings.Cut(name, " ")
		require.Equal(t, kinds[verb], child.SpanKind, name)
		require.Equal(t, codes.Unset, child.Status.Code, name)
		require.Equal(t, job, attributesOf(child)["durable.job"], name)
	}
	executed := named(t, all, "execute order")
	require.Len(t, executed.Links, 1)
	require.Equal(t, named(t, all, "enqueue order").SpanContext.SpanID(), executed.Links[0].SpanContext.SpanID(), "it links to what created the run")
	var linked []trace.SpanID
	for _, s := range all {
		if s.Name == "claim" {
			require.False(t, s.Parent.IsValid())
			require.NotEqual(t, span.SpanContext().TraceID(), s.SpanContext.TraceID())
			for _, l := range s.Links {
				linked = append(linked, l.SpanContext.SpanID())
			}
		}
	}
	require.Contains(t, linked, named(t, all, "enqueue order").SpanContext.SpanID(), "a claim links to what created its runs")
	require.NotContains(t, fmt.Sprintf("%+v", all), "canary", "neither args nor results are in spans")
}

// run is what hooks see of a run in these tests.
func run() store.RunInfo {
	return store.RunInfo{ID: store.NewRunID(), Job: "mail", Queue: "slow", Attempt: 2, MaxAttempts: 5, CrashCount: 1, Fence: 7,
		DueAt: time.Now().Add(-time.Second), CreatedAt: time.Now().Add(-2 * time.Second)}
}

// execute calls the hook for an attempt with an outcome.
func execute(hooks observe.Hooks, run store.RunInfo, outcome store.Outcome) {
	_, end := hooks.Execute(context.Background(), observe.ExecuteStart{Run: run})
	end(observe.ExecuteEnd{Outcome: outcome})
}

func TestAttributesFollowTheConventions(t *testing.T) {
	t.Parallel()
	spans, _, hooks := recorder(tracing.Config{})
	r := run()
	execute(hooks, r, store.Outcome{Kind: store.Success})
	one := store.NewRun{ID: r.ID, Job: "mail", Queue: "slow", Args: []byte(`"canary"`)}
	for _, runs := range [][]store.NewRun{{one}, {one, {ID: store.NewRunID(), Job: "letter", Queue: "slow"}}} {
		_, end := hooks.Enqueue(t.Context(), observe.EnqueueStart{Runs: runs})
		end(observe.EnqueueEnd{})
	}
	all := spans.GetSpans()
	attempt := attributesOf(named(t, all, "execute mail"))
	require.Contains(t, attempt, "durable.run.wait")
	delete(attempt, "durable.run.wait")
	require.Equal(t, map[string]string{
		"messaging.system": "durable", "messaging.destination.name": "slow", "messaging.message.id": r.ID.String(),
		"messaging.operation.name": "execute", "messaging.operation.type": "process", "durable.job": "mail", "durable.outcome": "success",
		"durable.run.attempt": "2", "durable.run.max_attempts": "5", "durable.run.crash_count": "1", "durable.run.fence": "7",
	}, attempt)
	require.Equal(t, map[string]string{
		"messaging.system": "durable", "messaging.destination.name": "slow", "messaging.message.id": r.ID.String(),
		"messaging.operation.name": "enqueue", "messaging.operation.type": "send", "durable.job": "mail",
	}, attributesOf(named(t, all, "enqueue mail")))
	require.Equal(t, map[string]string{
		"messaging.system": "durable", "messaging.destination.name": "slow", "messaging.batch.message_count": "2",
		"messaging.operation.name": "enqueue", "messaging.operation.type": "send",
	}, attributesOf(named(t, all, "enqueue")))
}

func TestAFailureIsAnErrorWithoutItsText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		outcome store.Outcome
		reason  string
		status  codes.Code
	}{
		{store.Outcome{Kind: store.Failure, Error: "canary"}, "failure", codes.Error},
		{store.Outcome{Kind: store.Death, Error: "canary"}, "dead", codes.Error},
		{store.Outcome{Kind: store.Failure, Error: "canary", Stack: "canary"}, "panic", codes.Error},
		{store.Outcome{Kind: store.Snoozed}, "", codes.Unset},
		{store.Outcome{Kind: store.HandedBack}, "", codes.Unset},
		{store.Outcome{Kind: store.Cancellation, Error: "canary"}, "", codes.Unset},
	} {
		spans, _, hooks := recorder(tracing.Config{})
		execute(hooks, run(), c.outcome)
		s := named(t, spans.GetSpans(), "execute mail")
		require.Equal(t, c.status, s.Status.Code, c.outcome.Kind)
		require.Equal(t, c.reason, attributesOf(s)["error.type"])
		require.Equal(t, c.outcome.Kind.String(), attributesOf(s)["durable.outcome"])
		require.NotContains(t, fmt.Sprintf("%+v", s), "canary")
	}
	spans, _, hooks := recorder(tracing.Config{ErrorText: true})
	execute(hooks, run(), store.Outcome{Kind: store.Failure, Error: "no such address" + strings.Repeat("x", 9000), Stack: "main.go:7"})
	s := named(t, spans.GetSpans(), "execute mail")
	require.Len(t, s.Status.Description, 4096)
	require.Equal(t, "exception", s.Events[0].Name)
	require.True(t, slices.Contains(s.Events[0].Attributes, attribute.String("exception.stacktrace", "main.go:7")))
}

func TestAnEnqueueThatFails(t *testing.T) {
	t.Parallel()
	spans, _, hooks := recorder(tracing.Config{})
	client := durable.NewClient(memory.New(memory.Config{})).WithHooks(hooks)
	_, err := durable.NewJob[int]("mail", durable.OnQueue("no queue")).Enqueue(t.Context(), client, 1)
	require.ErrorIs(t, err, store.ErrInvalid)
	s := named(t, spans.GetSpans(), "enqueue mail")
	require.Equal(t, codes.Error, s.Status.Code)
	require.Equal(t, "enqueue failed", attributesOf(s)["error.type"])
}

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// An attempt long after its run was enqueued has a trace of its own, and a link.
func TestALateAttemptLinksToWhatCreatedIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		within  time.Duration
		age     time.Duration
		isChild bool
	}{
		{"soon", 0, time.Minute, true}, {"late", 0, 6 * time.Minute, false},
		{"within an hour", time.Hour, 6 * time.Minute, true}, {"never", -1, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			spans, _, hooks := recorder(tracing.Config{ChildWithin: c.within})
			r := run()
			r.Trace, r.CreatedAt = parent+";vendor=1", time.Now().Add(-c.age)
			execute(hooks, r, store.Outcome{Kind: store.Success})
			s := named(t, spans.GetSpans(), "execute mail")
			require.Equal(t, c.isChild, s.SpanContext.TraceID().String() == "4bf92f3577b34da6a3ce929d0e0e4736")
			require.Equal(t, c.isChild, s.Parent.IsValid())
			require.Len(t, s.Links, 1)
			require.Equal(t, "00f067aa0ba902b7", s.Links[0].SpanContext.SpanID().String())
			require.Equal(t, "vendor=1", s.Links[0].SpanContext.TraceState().String())
		})
	}
}

// A run of a schedule, and one whose trace is none of the W3C's, begins a trace,
// whatever the context of the worker has.
func TestARunOfAScheduleBeginsATrace(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "7", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"} {
		spans, provider, hooks := recorder(tracing.Config{})
		within, span := provider.Tracer("test").Start(t.Context(), "the worker's program")
		r := run()
		r.Trace, r.Schedule = text, "nightly"
		_, end := hooks.Execute(within, observe.ExecuteStart{Run: r})
		end(observe.ExecuteEnd{Outcome: store.Outcome{Kind: store.Success}})
		s := named(t, spans.GetSpans(), "execute mail")
		require.False(t, s.Parent.IsValid(), text)
		require.Empty(t, s.Links, text)
		require.NotEqual(t, span.SpanContext().TraceID(), s.SpanContext.TraceID())
		require.Equal(t, "nightly", attributesOf(s)["durable.schedule"])
	}
}

// A trace that a program has set itself stays; tracestate goes along where there is room.
func TestTheTraceOfARun(t *testing.T) {
	t.Parallel()
	_, _, hooks := recorder(tracing.Config{})
	enqueue := func(state string, run store.NewRun) string {
		ctx := tracing.Extract(t.Context(), http.Header{"Traceparent": {parent}, "Tracestate": {state}})
		runs := []store.NewRun{run}
		_, end := hooks.Enqueue(ctx, observe.EnqueueStart{Runs: runs})
		end(observe.EnqueueEnd{Err: errors.New("lost")})
		return runs[0].Trace
	}
	require.Equal(t, "mine", enqueue("", store.NewRun{Trace: "mine"}))
	require.Regexp(t, "^00-4bf92f3577b34da6a3ce929d0e0e4736-[0-9a-f]{16}-01$", enqueue("", store.NewRun{}))
	require.Regexp(t, "^00-4bf92f3577b34da6a3ce929d0e0e4736-[0-9a-f]{16}-01;vendor=1$", enqueue("vendor=1", store.NewRun{}))
	long := "a=" + strings.Repeat("x", 250) + ",b=" + strings.Repeat("y", 250)
	require.Regexp(t, "^00-4bf92f3577b34da6a3ce929d0e0e4736-[0-9a-f]{16}-01$", enqueue(long, store.NewRun{}))
}

// A provider that makes no spans passes the caller's trace on.
func TestWithoutAProviderTheTraceOfTheCallerGoesOn(t *testing.T) {
	t.Parallel()
	hooks := tracing.Hooks(tracing.Config{})
	require.Nil(t, hooks.StoreCalled, "what is off is not called")
	require.Nil(t, hooks.RunSettled)
	runs := []store.NewRun{{}}
	_, end := hooks.Enqueue(tracing.Extract(t.Context(), http.Header{"Traceparent": {parent}}), observe.EnqueueStart{Runs: runs})
	end(observe.EnqueueEnd{})
	require.Equal(t, parent, runs[0].Trace)
	r := run()
	r.Trace = parent
	ctx, ended := hooks.Execute(t.Context(), observe.ExecuteStart{Run: r})
	require.Nil(t, ended, "what is not recorded has no end")
	header := http.Header{}
	tracing.Inject(ctx, header)
	require.Equal(t, parent, header.Get("Traceparent"))
}

// An outcome that the store refuses is an error of the settle span.
func TestARefusedOutcome(t *testing.T) {
	t.Parallel()
	spans, _, hooks := recorder(tracing.Config{Calls: true})
	r := run()
	execute(hooks, r, store.Outcome{Kind: store.Success})
	hooks.RunSettled(observe.RunVerdict{Run: r, Outcome: store.Success, Verdict: store.Rejected})
	hooks.RunSettled(observe.RunVerdict{Run: r, Outcome: store.Success, Verdict: store.Rejected})
	hooks.StoreCalled(observe.StoreCall{Verb: "claim", Err: errors.New("canary")})
	hooks.StoreCalled(observe.StoreCall{Verb: "claim"})
	hooks.StoreCalled(observe.StoreCall{Verb: "renew", Runs: 1})
	all := spans.GetSpans()
	settled := named(t, all, "settle mail")
	require.Equal(t, codes.Error, settled.Status.Code)
	require.Equal(t, "lease lost", attributesOf(settled)["error.type"])
	require.Equal(t, codes.Error, named(t, all, "claim").Status.Code)
	require.NotContains(t, fmt.Sprintf("%+v", all), "canary")
	require.Len(t, all, 3, "neither an empty poll nor a heartbeat is a span")
}

// A schedule's occurrence begins a trace.
func TestAnOccurrenceBeginsATrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		spans, _, hooks := recorder(tracing.Config{})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		engine, report, mail := memory.New(memory.Config{}), durable.NewJob[int]("report"), durable.NewJob[int]("mail")
		client := durable.NewClient(engine).WithHooks(hooks)
		w := durable.NewWorker(engine, durable.WorkerConfig{Hooks: hooks})
		durable.Register(w, report, func(ctx context.Context, _ *durable.Run[int]) error {
			defer stop()
			_, err := mail.Enqueue(ctx, client, 1)
			return err
		})
		durable.AddSchedule(w, "hourly", report, 1, durable.Every(time.Hour))
		require.NoError(t, w.Run(ctx))
		began, sent := named(t, spans.GetSpans(), "execute report"), named(t, spans.GetSpans(), "enqueue mail")
		require.False(t, began.Parent.IsValid())
		require.Equal(t, "hourly", attributesOf(began)["durable.schedule"])
		require.Equal(t, began.SpanContext.SpanID(), sent.Parent.SpanID())
	})
}
