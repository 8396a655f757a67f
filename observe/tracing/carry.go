package tracing

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// The names of the W3C's headers, as propagation.TraceContext writes them.
const (
	headerParent = "traceparent"
	headerState  = "tracestate"
)

// Inject sets the headers traceparent and tracestate for the span of a context, such
// as that of a handler. Without a span it sets nothing.
func Inject(ctx context.Context, header http.Header) {
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
}

// Extract returns a context with the span that a request's traceparent names, so that
// what is enqueued with the context belongs to the trace of the request. A
// middleware for HTTP servers, such as otelhttp, makes it unnecessary.
func Extract(ctx context.Context, header http.Header) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(header))
}

// textOf is the span of a context as the Trace of a run.
func textOf(ctx context.Context) string {
	var written carrier
	propagation.TraceContext{}.Inject(ctx, &written)
	return store.TraceOf(written.parent, written.state)
}

// contextOf reads the Trace of a run; one that is none, such as that of another
// tracer, is an invalid SpanContext.
func contextOf(text string) trace.SpanContext {
	if text == "" {
		return trace.SpanContext{}
	}
	parent, state, _ := strings.Cut(text, ";")
	read := propagation.TraceContext{}.Extract(context.Background(), &carrier{parent, state})
	return trace.SpanContextFromContext(read)
}

// carrier is the W3C's two headers, for a propagator.
type carrier struct{ parent, state string }

// Get returns one of them; others are empty.
func (c *carrier) Get(header string) string {
	switch header {
	case headerParent:
		return c.parent
	case headerState:
		return c.state
	default:
		return ""
	}
}

// Set sets one of them.
func (c *carrier) Set(header, value string) {
	switch header {
	case headerParent:
		c.parent = value
	case headerState:
		c.state = value
	}
}

// Keys names them.
func (c *carrier) Keys() []string { return []string{headerParent, headerState} }

// attempt names one execution of a run.
type attempt struct {
	id    store.RunID
	fence lease.Fence
}

func keyOf(run *store.RunInfo) attempt { return attempt{run.ID, run.Fence} }

// returned is an attempt whose handler has returned and whose outcome is not stored
// yet.
type returned struct {
	within trace.SpanContext
	at     time.Time
}

// mostSettling bounds the attempts that are remembered. An attempt whose outcome is
// never stored here, because its lease was lost, is never asked for.
const mostSettling = 20_000

// settling remembers attempts until their outcomes are stored, in two generations of
// which the older is forgotten.
type settling struct {
	mu           sync.Mutex
	young, older map[attempt]returned
}

func (s *settling) add(key attempt, of returned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.young == nil || len(s.young) >= mostSettling/2 {
		s.young, s.older = map[attempt]returned{}, s.young
	}
	s.young[key] = of
}

func (s *settling) take(key attempt) (returned, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, generation := range []map[attempt]returned{s.young, s.older} {
		if of, ok := generation[key]; ok {
			delete(generation, key)
			return of, true
		}
	}
	return returned{}, false
}
