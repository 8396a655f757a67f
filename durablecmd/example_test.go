package durablecmd_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
)

// The whole of a worker program.
func ExampleMain() {
	durablecmd.Main(func(_ context.Context, app *durablecmd.App) error {
		durable.Register(app.Worker, durable.NewJob[string]("welcome"), func(_ context.Context, run *durable.Run[string]) error {
			run.Log().Info("welcome", "to", run.Args)
			return nil
		})
		return nil
	})
}

// A program with a setting and a page of its own.
func ExampleProgram() {
	settings := &struct {
		MailServer string `env:"MAIL_SERVER" default:"localhost:25" help:"Address of the mail server."`
	}{}
	durablecmd.Program{
		Settings: settings,
		Setup: func(_ context.Context, app *durablecmd.App) error {
			app.Handle("GET /about", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintln(w, "mail goes through", settings.MailServer)
			}))
			durablecmd.RegisterJobs(app)
			return nil
		},
	}.Main()
}
