// Package tracing makes OpenTelemetry spans of what clients and workers do, so
// that a trace goes from the request that enqueued a run to the end of the run.
//
// Give Hooks to workers and clients:
//
//	hooks := tracing.Hooks(tracing.Config{})
//	client := durable.NewClient(store).WithHooks(hooks)
//	worker := durable.NewWorker(store, durable.WorkerConfig{Hooks: hooks})
//
// The package knows the interface of OpenTelemetry and not its SDK: spans go where
// your TracerProvider sends them. A program made with package durablecmd needs
// neither: it exports when OTEL_EXPORTER_OTLP_ENDPOINT is set.
//
// An enqueue is a span of the kind PRODUCER below the span of its context, and an
// attempt is one of the kind CONSUMER, whose context your handler gets: what it
// enqueues, or asks of other services, belongs to the same trace. Names and
// attributes are those of OpenTelemetry's conventions for messaging, and
// durable.*. A span never has args or a result, and no text of an error unless
// Config.ErrorText says so.
package tracing
