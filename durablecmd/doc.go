// Package durablecmd is a whole worker program in one call: configuration from
// the environment, command-line verbs, migrations, signals, logs and health.
//
//	func main() {
//		durablecmd.Main(func(ctx context.Context, app *durablecmd.App) error {
//			durable.Register(app.Worker, Welcome, sendWelcome)
//			return nil
//		})
//	}
//
// The program's verbs are work (also when none is given), demo, migrate,
// enqueue, runs, queues, schedules, locks, audit, config, doctor and healthcheck;
// --help reports each one's flags. config lists every environment variable with its
// unit, its constraint and the value in force. Exit codes: 0 done, 1 failed, 2 wrong usage
// or configuration.
//
// A program adds flags, commands, HTTP pages and middleware of its own with Program
// and App; package slog then logs as the program does.
//
// # Stopping
//
// The first SIGTERM or SIGINT drains: nothing more is claimed, handlers may
// finish for DURABLE_DRAIN_TIMEOUT, then their contexts are cancelled and
// their runs handed back. The second one ends that time immediately. The third
// one ends the process immediately; what was executing is taken over by another
// worker when its lease has run out.
//
// A handler that ignores its context cannot be stopped: the program then exits
// with 1 and names the run, whose lease runs out.
//
// # What setup must not do
//
// The function given to Main registers handlers and opens what they need. It is
// called by work, after the database was reached and migrated. With a store in memory
// it is called by config, so that every fault of the registrations can be shown without
// a database, and by enqueue, which checks args by it. It should not enqueue. What only one engine can do, such as
// WithTx, is at hand with backend.Postgres(app.Store) and backend.SQLite(app.Store),
// which are nil for other stores, so also for these verbs.
package durablecmd
