package durablecmd

import (
	"context"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe"
)

// Program is a worker program with more of its own than handlers. The zero value
// of each field means none.
type Program struct {
	// Setup and Jobs are what Main takes.
	Setup func(ctx context.Context, app *App) error
	Jobs  []durable.JobInfo
	// Middleware is called around every handler, the first outermost.
	Middleware []durable.Middleware
	// Hooks are called when the worker does something, and when App.Client enqueues.
	Hooks observe.Hooks
}

// Main runs the program and exits, as the function Main does.
func (p Program) Main() { start(p) }

// seams are what a program puts into its worker.
type seams struct {
	middleware []durable.Middleware
	hooks      observe.Hooks
}

// into returns a worker's configuration with the seams.
func (s seams) into(config durable.WorkerConfig) durable.WorkerConfig {
	config.Middleware, config.Hooks = s.middleware, s.hooks
	return config
}
