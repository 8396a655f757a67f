// Command worker is a whole worker program.
package main

import (
	"context"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
)

func main() {
	durablecmd.Main(func(_ context.Context, app *durablecmd.App) error {
		durable.Register(app.Worker, durable.NewJob[string]("welcome"), func(_ context.Context, run *durable.Run[string]) error {
			run.Log().Info("welcome", "to", run.Args)
			return nil
		})
		return nil
	})
}
