// Package durablecmd is a whole worker program in one call: configuration from
// the environment, commands, migrations, signals, logs and health.
//
//	func main() {
//		durablecmd.Main(func(ctx context.Context, app *durablecmd.App) error {
//			durable.Register(app.Worker, Welcome, sendWelcome)
//			return nil
//		})
//	}
//
// The program's commands are work (the default), demo, migrate, enqueue, runs, problems,
// stats, queues, jobs, workers, schedules, limits, locks, audit, dashboard, config, doctor,
// healthcheck, completion, help and version; --help lists the flags of each. config lists
// every environment variable with its unit, its constraint and the value in force. Exit
// codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 the run waited for is dead or
// cancelled, 4 it did not end in time.
//
// A program adds flags, commands, HTTP pages and middleware of its own with Program
// and App; package slog then logs as the program does.
//
// # Stopping
//
// The first SIGTERM or SIGINT drains: nothing more is claimed, handlers may finish for
// DURABLE_DRAIN_TIMEOUT, then their contexts are cancelled and their runs handed back. The
// second one ends that time immediately. The third one ends the process immediately; another
// worker reclaims the runs that were executing when their leases have expired.
//
// A handler that ignores its context cannot be stopped: the program then exits with 1 and
// names the run, which is executed again when its lease has expired.
//
// # What setup must not do
//
// The function given to Main registers handlers and opens what they need. The command work
// calls it after the database was reached and migrated. The commands config and enqueue call
// it with a store in memory: config to show every fault of the registrations without a
// database, enqueue to check args. It should not enqueue. For what only one engine can do,
// such as WithTx, use backend.Postgres(app.Store) and backend.SQLite(app.Store), which return
// nil for other stores, and so for these two commands.
package durablecmd
