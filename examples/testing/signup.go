// Package signup is a part of a service that is small enough to read and large
// enough to test: a signup enqueues two mails, and a digest goes out each morning.
// Its tests are the example.
package signup

import (
	"context"
	"errors"
	"time"

	"github.com/durable-worker/durable-worker/durable"
)

// MailArgs are stored with each run as JSON.
type MailArgs struct {
	Email string `json:"email"`
}

// Welcome is due immediately.
func Welcome() durable.Job[MailArgs] {
	return durable.NewJob[MailArgs]("welcome", durable.MaxAttempts(5), durable.Timeout(time.Minute))
}

// Reminder is due three days later.
func Reminder() durable.Job[MailArgs] {
	return durable.NewJob[MailArgs]("reminder", durable.Timeout(time.Minute))
}

// Digest goes to the team, each morning.
func Digest() durable.Job[MailArgs] {
	return durable.NewJob[MailArgs]("digest", durable.Timeout(time.Minute))
}

// Signup is called by the web server. to is a client, or a store that is bound to
// the transaction that inserts the user.
func Signup(ctx context.Context, to durable.Enqueuer, email string) error {
	_, err := to.Enqueue(ctx, Welcome().New(MailArgs{Email: email}), Reminder().New(MailArgs{Email: email}, durable.After(72*time.Hour)))
	return err
}

// Mailer sends mail.
type Mailer interface {
	// Send sends a text once for each key.
	Send(ctx context.Context, key, to, text string) error
}

// ErrBounced is a mailer's answer to an address that does not exist.
var ErrBounced = errors.New("address does not exist")

// Register gives a worker everything that it does in this service. The program
// calls it, and so do the tests.
func Register(w *durable.Worker, mailer Mailer) {
	durable.Register(w, Welcome(), Send(mailer, "welcome!"))
	durable.Register(w, Reminder(), Send(mailer, "still there?"))
	durable.Register(w, Digest(), Send(mailer, "yesterday's signups"))
	durable.AddSchedule(w, "digest", Digest(), MailArgs{Email: "team@example.com"}, durable.Cron("0 8 * * *", "Europe/Berlin"))
}

// Send is the handler of all three jobs.
func Send(mailer Mailer, text string) func(ctx context.Context, run *durable.Run[MailArgs]) error {
	return func(ctx context.Context, run *durable.Run[MailArgs]) error {
		run.Log().Info("sending", "to", run.Args.Email)
		err := mailer.Send(ctx, run.IdempotencyKey(), run.Args.Email, text)
		if errors.Is(err, ErrBounced) {
			return durable.Permanent(err) // another attempt would not help
		}
		return err
	}
}
