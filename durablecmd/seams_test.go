package durablecmd_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/observe"
)

func TestAProgramHasMiddlewareAndHooks(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal, 1)
	job := durable.NewJob[string]("greet")
	var seen []string
	var enqueued, executed atomic.Int32
	hooks := observe.Hooks{
		Enqueue: func(ctx context.Context, start observe.EnqueueStart) (context.Context, func(observe.EnqueueEnd)) {
			enqueued.Add(int32(len(start.Runs)))
			start.Runs[0].Trace = "of the program"
			return ctx, nil
		},
		Execute: func(ctx context.Context, _ observe.ExecuteStart) (context.Context, func(observe.ExecuteEnd)) {
			executed.Add(1)
			return ctx, nil
		},
	}
	e := executeWith(t, durablecmd.Start{
		Env: file(t, "DURABLE_POLL_INTERVAL=20ms"), Args: []string{"work"}, Signals: signals, Hooks: hooks,
		Middleware: []durable.Middleware{func(ctx context.Context, run durable.RunInfo, next func(context.Context) error) error {
			seen = append(seen, run.Job+" "+run.Trace)
			defer func() { signals <- syscall.SIGTERM }()
			return next(ctx)
		}},
		Setup: func(ctx context.Context, app *durablecmd.App) error {
			durable.Register(app.Worker, job, func(context.Context, *durable.Run[string]) error { return nil })
			_, err := job.Enqueue(ctx, app.Client, "world")
			return err
		},
	})
	require.Zero(t, e.code, e.stderr)
	require.Equal(t, []string{"greet of the program"}, seen)
	require.Equal(t, int32(1), enqueued.Load())
	require.Equal(t, int32(1), executed.Load())

	e = executeWith(t, durablecmd.Start{Env: file(t), Args: []string{"config"}, Setup: stock, Middleware: []durable.Middleware{nil}})
	require.NotZero(t, e.code)
	require.Contains(t, e.stdout+e.stderr, "middleware 0 is nil")
}

// ownSettings are a program's own.
type ownSettings struct {
	Server string `default:"localhost" env:"OWN_SERVER" help:"Where it is."`
}

// countRuns is a command of a program's own.
type countRuns struct {
	Twice bool   `help:"Twice."`
	Name  string `arg:"" help:"Who counts."`
	run   func(ctx context.Context, app *durablecmd.App, c *countRuns) error
}

// Run is the command.
func (c *countRuns) Run(ctx context.Context, app *durablecmd.App) error { return c.run(ctx, app, c) }

func TestAProgramHasCommandsAndSettings(t *testing.T) {
	t.Parallel()
	env := file(t)
	settings, logger := &ownSettings{}, (*slog.Logger)(nil)
	stopped := false
	command := &countRuns{run: func(ctx context.Context, app *durablecmd.App, c *countRuns) error {
		app.OnStop(func(context.Context) error { stopped = true; return nil })
		if app.Worker != nil || app.Locks == nil || app.Config().Schema != "durable" || !c.Twice {
			return errors.New("not as documented")
		}
		if _, err := durable.NewJob[string]("greet").Enqueue(ctx, app.Client, c.Name); err != nil {
			return err
		}
		return fmt.Errorf("as %s said", settings.Server)
	}}
	start := func(args ...string) ended {
		return executeWith(t, durablecmd.Start{Env: env, Args: args, Settings: settings, SetDefault: func(l *slog.Logger) { logger = l },
			Commands: []durablecmd.Command{{Name: "count-runs", Help: "Count the runs.", Verb: command}}})
	}
	e := start("count-runs", "ann", "--twice")
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, "migrate up", "a command does not migrate")
	require.Zero(t, start("migrate", "up").code)

	e = start("count-runs", "ann", "--twice", "--server", "there")
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, "as there said")
	require.True(t, stopped)
	require.NotNil(t, logger)
	require.Contains(t, start("runs", "list", "--json").stdout, `"greet"`)
	require.Equal(t, 2, start("count-runs", "--wrong").code)
	help := start("--help").stdout
	for _, text := range []string{"count-runs", "Count the runs.", "--server", "OWN_SERVER", "doctor"} {
		require.Contains(t, help, text)
	}
}

func TestSettingsAreThereBeforeSetup(t *testing.T) {
	t.Parallel()
	settings := &ownSettings{}
	server := ""
	e := executeWith(t, durablecmd.Start{Env: file(t), Args: []string{"config", "--server=there"}, Settings: settings,
		Setup: func(ctx context.Context, app *durablecmd.App) error { server = settings.Server; return stock(ctx, app) }})
	require.Zero(t, e.code, e.stderr)
	require.Equal(t, "there", server)
}

func TestACommandThatIsThereAlreadyIsRefused(t *testing.T) {
	t.Parallel()
	e := executeWith(t, durablecmd.Start{Env: file(t), Args: []string{"config"}, Settings: &struct{ Version string }{}})
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, "duplicate flag --version")
}

func TestSetupAddsPagesAndMiddleware(t *testing.T) {
	t.Parallel()
	var lines atomic.Int32
	s := serveWith(t, durablecmd.Start{Env: file(t), Setup: func(ctx context.Context, app *durablecmd.App) error {
		app.Handle("GET /lines", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"lines": %d}`, lines.Load())
		}))
		app.Worker.Use(func(ctx context.Context, run durable.RunInfo, next func(context.Context) error) error {
			app.Logger.Info("middleware has the app", "job", run.Job)
			lines.Add(1)
			return next(ctx)
		})
		job := durable.NewJob[string]("greet")
		durable.Register(app.Worker, job, func(context.Context, *durable.Run[string]) error { return nil })
		_, err := job.Enqueue(ctx, app.Client, "world")
		return err
	}})
	s.logs("middleware has the app")
	address := s.address()
	require.Equal(t, map[string]any{"lines": 1.0}, becomes(t, address, "/lines", http.StatusOK))
	becomes(t, address, "/readyz", http.StatusOK)
	s.signal()
	require.Zero(t, s.ends())
}

func TestAPageThatCannotBeServedIsAnError(t *testing.T) {
	t.Parallel()
	e := executeWith(t, durablecmd.Start{Env: file(t), Args: []string{"config"}, Setup: func(_ context.Context, app *durablecmd.App) error {
		app.Handle("no path", http.NotFoundHandler())
		return nil
	}})
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, `handle "no path"`)
}

func TestACommandCannotTakeThePlaceOfAnother(t *testing.T) {
	t.Parallel()
	e := executeWith(t, durablecmd.Start{Env: file(t), Args: []string{"config"}, Commands: []durablecmd.Command{{Name: "runs", Verb: &countRuns{}}}})
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, "duplicate command runs")
}
