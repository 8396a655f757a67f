package tracing

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// Config says which spans there are. The zero value is a good choice.
type Config struct {
	// Provider makes the spans. Default: otel.GetTracerProvider(), asked when
	// Hooks is called.
	Provider trace.TracerProvider
	// ChildWithin is how long after a run was enqueued an attempt still belongs to
	// the trace that enqueued it. One that begins later has a trace of its own,
	// with a link to the other. Default: 5 minutes; a negative value: never.
	ChildWithin time.Duration
	// Calls adds a span for each claim that gets runs, with links to up to 32 of the
	// traces that enqueued them, and one below each attempt for the time until its
	// outcome is stored.
	Calls bool
	// ErrorText adds the text of errors and the stack of a panic to spans, up to 4 KiB
	// each. Texts of errors may hold what args hold.
	ErrorText bool
}

// scope is the name of the instrumentation.
const scope = "github.com/durable-worker/durable-worker/observe/tracing"

// schema is the version of the conventions that the attributes follow.
const schema = "https://opentelemetry.io/schemas/1.43.0"

// tracer makes the spans.
type tracer struct {
	config    Config
	spans     trace.Tracer
	roots     roots                   // nil: the provider decides when a span begins
	names     names                   // of the spans of attempts
	stepNames names                   // of the spans of steps
	begins    []trace.SpanStartOption // of an attempt that begins a trace; made once, since many are not taken
	settling  settling
}

// roots is a Tracer that decides whether a trace is taken before its first span has a name
// and attributes. The context that Root returns is for Start if it is.
type roots interface {
	Root(ctx context.Context) (within context.Context, taken bool)
}

// names are the names of spans, by job.
type names struct {
	verb string
	made sync.Map
}

func (n *names) of(job string) string {
	if name, known := n.made.Load(job); known {
		return name.(string)
	}
	name, _ := n.made.LoadOrStore(job, n.verb+" "+job)
	return name.(string)
}

// Hooks returns hooks that make spans. They do not wait for an exporter, if the
// provider does not: a span processor that batches has the spans leave later.
func Hooks(config Config) observe.Hooks {
	if config.Provider == nil {
		config.Provider = otel.GetTracerProvider()
	}
	if config.ChildWithin == 0 {
		config.ChildWithin = 5 * time.Minute
	}
	t := &tracer{config: config, names: names{verb: "execute"}, stepNames: names{verb: "step"}, spans: config.Provider.Tracer(scope, trace.WithSchemaURL(schema)),
		begins: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithNewRoot()}}
	t.roots, _ = t.spans.(roots)
	hooks := observe.Hooks{Enqueue: t.enqueue, Execute: t.execute, Step: t.step}
	if config.Calls {
		hooks.StoreCalled, hooks.RunSettled = t.storeCalled, t.runSettled
	}
	return hooks
}

// enqueue begins a span below the caller's, and gives it to the runs that have no
// trace yet.
func (t *tracer) enqueue(ctx context.Context, start observe.EnqueueStart) (context.Context, func(observe.EnqueueEnd)) {
	ctx, span := t.spans.Start(ctx, enqueueName(start.Runs), trace.WithSpanKind(trace.SpanKindProducer))
	if span.IsRecording() {
		span.SetAttributes(enqueueAttributes(start.Runs)...)
	}
	if text := textOf(ctx); text != "" {
		for i := range start.Runs {
			if start.Runs[i].Trace == "" {
				start.Runs[i].Trace = text
			}
		}
	}
	return ctx, func(end observe.EnqueueEnd) {
		if end.Err != nil {
			t.fail(span, "enqueue failed", end.Err.Error(), "")
		}
		span.End()
	}
}

// execute begins the span of an attempt. Of one that is not taken nothing is made.
func (t *tracer) execute(ctx context.Context, start observe.ExecuteStart) (context.Context, func(observe.ExecuteEnd)) {
	run := &start.Run
	options := t.begins
	if created := contextOf(run.Trace); created.IsValid() {
		options = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(trace.Link{SpanContext: created})}
		if time.Since(run.CreatedAt) <= t.config.ChildWithin {
			ctx = trace.ContextWithRemoteSpanContext(ctx, created)
		} else {
			options = append(options, trace.WithNewRoot())
		}
	} else if t.roots != nil {
		within, taken := t.roots.Root(ctx)
		if ctx = within; !taken {
			return ctx, nil
		}
	}
	ctx, span := t.spans.Start(ctx, t.names.of(run.Job), options...)
	if !span.IsRecording() {
		return ctx, nil
	}
	span.SetAttributes(executeAttributes(run)...)
	return ctx, t.executed(span, keyOf(run))
}

// executed ends the span of an attempt.
func (t *tracer) executed(span trace.Span, of attempt) func(observe.ExecuteEnd) {
	return func(end observe.ExecuteEnd) {
		outcome := end.Outcome
		span.SetAttributes(keyOutcome.String(outcome.Kind.String()))
		for i := range end.Parks {
			span.AddEvent("parked", trace.WithAttributes(parkAttributes(&end.Parks[i])...))
		}
		if outcome.Kind == store.Failure || outcome.Kind == store.Death {
			t.fail(span, reasonOf(outcome), outcome.Error, outcome.Stack)
		}
		at := time.Now()
		span.End(trace.WithTimestamp(at))
		if t.config.Calls && span.SpanContext().IsSampled() {
			t.settling.add(of, returned{within: span.SpanContext(), at: at})
		}
	}
}

// step begins the span of a step that is executed, below the one that is current where the handler
// called it. Of an attempt that is not taken nothing is made.
func (t *tracer) step(ctx context.Context, start observe.StepStart) (context.Context, func(observe.StepEnd)) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, nil
	}
	ctx, span := t.spans.Start(ctx, t.stepNames.of(start.Run.Job), trace.WithSpanKind(trace.SpanKindInternal))
	if !span.IsRecording() {
		return ctx, nil
	}
	span.SetAttributes(stepAttributes(&start)...)
	return ctx, func(end observe.StepEnd) {
		span.SetAttributes(keyOutcome.String(end.Result.String()))
		if end.Result != observe.StepDone {
			text := ""
			if end.Err != nil {
				text = end.Err.Error()
			}
			t.fail(span, "step "+end.Result.String(), text, "")
		}
		span.End()
	}
}

// storeCalled makes the span of a claim that got runs.
func (t *tracer) storeCalled(call observe.StoreCall) {
	if call.Verb != "claim" || call.Runs == 0 && call.Err == nil {
		return
	}
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(time.Now().Add(-call.Took)), trace.WithNewRoot(),
		trace.WithAttributes(keySystem.String(system), keyOperation.String("claim"), keyOperationType.String("receive"), keyBatch.Int(call.Runs)),
	}
	for _, text := range call.Traces {
		if created := contextOf(text); created.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: created}))
		}
	}
	_, span := t.spans.Start(context.Background(), "claim", options...)
	if call.Err != nil {
		t.fail(span, "claim failed", call.Err.Error(), "")
	}
	span.End()
}

// runSettled makes the span of the time from the end of an attempt until its outcome
// was stored, below that of the attempt.
func (t *tracer) runSettled(settled observe.RunVerdict) {
	of, ok := t.settling.take(keyOf(&settled.Run))
	if !ok {
		return
	}
	ctx := trace.ContextWithSpanContext(context.Background(), of.within)
	_, span := t.spans.Start(ctx, "settle "+settled.Run.Job, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(of.at),
		trace.WithAttributes(append(runAttributes(&settled.Run), keyOperation.String("settle"), keyOperationType.String("settle"),
			keyOutcome.String(settled.Outcome.String()), keyVerdict.String(settled.Verdict.String()))...))
	if settled.Verdict == store.Rejected {
		t.fail(span, "lease lost", "the lease was lost before the outcome could be stored", "")
	}
	span.End()
}
