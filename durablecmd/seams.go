package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/alecthomas/kong"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe"
)

// Program is a worker program with more of its own than handlers. The zero value
// of each field means none.
type Program struct {
	// Setup and Jobs are what Main takes.
	Setup func(ctx context.Context, app *App) error
	Jobs  []durable.JobInfo
	// Middleware is called around every handler, the first outermost. Middleware
	// that needs the App is added by Setup: app.Worker.Use.
	Middleware []durable.Middleware
	// Hooks are called when the worker does something, and when App.Client enqueues.
	Hooks observe.Hooks
	// Version is what the program says of itself: with --version and `version`, in
	// `workers list` and in /metrics. Default: the version of its main module, which
	// `go install` knows and a build from a copy of the sources does not.
	Version string
	// Settings is a pointer to a struct whose fields are flags of every command, and
	// variables where they have the tag env, as github.com/alecthomas/kong reads
	// them. It is filled in before Setup and the commands are called. A value that
	// cannot be read ends the program with 2.
	Settings any
	// Commands are added to those of durablecmd.
	Commands []Command
	// Connect is called before each connection to PostgreSQL, see postgres.Config.
	Connect ConnectHook
}

// Command is a command of the program's own, such as `import FILE`.
type Command struct {
	Name string // as it is typed
	Help string // one line
	// Verb is a pointer to a struct whose fields are the command's flags and
	// arguments, as github.com/alecthomas/kong reads them.
	Verb Verb
}

// Verb does the work of a Command. Its App has no worker, and Setup is not called;
// the database was reached and has a schema that serves the program. The first
// signal ends ctx. An error is printed, and makes the program exit with 1.
type Verb interface {
	// Run is the command.
	Run(ctx context.Context, app *App) error
}

// Main runs the program and exits, as the function Main does.
func (p Program) Main() { start(p) }

// seams are what a program puts into its worker and into its command line.
type seams struct {
	middleware []durable.Middleware
	hooks      observe.Hooks
	settings   any
	commands   []Command
	connect    ConnectHook
	version    string
}

func (p Program) seams() seams {
	return seams{middleware: p.Middleware, hooks: p.Hooks, settings: p.Settings, commands: p.Commands, connect: p.Connect, version: p.Version}
}

// into returns a worker's configuration with the seams.
func (s seams) into(config durable.WorkerConfig) durable.WorkerConfig {
	config.Middleware, config.Hooks, config.Version = s.middleware, s.hooks, s.version
	return config
}

// options are what the command line is given more.
func (s seams) options() []kong.Option {
	var options []kong.Option
	if s.settings != nil {
		options = append(options, kong.Embed(s.settings))
	}
	for _, c := range s.commands {
		options = append(options, kong.DynamicCommand(c.Name, c.Help, "", c.Verb))
	}
	return options
}

// duplicate names a flag or a command that is there twice, which the parser accepts.
func duplicate(root *kong.Node) error {
	seen := map[string]bool{}
	for _, flag := range root.Flags {
		if seen["--"+flag.Name] {
			return fmt.Errorf("duplicate flag --%s", flag.Name)
		}
		seen["--"+flag.Name] = true
	}
	for _, command := range root.Children {
		if seen[command.Name] {
			return fmt.Errorf("duplicate command %s", command.Name)
		}
		seen[command.Name] = true
	}
	return nil
}

// own reports whether a command is one of the program's own.
func (s seams) own(name string) bool {
	for _, c := range s.commands {
		if c.Name == name {
			return true
		}
	}
	return false
}

// makeDefault makes a logger that of package slog, and of package log.
func (p *program) makeDefault(logger *slog.Logger) {
	if p.setDefault != nil {
		p.setDefault(logger)
	}
}

// Config returns the configuration that the program read from the environment.
// DatabaseURL and RedisURL may hold passwords.
func (a *App) Config() Config { return a.config }

// Handle serves a path at DURABLE_HTTP_ADDR, beside /healthz and /readyz, while the
// worker starts, works and drains. The pattern is that of http.ServeMux; one that it
// refuses is an error of Setup. The listener is made for probes and scrapers: at
// most 64 connections, each for one request, and five seconds for an answer, which a
// handler extends with http.ResponseController. Where DURABLE_HTTP_ADDR is off
// nothing is served.
func (a *App) Handle(pattern string, handler http.Handler) {
	defer func() {
		if fault := recover(); fault != nil {
			a.faults = append(a.faults, fmt.Errorf("handle %q: %v", pattern, fault))
		}
	}()
	a.mux.Handle(pattern, handler)
}

// setUp calls the function given to Main, and reports what is wrong with the App.
func (a *App) setUp(ctx context.Context, setup func(ctx context.Context, app *App) error) error {
	if setup == nil {
		return nil
	}
	err := setup(ctx, a)
	return errors.Join(append([]error{err}, a.faults...)...)
}
