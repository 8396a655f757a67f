package otlp_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/durable-worker/durable-worker/internal/otlp"
)

// provided is a provider as the variables say.
func provided(t *testing.T, sampler, arg string) trace.Tracer {
	t.Helper()
	t.Setenv("OTEL_TRACES_SAMPLER", sampler) // the SDK reads these itself
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", arg)
	server := httptest.NewServer(&collector{statuses: []int{200}})
	t.Cleanup(server.Close)
	settings, err := otlp.FromEnvironment(of(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL, "OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": arg}))
	require.NoError(t, err)
	p, err := otlp.Provider(t.Context(), settings, otlp.Service{Name: "test"}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Shutdown(context.Background())) })
	return p.Tracer("test")
}

// parent is the context of a trace of another process.
func parent(sampled bool) (context.Context, trace.SpanContext) {
	flags := trace.TraceFlags(0).WithSampled(sampled)
	of := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: flags, Remote: true})
	return trace.ContextWithSpanContext(context.Background(), of), of
}

// What is decided here is what the SDK decides.
func TestWhichTracesAreTaken(t *testing.T) {
	const all = 20_000
	for _, c := range []struct {
		sampler, arg string
		least, most  int  // of all that begin here
		without      bool // a parent that is not taken has children that are
		with         bool // a parent that is taken has children that are
	}{
		{"", "", all, all, false, true},
		{"parentbased_always_on", "", all, all, false, true},
		{"always_on", "", all, all, true, true},
		{"always_off", "", 0, 0, false, false},
		{"parentbased_always_off", "", 0, 0, false, true},
		{" ParentBased_TraceIDRatio ", "0.25", all / 5, all / 10 * 3, false, true},
		{"parentbased_traceidratio", "0", 0, 0, false, true},
		{"parentbased_traceidratio", "1", all, all, false, true},
		{"parentbased_traceidratio", "", all, all, false, true},
		{"traceidratio", "1", all, all, true, true},
	} {
		tracer := provided(t, c.sampler, c.arg)
		sampled := func(ctx context.Context, options ...trace.SpanStartOption) (bool, trace.SpanContext) {
			within, span := tracer.Start(ctx, "x", options...)
			defer span.End()
			require.Equal(t, span.SpanContext(), trace.SpanContextFromContext(within), "the context has the span")
			require.True(t, span.SpanContext().IsValid(), c)
			require.Equal(t, span.IsRecording(), span.SpanContext().IsSampled(), c)
			return span.IsRecording(), span.SpanContext()
		}
		taken, seen := 0, map[trace.TraceID]bool{}
		for range all {
			yes, of := sampled(t.Context())
			seen[of.TraceID()] = true
			if c.most < all && c.most > 0 {
				decision := sdk.TraceIDRatioBased(0.25).ShouldSample(sdk.SamplingParameters{ParentContext: t.Context(), TraceID: of.TraceID()}).Decision
				require.Equal(t, decision == sdk.RecordAndSample, yes, of.TraceID())
			}
			if yes {
				taken++
			}
		}
		require.Len(t, seen, all, "each has an id of its own")
		require.True(t, c.least <= taken && taken <= c.most, "%v: %d of %d", c, taken, all)
		for _, has := range []bool{false, true} {
			ctx, above := parent(has)
			yes, of := sampled(ctx)
			require.Equal(t, map[bool]bool{false: c.without, true: c.with}[has], yes, c)
			require.Equal(t, above.TraceID(), of.TraceID(), c)
			require.NotEqual(t, above.SpanID(), of.SpanID(), c)
			require.False(t, of.IsRemote(), c)
			yes, of = sampled(ctx, trace.WithNewRoot())
			require.NotEqual(t, above.TraceID(), of.TraceID(), c)
			require.True(t, c.least > 0 || !yes, c)
			require.True(t, c.most < all || yes, c)
		}
	}
}

// A span that is not taken costs its context and nothing more.
func TestATraceThatIsNotTakenCostsLittle(t *testing.T) {
	tracer := provided(t, "parentbased_traceidratio", "0")
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithNewRoot()}
	each := testing.AllocsPerRun(1000, func() { tracer.Start(context.Background(), "x", options...) })
	require.LessOrEqual(t, each, 2.0)
}

// A tracer may be asked before a span has a name, and what begins below a trace that was
// taken is another one if it says so.
func TestRootsAreDecidedBeforeTheirSpans(t *testing.T) {
	tracer := provided(t, "parentbased_traceidratio", "0.25")
	asked, is := tracer.(interface {
		Root(ctx context.Context) (context.Context, bool)
	})
	require.True(t, is)
	taken := 0
	for range 2_000 {
		within, yes := asked.Root(t.Context())
		if !yes {
			require.True(t, trace.SpanContextFromContext(within).IsValid())
			_, child := tracer.Start(within, "child")
			require.False(t, child.IsRecording())
			require.Equal(t, trace.SpanContextFromContext(within).TraceID(), child.SpanContext().TraceID())
			continue
		}
		taken++
		within, span := tracer.Start(within, "root", trace.WithNewRoot())
		require.True(t, span.IsRecording())
		_, other := tracer.Start(within, "other", trace.WithNewRoot())
		require.NotEqual(t, span.SpanContext().TraceID(), other.SpanContext().TraceID())
	}
	require.InDelta(t, 500, taken, 150)
	off := provided(t, "always_off", "")
	_, is = off.(interface {
		Root(ctx context.Context) (context.Context, bool)
	})
	require.False(t, is, "the SDK decides for each span")
}
