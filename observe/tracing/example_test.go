package tracing_test

import (
	"context"
	"fmt"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe/tracing"
	"github.com/durable-worker/durable-worker/store/memory"
)

// The attempt belongs to the trace that enqueued the run.
func ExampleHooks() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	spans := tracetest.NewInMemoryExporter() // yours sends them to a collector
	hooks := tracing.Hooks(tracing.Config{Provider: sdk.NewTracerProvider(sdk.WithSyncer(spans))})

	store, mail := memory.New(memory.Config{}), durable.NewJob[string]("mail")
	if _, err := mail.Enqueue(ctx, durable.NewClient(store).WithHooks(hooks), "ada@example.com"); err != nil {
		fmt.Println(err)
	}
	worker := durable.NewWorker(store, durable.WorkerConfig{Hooks: hooks})
	durable.Register(worker, mail, func(context.Context, *durable.Run[string]) error { stop(); return nil })
	if err := worker.Run(ctx); err != nil {
		fmt.Println(err)
	}
	all := spans.GetSpans()
	for _, s := range all {
		fmt.Println(s.Name, "in the trace of the enqueue:", s.SpanContext.TraceID() == all[0].SpanContext.TraceID())
	}
	// Output:
	// enqueue mail in the trace of the enqueue: true
	// execute mail in the trace of the enqueue: true
}
