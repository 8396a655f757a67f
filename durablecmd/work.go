package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/oklog/run"
	"go.opentelemetry.io/otel/trace"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/otlp"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/observe/tracing"
	"github.com/durable-worker/durable-worker/store/backend"
)

// workVerb runs the worker.
type workVerb struct{}

// stopTimeout bounds what OnStop functions may take together.
const stopTimeout = 10 * time.Second

// Run serves until it is signalled. Actors stop in no particular order, so whatever
// needs an order is nested: a signal only ends the worker's context, the worker drains
// inside its own actor, and the health listener answers until it has drained.
func (workVerb) Run(ctx context.Context, p *program) error {
	p.service = true
	config, logger, err := p.config("info")
	if err != nil {
		return err
	}
	listener, err := listen(ctx, config, logger)
	if err != nil {
		return logged(logger, err)
	}
	board, err := p.listenDashboard(ctx, config, logger)
	if err != nil {
		return logged(logger, err)
	}
	var group run.Group
	var worked, served, shown error // the group keeps the first error only
	health := newHealth(p.seams.versionOf())
	health.hear(p.lines, config.LeaseDuration)
	p.makeDefault(logger)

	stop, stopWork := context.WithCancelCause(ctx)
	defer stopWork(nil)
	t := tenure{name: p.name, setup: p.setup, seams: p.seams, config: config, logger: logger, health: health, board: board, setTracing: p.setTracing}
	group.Add(func() error { worked = t.run(stop); return worked }, func(err error) { stopWork(err) })

	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	group.Add(func() error { p.watch(watching, logger, health, stopWork); return nil }, func(error) { stopWatching() })

	if listener != nil {
		logger.Info("health listener ready", "event", "health.ready", "addr", listener.Addr().String())
		serving, stopServing := context.WithCancel(ctx)
		defer stopServing()
		group.Add(func() error { served = serve(serving, listener, health, logger); return served }, func(error) { stopServing() })
	}
	if board != nil {
		logger.Info("dashboard ready", "event", "dashboard.ready", "addr", board.listener.Addr().String())
		showing, stopShowing := context.WithCancel(ctx)
		defer stopShowing()
		group.Add(func() error { shown = board.serve(showing); return shown }, func(error) { stopShowing() })
	}
	_ = group.Run() // it is one of the three
	return logged(logger, errors.Join(worked, served, shown))
}

// oneSignal is how long after a signal others are taken for the same: what starts
// a program may signal both the process and the group that it is in, as timeout
// does, or pass on what a terminal has sent to all.
const oneSignal = 100 * time.Millisecond

// watch turns signals into what they ask for, until ctx ends: the first stops,
// the second hurries, the third exits. It does that first and logs it afterwards.
func (p *program) watch(ctx context.Context, logger *slog.Logger, health *health, stop context.CancelCauseFunc) {
	for count := 1; ; count++ {
		var s os.Signal
		select {
		case <-ctx.Done():
			return
		case s = <-p.signals:
		}
		switch count {
		case 1:
			stop(fmt.Errorf("%w: %s", errInterrupted, s))
			logger.Info("signal received, draining; a second one ends the drain immediately", "event", "signal.drain", "signal", s.String())
		case 2:
			health.hurry()
			logger.Warn("second signal received, cancelling handlers; a third one exits immediately", "event", "signal.hurry", "signal", s.String())
		default:
			logger.Error("third signal received, exiting; the leases of the running runs expire", "event", "signal.exit", "signal", s.String())
			p.finishLog(hurryWithin)
			p.exit(exitFailed)
			return
		}
		p.passOver(ctx.Done())
	}
}

// passOver drops the signals that are one with the last, unless it is over.
func (p *program) passOver(over <-chan struct{}) {
	if p.oneSignal == 0 {
		return
	}
	same := time.NewTimer(p.oneSignal)
	defer same.Stop()
	for {
		select {
		case <-p.signals:
		case <-same.C:
			return
		case <-over:
			return
		}
	}
}

// tenure is the worker's part of a process: what it opens it also closes.
type tenure struct {
	name   string // of the program
	setup  func(ctx context.Context, app *App) error
	seams  seams
	config Config
	logger *slog.Logger
	health *health
	board  *board // nil: none

	setTracing func(trace.TracerProvider) // of the process; nil: not to be set
}

func (t *tenure) run(ctx context.Context) error {
	t.logger.Info("worker starting", "event", "worker.starting", "version", t.seams.versionOf(), "database", backend.Redact(t.config.DatabaseURL),
		"queues", t.config.Queues.String(), "worker", t.config.WorkerName)
	store, err := connector{name: t.name, config: t.config, logger: t.logger, hook: t.seams.connect}.openPatiently(ctx)
	if err != nil {
		if ctx.Err() != nil {
			t.logger.Info("stopped while waiting for the database", "event", "worker.stopped_early")
			return nil
		}
		return err
	}
	defer store.Close()
	if backend.Ephemeral(t.config.DatabaseURL) {
		t.logger.Warn("runs are kept in memory and end with this process", "event", "store.ephemeral")
	}
	locks, closeLocks, err := openLocks(ctx, store, t.config)
	if err != nil {
		return err
	}
	defer closeLocks(t.logger)
	feed, err := newFeed(t.config, t.seams.versionOf(), t.logger)
	if err != nil {
		return err
	}
	with, endTraces := t.traced(ctx)
	defer endTraces()
	with.hooks = feed.into(with.hooks)
	app := newApp(store, t.config, with, t.logger)
	app.Locks, app.feed, app.mux = locks, feed, t.health.mux
	app.builtin.Trace = tracing.Inject
	if err = app.setUp(ctx, t.setup); err == nil {
		shown, closeShown := t.forOperators(ctx, store)
		defer closeShown()
		defer feed.begin(ctx, app.Worker)()
		defer t.board.open(shown, locks, feed.changes())()
		t.health.watch(app)
		err = app.Worker.Run(ctx)
	}
	return errors.Join(err, app.stop(ctx))
}

// flushTimeout bounds how long a worker that stops waits for its last spans to leave.
const flushTimeout = 5 * time.Second

// traced adds hooks that export spans, if the variables OTEL_* ask for it, and returns
// what ends the export. Variables that are wrong are logged: they may be meant for
// other programs, and keep no worker from its work.
func (t *tenure) traced(ctx context.Context) (with seams, end func()) {
	with, end = t.seams, func() {}
	err := t.config.tracesFault
	if t.config.traces == nil && err == nil {
		return with, end
	}
	var provider *otlp.TracerProvider
	if err == nil {
		provider, err = otlp.Provider(ctx, t.config.traces, otlp.Service{Name: t.name, Version: t.seams.versionOf(), Instance: t.config.WorkerName}, t.logger)
	}
	if err != nil {
		t.logger.Warn("traces are not exported", "event", "trace.misconfigured", "error", err)
		return with, end
	}
	if t.setTracing != nil {
		t.setTracing(provider)
	}
	with.hooks = observe.Join(tracing.Hooks(tracing.Config{
		Provider: provider, Calls: t.config.details(traceCalls), ErrorText: t.config.details(traceErrors),
	}), with.hooks)
	return with, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			t.logger.Warn("the last spans may be lost", "event", "trace.flush_failed", "error", err)
		}
	}
}

// forOperators is the store that the dashboard shows. On PostgreSQL it has connections of
// its own, so that people who look do not keep the worker's enqueues waiting. Without
// them it shows the worker's store: a dashboard never keeps a worker from its work.
func (t *tenure) forOperators(ctx context.Context, own backend.Store) (shown backend.Store, done func()) {
	if t.board == nil || backend.Embedded(t.config.DatabaseURL) {
		return own, func() {}
	}
	config := t.config
	config.DatabaseMaxConns = 0
	shown, err := connector{name: t.name, config: config, logger: t.logger, hook: t.seams.connect, operators: true}.open(ctx, served)
	if err != nil {
		t.logger.Warn("the dashboard has no connections of its own", "event", "dashboard.shares_connections", "error", err)
		return own, func() {}
	}
	return shown, shown.Close
}

func newApp(store durable.Store, config Config, with seams, logger *slog.Logger) *App {
	worker := with.into(config.Worker())
	worker.Logger = logger
	worker.Tally = observe.NewTally()
	client := durable.NewClient(store).WithHooks(observe.Join(worker.Tally.Hooks(), worker.Hooks))
	return &App{Worker: durable.NewWorker(store, worker), Client: client, Store: store, Tally: worker.Tally, Logger: logger,
		builtin: config.builtin(), config: config, mux: http.NewServeMux()}
}

// stop calls the OnStop functions, the last one given first.
func (a *App) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	var faults []error
	for i := len(a.onStop) - 1; i >= 0; i-- {
		if err := a.onStop[i](ctx); err != nil {
			faults = append(faults, fmt.Errorf("stop: %w", err))
		}
	}
	return errors.Join(faults...)
}

// loggedError has been logged already.
type loggedError struct{ err error }

func (e *loggedError) Error() string { return e.err.Error() }

func (e *loggedError) Unwrap() error { return e.err }

// logged logs what ended the worker, so that the log of a service is of one
// form to its last line.
func logged(logger *slog.Logger, err error) error {
	if err == nil {
		return nil
	}
	logger.Error("stopped by an error", "event", "worker.failed", "error", err)
	return &loggedError{err}
}
