package otlp

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"strings"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// ratio decides which of the traces that begin here are taken, as the SDK's
// TraceIDRatioBased does, which costs more than all else here: those
// whose last eight bytes, halved, are less.
type ratio uint64

// rootsOf is the share of the traces that begin here, if OTEL_TRACES_SAMPLER leaves the
// others to their parents and may leave any out; nil: the provider's own sampler decides
// for each span.
func rootsOf(lookup func(string) string) *ratio {
	none := ratio(0)
	switch strings.ToLower(strings.TrimSpace(lookup("OTEL_TRACES_SAMPLER"))) {
	case "parentbased_always_off":
		return &none
	case "parentbased_traceidratio":
		share, err := strconv.ParseFloat(strings.TrimSpace(lookup("OTEL_TRACES_SAMPLER_ARG")), 64)
		if err == nil && share >= 0 && share < 1 {
			taken := ratio(share * (1 << 63))
			return &taken
		}
	}
	return nil
}

func (r ratio) takes(id trace.TraceID) bool {
	return binary.BigEndian.Uint64(id[8:])>>1 < uint64(r)
}

// TracerProvider decides whether a trace is taken before anything is made of its span: one
// that is not taken costs its ids and a context. The decisions are those of the SDK.
type TracerProvider struct {
	*sdk.TracerProvider

	roots *ratio
}

// Tracer makes spans.
func (p *TracerProvider) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	made := p.TracerProvider.Tracer(name, options...)
	if p.roots == nil {
		return made
	}
	return &sampling{Tracer: made, roots: *p.roots}
}

// sampling is a tracer that asks the SDK for the spans that are taken.
type sampling struct {
	trace.Tracer

	roots ratio
}

// Start begins a span, or puts into the context that there is none.
func (s *sampling) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	parent := trace.SpanContextFromContext(ctx)
	if !parent.IsValid() {
		return s.begin(ctx, name, options)
	}
	config := trace.NewSpanStartConfig(options...)
	switch {
	case config.NewRoot():
		return s.begin(ctx, name, options)
	case parent.IsSampled():
		return s.Tracer.Start(ctx, name, options...)
	default:
		return without(ctx, parent.WithSpanID(spanID()).WithRemote(false))
	}
}

// begin begins a trace, unless Root has begun it.
func (s *sampling) begin(ctx context.Context, name string, options []trace.SpanStartOption) (context.Context, trace.Span) {
	if _, decided := ctx.Value(taken{}).(trace.TraceID); !decided {
		within, yes := s.Root(ctx)
		if ctx = within; !yes {
			return ctx, trace.SpanFromContext(ctx)
		}
	}
	within, span := s.Tracer.Start(ctx, name, options...)
	return context.WithValue(within, taken{}, nil), span // what begins in it is another trace
}

// Root decides about a trace that begins in the context, before anything else is known of its
// first span: the context that it returns says that there is none, or is to be passed to Start.
func (s *sampling) Root(ctx context.Context) (within context.Context, yes bool) {
	id := traceID()
	if s.roots.takes(id) {
		return context.WithValue(ctx, taken{}, id), true
	}
	return trace.ContextWithSpan(ctx, &untaken{Span: noop.Span{}, trace: id, id: spanID()}), false
}

// untaken is the first span of a trace that is not taken: its ids, which what is begun
// below it must know, and nothing more, as there is one for most runs.
type untaken struct {
	trace.Span // that does nothing

	trace trace.TraceID
	id    trace.SpanID
}

// SpanContext returns the ids.
func (u *untaken) SpanContext() trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: u.trace, SpanID: u.id})
}

// without is a context below a trace that is not taken.
func without(ctx context.Context, of trace.SpanContext) (context.Context, trace.Span) {
	ctx = trace.ContextWithSpanContext(ctx, of)
	return ctx, trace.SpanFromContext(ctx)
}

// taken is where a context has the id of a trace that begins and is taken.
type taken struct{}

// ids gives a trace the id for which it was taken.
type ids struct{}

func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if id, decided := ctx.Value(taken{}).(trace.TraceID); decided {
		return id, spanID()
	}
	return traceID(), spanID()
}

func (ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return spanID() }

func traceID() (id trace.TraceID) {
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())   //nolint:gosec // ids, and no secrets
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64()|1) //nolint:gosec // never all zeros
	return id
}

func spanID() (id trace.SpanID) {
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1) //nolint:gosec // never all zeros
	return id
}
