package durabletest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// Performed is what one attempt has come to.
type Performed struct {
	Outcome  store.Outcome    // what the worker has settled: the kind, the delay, the error, the result; Took is left out
	Err      error            // what the handler returned; after a panic or an exit, the text of the outcome's error
	Record   durable.Record   // the run as stored after it, with its attempts
	Enqueued []durable.Record // the runs enqueued in the store meanwhile, in order
	Log      []string         // what the handler logged with Run.Log, as level=INFO msg=… key=value
	// Steps are the steps that the execution has recorded, in order: results, failed tries,
	// failures for good, sleeps and waits; not those that were stored before it. Values are as
	// they are stored, so a job with a codec has its own.
	Steps []store.StepRecord
	// Waits are those of the sleeps and waits at which the handler was parked.
	Waits []store.StepRecord
}

// Perform executes a handler once, as a worker does, and returns what it has
// come to: args go through JSON and back, the job's timeout holds, a panic is a
// failed attempt, and what the handler returned decides the outcome by the job's
// policy. Options change the run's policy: with durable.MaxAttempts(1) it is the
// last attempt. At and After have no place here.
//
// A handler that ignores its context is given up and fails the test when its
// timeout is over; one without a timeout is waited for until go test's own.
//
// It works in a test of Run, where time is virtual, and in any other, where a
// handler may talk to a network.
func Perform[A any](
	t testing.TB, job durable.Job[A], handler func(ctx context.Context, run *durable.Run[A]) error, args A, options ...durable.Option,
) Performed {
	t.Helper()
	return PerformOn(t, memory.New(memory.Config{}), job, handler, args, options...)
}

// PerformOn is Perform on a store of the test's own, where the handler's client
// enqueues or where the handler's tables are. The run is put on a queue that is
// named after it, so that no other worker takes it and no other run is executed;
// it stays in the store. Limits of the job hold: where other runs fill them, it waits.
func PerformOn[A any](
	t testing.TB, db durable.Store, job durable.Job[A], handler func(ctx context.Context, run *durable.Run[A]) error, args A,
	options ...durable.Option,
) Performed {
	t.Helper()
	return perform(t, setting{db: db}, job, handler, args, options...)
}

// PerformOccurrence is Perform for a run of a schedule's occurrence at an instant, in
// the zone of that instant's location (see store.RunInfo.Occurrence). It has no schedule.
func PerformOccurrence[A any](
	t testing.TB, at time.Time, job durable.Job[A], handler func(ctx context.Context, run *durable.Run[A]) error, args A,
	options ...durable.Option,
) Performed {
	t.Helper()
	return perform(t, setting{db: memory.New(memory.Config{}), occurrence: at}, job, handler, args, options...)
}

// setting is where a run is performed, and what comes before that.
type setting struct {
	db         durable.Store
	occurrence time.Time // zero: it is for none
	past       []Fact
}

func perform[A any](
	t testing.TB, in setting, job durable.Job[A], handler func(ctx context.Context, run *durable.Run[A]) error, args A, options ...durable.Option,
) Performed {
	t.Helper()
	run := job.New(args, options...)
	run.Queue = "perform-" + run.ID.String()
	p := newPerformance(t, in, run, func(ctx context.Context) error { return sendPast(ctx, in, job, run.ID) })
	p.past = recordedPast(t, in.past, job, run)
	outcome := performOnce(t, p, job, handler)
	record, err := in.db.Run(t.Context(), run.ID)
	if err != nil {
		t.Fatalf("perform: %v", err)
	}
	record.Occurrence = p.occursAt.Fixed()
	outcome.Took = 0 // outside of Run it is real time
	done := Performed{Outcome: outcome, Err: p.error(outcome), Record: record, Enqueued: since(t, in.db, run.ID), Log: p.logged(), Steps: p.executed()}
	if outcome.Kind == store.Snoozed {
		done.Waits = openWaits(&p.recorded)
	}
	return done
}

// performOnce executes the run of a performance once.
func performOnce[A any](t testing.TB, p *performance, job durable.Job[A], handler func(ctx context.Context, run *durable.Run[A]) error) store.Outcome {
	t.Helper()
	w := durable.NewWorker(p, p.workerConfig())
	durable.Register(w, job, func(ctx context.Context, run *durable.Run[A]) error {
		err := handler(ctx, run)
		p.returns(err)
		return err
	})
	return p.untilSettled(t, w)
}

// performance is the store of a worker that executes one run and does nothing
// else to the store.
type performance struct {
	durable.Store
	run     durable.NewRun
	enqueue func() error // stores the run, when its limits are declared

	occursAt store.ZonedTime // that the run is for
	past     store.RunSteps  // that the run has before it is executed

	settled chan store.Outcome
	refused chan error // why the run could not be stored

	mu       sync.Mutex
	returned bool
	err      error
	log      bytes.Buffer
	recorded store.RunSteps // when it was settled
}

// newPerformance prepares a performance; after is called when the run is stored.
func newPerformance(t testing.TB, in setting, run durable.NewRun, after func(context.Context) error) *performance {
	return &performance{
		Store: in.db, run: run, occursAt: store.ZonedTimeOf(in.occurrence), settled: make(chan store.Outcome, 1), refused: make(chan error, 1),
		enqueue: sync.OnceValue(func() error {
			_, err := durable.NewClient(in.db).Enqueue(t.Context(), run)
			if err != nil {
				return err
			}
			return after(t.Context())
		}),
	}
}

// Declare leaves no trace of the worker, except for the limits of the job, which hold
// for the run as for others.
func (p *performance) Declare(ctx context.Context, declaration store.Declaration) error {
	var err error
	if len(declaration.Limits) > 0 {
		err = p.Store.Declare(ctx, store.Declaration{Worker: declaration.Worker, Limits: declaration.Limits})
	}
	if err == nil {
		err = p.enqueue()
	}
	return p.reported(err)
}

// reported ends the performance with an error.
func (p *performance) reported(err error) error {
	if err != nil {
		select {
		case p.refused <- err:
		default:
		}
	}
	return err
}

// Claim says what the run is for, and gives it its past.
func (p *performance) Claim(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
	runs, err := p.Store.Claim(ctx, request)
	for i := range runs { // one at most
		runs[i].OccursAt = p.occursAt
		if err := p.reported(storePast(ctx, p.Store, store.Holder{Run: runs[i].ID, Claim: request.Claim}, &p.past)); err != nil {
			return nil, err
		}
	}
	return runs, err
}

// Materialize leaves the schedules to others.
func (p *performance) Materialize(context.Context, int, func(time.Time, store.Schedule) store.Decision) (store.MaterializeResult, error) {
	return store.MaterializeResult{Busy: true}, nil
}

// Reclaim leaves expired leases to others.
func (p *performance) Reclaim(ctx context.Context, request store.ReclaimRequest) (store.ReclaimResult, error) {
	request.Horizon = time.Unix(1, 0) // earlier than any lease
	return p.Store.Reclaim(ctx, request)
}

// Sweep leaves old runs to others.
func (p *performance) Sweep(context.Context, store.SweepRequest) (store.SweepResult, error) {
	return store.SweepResult{Busy: true}, nil
}

// Settle reports what has become of the run.
func (p *performance) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error) {
	verdicts, err := p.Store.Settle(ctx, settlements)
	if err != nil {
		return nil, err
	}
	for _, settlement := range settlements { // of one run at most
		if verdicts[0] == store.Deferred || !p.keepRecorded(ctx) {
			break
		}
		select {
		case p.settled <- landed(p.Store, settlement.Runs[0], verdicts[0]):
		default:
		}
	}
	return verdicts, nil
}

// keepRecorded reads what the run has recorded, and reports whether it could.
func (p *performance) keepRecorded(ctx context.Context) bool {
	recorded, err := store.StepsOf(ctx, p, p.run.ID)
	p.mu.Lock()
	p.recorded = recorded
	p.mu.Unlock()
	return p.reported(err) == nil
}

// executed are the steps that were not there before.
func (p *performance) executed() (steps []store.StepRecord) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, step := range p.recorded.Steps {
		if !slices.ContainsFunc(p.past.Steps, func(known store.StepRecord) bool { return known.Name == step.Name }) {
			steps = append(steps, step)
		}
	}
	return steps
}

func (p *performance) workerConfig() durable.WorkerConfig {
	began := time.Now()
	return durable.WorkerConfig{
		Name: "perform", Queues: []durable.Queue{{Name: p.run.Queue}}, MaxConcurrentRuns: 1, PollInterval: time.Second, DrainTimeout: -1,
		Elapsed: func() time.Duration { return time.Since(began) }, Process: new(durable.Process),
		Logger: slog.New(handlersOwn{slog.NewTextHandler(p, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: withoutRun})}),
		Retry:  durable.Exponential(5*time.Second, time.Hour),
	}
}

// run runs the worker until the run is settled.
func (p *performance) untilSettled(t testing.TB, w *durable.Worker) store.Outcome {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	var outcome store.Outcome
	select {
	case outcome = <-p.settled:
		cancel()
	case err := <-ended:
		t.Fatalf("perform: %v", err)
	case err := <-p.refused:
		cancel()
		t.Fatalf("perform: %v", errors.Join(err, <-ended))
	case <-time.After(366 * 24 * time.Hour): // of virtual time
		cancel()
		t.Errorf("perform: the run has not ended in a year")
	}
	if err := <-ended; err != nil {
		t.Fatalf("perform: %v:\n%s", err, handlerStacks())
	}
	return outcome
}

func (p *performance) returns(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.returned, p.err = true, err
}

func (p *performance) error(outcome store.Outcome) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.returned && outcome.Error != "" {
		return errors.New(outcome.Error)
	}
	return p.err
}

// Write records a line of the log.
func (p *performance) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(line)
}

func (p *performance) logged() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.FieldsFunc(p.log.String(), func(r rune) bool { return r == '\n' })
}

// handlersOwn lets through what was not logged by the worker itself.
type handlersOwn struct{ slog.Handler }

// Handle drops the worker's records, which package durable creates.
func (h handlersOwn) Handle(ctx context.Context, record slog.Record) error {
	frame, _ := runtime.CallersFrames([]uintptr{record.PC}).Next()
	if strings.HasPrefix(frame.Function, "github.com/durable-worker/durable-worker/durable.") ||
		strings.HasPrefix(frame.Function, "github.com/durable-worker/durable-worker/heartbeat.") {
		return nil
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs keeps the filter.
func (h handlersOwn) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handlersOwn{h.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the filter.
func (h handlersOwn) WithGroup(name string) slog.Handler {
	return handlersOwn{h.Handler.WithGroup(name)}
}

// withoutRun leaves out what is the same in every line, or different in every
// test.
func withoutRun(groups []string, attr slog.Attr) slog.Attr {
	if len(groups) == 0 && slices.Contains([]string{slog.TimeKey, "run", "job", "attempt"}, attr.Key) {
		return slog.Attr{}
	}
	return attr
}

// since lists the runs with larger ids, in order.
func since(t testing.TB, from Source, id durable.RunID) []durable.Record {
	t.Helper()
	var records []durable.Record
	for filter := (durable.Filter{Limit: 200}); ; {
		page, err := from.Runs(t.Context(), filter)
		if err != nil {
			t.Fatalf("runs: %v", err)
		}
		for _, record := range page.Runs {
			if bytes.Compare(record.ID[:], id[:]) <= 0 {
				slices.Reverse(records)
				return records
			}
			records = append(records, record)
		}
		filter.Before = page.Next
	}
}
