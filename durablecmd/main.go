package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/term"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd/builtin"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/observe/logs"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// App is what the function given to Main works with.
type App struct {
	Worker *durable.Worker // takes handlers and schedules
	Client *durable.Client // for handlers that enqueue
	Store  durable.Store
	Locks  lock.Locks     // named locks: of DURABLE_REDIS_URL, or of the store; nil for the command config
	Tally  *observe.Tally // what /metrics shows; give Tally.Hooks().Lock to your lockers
	Logger *slog.Logger   // also slog.Default()

	builtin builtin.Config
	config  Config
	mux     *http.ServeMux
	feed    *feed   // nil: no events are passed on
	faults  []error // of Handle
	onStop  []func(context.Context) error
}

// OnStop has a function called when the worker has stopped and before the
// store is closed, the last one given first. Its error is logged and makes the
// program exit with 1. Its context ends after ten seconds.
func (a *App) OnStop(stop func(ctx context.Context) error) { a.onStop = append(a.onStop, stop) }

// Main runs the program and exits. The function registers handlers and
// schedules; its error ends the program. See the package for when it is called.
// The jobs are those that the command enqueue is to know before a worker has
// declared them; what a worker declares counts for more.
func Main(setup func(ctx context.Context, app *App) error, jobs ...durable.JobInfo) {
	start(Program{Setup: setup, Jobs: jobs})
}

func start(own Program) {
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	p := program{
		name: filepath.Base(os.Args[0]), setup: own.Setup, jobs: own.Jobs, seams: own.seams(), args: os.Args[1:], environ: os.Environ(),
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		signals: signals, oneSignal: oneSignal, exit: os.Exit, terminal: terminalOf, now: time.Now, setDefault: slog.SetDefault, setTracing: otel.SetTracerProvider,
		brokenPipes: outliveBrokenPipes,
	}
	os.Exit(p.run(context.Background()))
}

// screen is the size of a terminal in characters.
type screen struct {
	width, height int
}

// program is one start of the program; everything it touches outside is here.
type program struct {
	name           string
	setup          func(ctx context.Context, app *App) error
	seams          seams
	args           []string
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
	signals        <-chan os.Signal
	oneSignal      time.Duration // the const of this name, zero in most tests
	exit           func(code int)
	terminal       func(w io.Writer) (size screen, ok bool)
	jobs           []durable.JobInfo
	path           string       // of the command, once the arguments are read
	service        bool         // it serves until it is stopped, and does not wait for the reader of its log
	lines          *logs.Writer // of the log of a service; nil: stderr
	brokenPipes    func()       // keeps a write to a broken pipe from ending the process; nil: it does not
	setDefault     func(*slog.Logger)
	setTracing     func(trace.TracerProvider)
	redact         *operate.Redaction // nil: nothing is hidden
	changed        func(store.Change) // passes what operators change on as events; nil: none are sent
	wide           bool               // tables are not made to fit
	now            func() time.Time   // only to tell people how long ago something was
}

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	exitEnded  = 3 // the run or batch that was waited for has ended without success
	exitLate   = 4 // it has not ended in time
)

// run does what the arguments say and returns the exit code.
func (p *program) run(ctx context.Context) int {
	defer p.finishLog(finishWithin)
	verb, err := p.parse()
	if err == nil && verb != nil {
		err = verb(ctx)
	}
	if err == nil {
		return exitDone
	}
	p.complain(err)
	return exitCode(err)
}

// exitCode is the exit code for an error.
func exitCode(err error) int {
	if _, ended := errors.AsType[*durable.EndedError](err); ended {
		return exitEnded
	}
	if _, ended := errors.AsType[*operate.BatchEndedError](err); ended {
		return exitEnded
	}
	switch codeOf(err) {
	case codeUsage, codeConfig, operate.Invalid:
		return exitUsage
	case codeTimedOut:
		return exitLate
	default:
		return exitFailed
	}
}

// leaveWithin is how long a command has to end after a signal.
const leaveWithin = 5 * time.Second

// untilSignal is the context of a command that any signal ends. The program exits
// when the command then continues all the same: after a while, or a second signal.
func (p *program) untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case s := <-p.signals:
			cancel(fmt.Errorf("%w: %s", errInterrupted, s))
			p.leave(ended)
		case <-ended:
		}
	}()
	return ctx, func() { close(ended); cancel(nil); <-stopped }
}

// leave exits unless the command has ended in time.
func (p *program) leave(ended <-chan struct{}) {
	late := time.NewTimer(leaveWithin)
	defer late.Stop()
	p.passOver(ended)
	select {
	case <-ended:
		return
	case <-late.C:
	case <-p.signals:
	}
	p.complain(fmt.Errorf("%w, but the command did not stop in time: exiting", errInterrupted))
	p.finishLog(hurryWithin)
	p.exit(exitFailed)
}

var errInterrupted = errors.New("interrupted")

// terminalOf reports whether w is a terminal that can be redrawn.
func terminalOf(w io.Writer) (screen, bool) {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(file.Fd())) {
		return screen{}, false
	}
	width, height, err := term.GetSize(int(file.Fd()))
	return screen{width, height}, err == nil
}
