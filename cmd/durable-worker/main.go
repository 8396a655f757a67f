// Command durable-worker is the bundled worker: it executes the built-in jobs
// http, exec, log and sleep, and has every command that operates a durable
// database. Programs with jobs of their own are made with package durablecmd in
// the same way.
package main

import (
	"context"

	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/durablecmd/builtin"
)

// version is stamped into the programs of a release.
var version string

func main() {
	durablecmd.Program{
		Setup: func(_ context.Context, app *durablecmd.App) error {
			durablecmd.RegisterJobs(app)
			return nil
		},
		Jobs:    builtin.Infos(),
		Version: version,
	}.Main()
}
