package durablecmd

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd/builtin"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/observe/metrics"
	"github.com/durable-worker/durable-worker/operate"
)

// Start is a start of the program with everything outside it replaced.
type Start struct {
	Setup          func(ctx context.Context, app *App) error
	Middleware     []durable.Middleware
	Hooks          observe.Hooks
	Settings       any
	Commands       []Command
	Connect        ConnectHook
	Version        string
	SetDefault     func(*slog.Logger)
	Args           []string
	Env            []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Signals        <-chan os.Signal
	OneSignal      time.Duration // how long signals are taken for one
	Exit           func(code int)
	Now            func() time.Time
	Width, Height  int // of the terminal at Stdout; zero: it is none
}

// Run runs the program and returns its exit code.
func (s Start) Run(ctx context.Context) int {
	p := program{
		name: "durable-worker", setup: s.Setup, seams: seams{s.Middleware, s.Hooks, s.Settings, s.Commands, s.Connect, s.Version}, setDefault: s.SetDefault, args: s.Args, environ: s.Env,
		stdin: s.Stdin, stdout: s.Stdout, stderr: s.Stderr, signals: s.Signals, oneSignal: s.OneSignal, exit: s.Exit, now: time.Now,
		terminal: func(w io.Writer) (screen, bool) {
			return screen{s.Width, s.Height}, w == s.Stdout && s.Width > 0
		},
	}
	if s.Now != nil {
		p.now = s.Now
	}
	p.jobs = append(p.jobs, builtin.Infos()...)
	return p.run(ctx)
}

// What the tests look at from outside.
var (
	Printable   = printable
	EscapedJSON = escapedJSON
)

// ListenBeside listens for health checks at the default address, which is taken.
func ListenBeside(ctx context.Context, taken string, logger *slog.Logger) (net.Listener, error) {
	return listen(ctx, Config{HTTPAddr: taken}, logger)
}

// Sampling is what a scrape shows of the database.
func Sampling(read func(context.Context) (operate.Sample, error), now func() time.Duration) func(context.Context) *metrics.Database {
	return (&sampler{read: read, now: now}).latest
}

// ProbingLocks is what health checks and scrapes show of the store of the locks.
func ProbingLocks(probe func(context.Context) (lock.Health, error), now func() time.Duration) func(context.Context) (lock.Health, *metrics.LockProbe) {
	p := &lockProbe{probe: probe, now: now}
	return func(ctx context.Context) (lock.Health, *metrics.LockProbe) {
		found := p.latest(ctx)
		return found.health, found.metrics()
	}
}

// Accepting is the listener of health checks around another one.
func Accepting(listener net.Listener, logger *slog.Logger) net.Listener {
	return newBounded(listener, maxProbes, "health", logger)
}

// OutliveBrokenPipes does to this process what the commands that serve do to theirs.
func OutliveBrokenPipes() { outliveBrokenPipes() }

// Watching turns signals into what they ask for, until ctx ends.
func Watching(ctx context.Context, signals <-chan os.Signal, logger *slog.Logger, stop func()) {
	(&program{signals: signals}).watch(ctx, logger, newHealth(""), func(error) { stop() })
}
