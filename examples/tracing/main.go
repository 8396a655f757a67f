// Command tracing joins a web request with the run that it enqueued, and with the run
// that the handler of that one enqueued: one trace of OpenTelemetry. The spans are
// printed; yours go to a collector.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe/tracing"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

func order() durable.Job[int]   { return durable.NewJob[int]("order") }
func receipt() durable.Job[int] { return durable.NewJob[int]("receipt") }

// shop serves POST /orders. A middleware such as otelhttp begins the span for you.
func shop(client *durable.Client, spans trace.Tracer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		ctx := tracing.Extract(r.Context(), r.Header)
		ctx, span := spans.Start(ctx, "POST /orders", trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		if _, err := order().Enqueue(ctx, client, 42); err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
	return mux
}

func main() {
	path := flag.String("db", "tracing.db", "database file")
	flag.Parse()
	if err := run(context.Background(), *path, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path string, out io.Writer) error {
	store, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	kept := tracetest.NewInMemoryExporter() // otlptracehttp.New(ctx) sends them to a collector
	provider := sdk.NewTracerProvider(sdk.WithSyncer(kept))
	hooks := tracing.Hooks(tracing.Config{Provider: provider})
	client := durable.NewClient(store).WithHooks(hooks)

	working, stop := context.WithCancel(ctx)
	defer stop()
	w := durable.NewWorker(store, durable.WorkerConfig{Hooks: hooks})
	durable.Register(w, order(), func(ctx context.Context, run *durable.Run[int]) error {
		_, err := receipt().Enqueue(ctx, client, run.Args) // ctx has the span of this attempt
		return err
	})
	durable.Register(w, receipt(), func(context.Context, *durable.Run[int]) error { stop(); return nil })

	server := httptest.NewServer(shop(client, provider.Tracer("shop")))
	defer server.Close()
	if err := buy(ctx, server.URL); err != nil {
		return err
	}
	if err := w.Run(working); err != nil {
		return err
	}
	show(out, kept.GetSpans(), trace.SpanID{}, 0)
	return nil
}

// buy asks as a browser or another service does that has a trace already.
func buy(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/orders", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// show prints the spans below one, as a tree; the first line has no parent here.
func show(out io.Writer, spans tracetest.SpanStubs, parent trace.SpanID, depth int) {
	for _, s := range spans {
		if s.Parent.SpanID() == parent || depth == 0 && s.Parent.IsRemote() && s.SpanKind == trace.SpanKindServer {
			fmt.Fprintf(out, "%s %s%s\n", s.SpanContext.TraceID(), strings.Repeat("  ", depth), s.Name)
			show(out, spans, s.SpanContext.SpanID(), depth+1)
		}
	}
}
