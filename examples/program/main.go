// Command program is a worker program with flags, commands, pages and settings of
// its own.
package main

import (
	"context"
	"expvar"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
)

// settings are flags of every command, and variables.
type settings struct {
	MailServer string `default:"localhost:25" env:"MAIL_SERVER" help:"Address of the mail server."`
}

// invite is the job.
func invite() durable.Job[string] {
	return durable.NewJob[string]("invite", durable.Timeout(time.Minute))
}

// inviteAll is the command `invite-all ADDRESS…`.
type inviteAll struct {
	Later     time.Duration `help:"Send the invitations later."`
	Addresses []string      `arg:"" help:"Who is invited."`
}

// Run enqueues an invitation to each address, all or none.
func (c *inviteAll) Run(ctx context.Context, app *durablecmd.App) error {
	runs := make([]durable.NewRun, len(c.Addresses))
	for i, address := range c.Addresses {
		runs[i] = invite().New(address, durable.After(c.Later))
	}
	receipts, err := app.Client.Enqueue(ctx, runs...)
	if err != nil {
		return err
	}
	fmt.Printf("%d invitations enqueued in %s\n", len(receipts), app.Config().Schema)
	return nil
}

func main() {
	own := &settings{}
	sent := expvar.NewInt("invitations_sent")
	durablecmd.Program{
		Settings: own,
		Commands: []durablecmd.Command{{Name: "invite-all", Help: "Invite people.", Verb: &inviteAll{}}},
		Jobs:     []durable.JobInfo{invite().Info()},
		Setup: func(_ context.Context, app *durablecmd.App) error {
			app.Handle("GET /metrics.json", expvar.Handler())
			app.Handle("GET /about", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, "worker %s\n", app.Config().WorkerName)
			}))
			app.Worker.Use(logged(app.Logger))
			durable.Register(app.Worker, invite(), func(_ context.Context, run *durable.Run[string]) error {
				slog.Info("invited", "to", run.Args, "through", own.MailServer) //nolint:sloglint // the default logger is the program's
				sent.Add(1)
				return nil
			})
			return nil
		},
	}.Main()
}

// logged logs how each handler ended.
func logged(logger *slog.Logger) durable.Middleware {
	return func(ctx context.Context, run durable.RunInfo, next func(context.Context) error) error {
		err := next(ctx)
		logger.Info("handled", "job", run.Job, "attempt", run.Attempt, "error", err)
		return err
	}
}
