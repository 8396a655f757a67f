// Command worker is a whole worker program.
package main

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
)

func main() {
	durablecmd.Main(func(_ context.Context, app *durablecmd.App) error {
		welcome := durable.NewJob[string]("welcome", durable.Timeout(time.Minute))
		durable.Register(app.Worker, welcome, func(_ context.Context, run *durable.Run[string]) error {
			run.Log().Info("welcome", "to", run.Args)
			return nil
		})
		return nil
	})
}
