package durablecmd_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/store/memory"
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

// A setup is a function: a test gives it an App on a store in memory.
func ExampleApp() {
	setup := func(_ context.Context, app *durablecmd.App) error {
		welcome := durable.NewJob[string]("welcome")
		durable.Register(app.Worker, welcome, func(_ context.Context, run *durable.Run[string]) error {
			app.Logger.Info("welcome", "to", run.Args)
			return nil
		})
		durable.AddSchedule(app.Worker, "monday", welcome, "all", durable.Cron("0 8 * * mon", "Europe/Berlin"))
		return nil
	}

	db := memory.New(memory.Config{})
	app := &durablecmd.App{Worker: durable.NewWorker(db, durable.WorkerConfig{}), Client: durable.NewClient(db), Store: db, Logger: slog.New(slog.DiscardHandler)}
	fmt.Println(setup(context.Background(), app), app.Worker.Faults())
	// Output: <nil> <nil>
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
