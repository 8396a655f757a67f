package tracing

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// The attributes. What OpenTelemetry's conventions for messaging name is called as
// there; the others begin with durable.
const (
	keySystem        = attribute.Key("messaging.system")
	keyDestination   = attribute.Key("messaging.destination.name")
	keyOperation     = attribute.Key("messaging.operation.name")
	keyOperationType = attribute.Key("messaging.operation.type")
	keyMessage       = attribute.Key("messaging.message.id")
	keyBatch         = attribute.Key("messaging.batch.message_count")
	keyErrorType     = attribute.Key("error.type")
	keyExceptionText = attribute.Key("exception.message")
	keyStack         = attribute.Key("exception.stacktrace")

	keyJob         = attribute.Key("durable.job")
	keySchedule    = attribute.Key("durable.schedule")
	keyOutcome     = attribute.Key("durable.outcome")
	keyVerdict     = attribute.Key("durable.verdict")
	keyAttempt     = attribute.Key("durable.run.attempt")
	keyMaxAttempts = attribute.Key("durable.run.max_attempts")
	keyCrashes     = attribute.Key("durable.run.crash_count")
	keyFence       = attribute.Key("durable.run.fence")
	keyWait        = attribute.Key("durable.run.wait")
	keyStep        = attribute.Key("durable.step.name")
	keyStepTry     = attribute.Key("durable.step.try")
	keyParked      = attribute.Key("durable.park.kind")
	keyParkedFor   = attribute.Key("durable.park.seconds")
)

const (
	system  = "durable"
	maxText = 4 << 10 // bytes of an error and of a stack

	attributesMost = 12 // of a span of one run; more would cost it memory once more
)

// enqueueName is "enqueue JOB", or "enqueue" for runs of several jobs.
func enqueueName(runs []store.NewRun) string {
	for i := range runs {
		if runs[i].Job != runs[0].Job {
			return "enqueue"
		}
	}
	return "enqueue " + runs[0].Job
}

// enqueueAttributes leave out a job and a queue that the runs do not share.
func enqueueAttributes(runs []store.NewRun) []attribute.KeyValue {
	all := []attribute.KeyValue{keySystem.String(system), keyOperation.String("enqueue"), keyOperationType.String("send")}
	job, queue := true, true
	for i := range runs {
		job, queue = job && runs[i].Job == runs[0].Job, queue && runs[i].Queue == runs[0].Queue
	}
	if job {
		all = append(all, keyJob.String(runs[0].Job))
	}
	if queue {
		all = append(all, keyDestination.String(runs[0].Queue))
	}
	if len(runs) > 1 {
		return append(all, keyBatch.Int(len(runs)))
	}
	return append(all, keyMessage.String(runs[0].ID.String()))
}

// runAttributes are those of every span of one run.
func runAttributes(run *store.RunInfo) []attribute.KeyValue {
	return append(make([]attribute.KeyValue, 0, attributesMost),
		keySystem.String(system), keyDestination.String(run.Queue), keyMessage.String(run.ID.String()), keyJob.String(run.Job),
		keyAttempt.Int(run.Attempt), keyFence.Int64(int64(run.Fence)),
	)
}

// executeAttributes are those of an attempt.
func executeAttributes(run *store.RunInfo) []attribute.KeyValue {
	all := append(runAttributes(run), keyOperation.String("execute"), keyOperationType.String("process"),
		keyMaxAttempts.Int(run.MaxAttempts), keyCrashes.Int(run.CrashCount), keyWait.Float64(max(time.Since(run.DueAt), 0).Seconds()))
	if run.Schedule != "" {
		all = append(all, keySchedule.String(run.Schedule))
	}
	return all
}

// stepAttributes are those of the execution of a step. Names of steps are bounded in length and not in
// number, so they are no part of the span's name.
func stepAttributes(start *observe.StepStart) []attribute.KeyValue {
	return append(runAttributes(&start.Run), keyOperation.String("step"), keyOperationType.String("process"),
		keyStep.String(start.Name), keyStepTry.Int(start.Try))
}

// parkAttributes are those of the event that a run is put back because of a wait.
func parkAttributes(park *observe.Park) []attribute.KeyValue {
	all := []attribute.KeyValue{keyStep.String(park.Step), keyParked.String(park.Kind.String())}
	if park.In >= 0 {
		all = append(all, keyParkedFor.Float64(park.In.Seconds()))
	}
	return all
}

// reasonOf says in a word how an attempt failed.
func reasonOf(outcome store.Outcome) string {
	if outcome.Stack != "" {
		return "panic"
	}
	return outcome.Kind.String()
}

// fail marks a span as failed. The text is kept only if the configuration says so.
func (t *tracer) fail(span trace.Span, reason, text, stack string) {
	span.SetAttributes(keyErrorType.String(reason))
	if !t.config.ErrorText {
		span.SetStatus(codes.Error, "")
		return
	}
	text = storable.Clip(text, maxText)
	span.SetStatus(codes.Error, text)
	about := []attribute.KeyValue{keyExceptionText.String(text)}
	if stack != "" {
		about = append(about, keyStack.String(storable.Clip(stack, maxText)))
	}
	span.AddEvent("exception", trace.WithAttributes(about...))
}
