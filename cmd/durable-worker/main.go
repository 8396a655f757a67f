// Command durable-worker is the stock worker: it executes the jobs sleep and
// log, and has every verb that operates a durable database. Programs with jobs
// of their own are made with package durablecmd in the same way.
package main

import (
	"context"

	"github.com/durable-worker/durable-worker/durablecmd"
)

func main() {
	durablecmd.Main(func(_ context.Context, app *durablecmd.App) error {
		durablecmd.RegisterJobs(app.Worker)
		return nil
	}, durablecmd.Sleep().Info(), durablecmd.Log().Info())
}
