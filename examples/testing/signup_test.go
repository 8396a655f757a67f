package signup_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	signup "github.com/durable-worker/durable-worker/examples/testing"
)

// outbox is a mailer that keeps what it is given. It is the only thing in these
// tests that is not real: claims, retries, leases and schedules are the engine's.
type outbox struct {
	mu   sync.Mutex
	down bool            // it answers with an error
	slow time.Duration   // its answer takes so long
	sent map[string]int  // by address
	keys map[string]bool // known
}

func (o *outbox) Send(ctx context.Context, key, to, _ string) error {
	if err := o.take(key, to); err != nil {
		return err
	}
	select {
	case <-time.After(o.slow):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (o *outbox) take(key, to string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.down:
		return errors.New("mail server is down")
	case to == "nobody@example.com":
		return signup.ErrBounced
	case o.sent == nil:
		o.sent, o.keys = map[string]int{}, map[string]bool{}
	}
	if !o.keys[key] {
		o.keys[key] = true
		o.sent[to]++
	}
	return nil
}

// The first test: sign up, let the worker do what is due, look.
func TestWelcome(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		mail := &outbox{}
		kit.Worker(func(w *durable.Worker) { signup.Register(w, mail) })

		require.NoError(t, signup.Signup(t.Context(), kit.Client, "ada@example.com"))
		kit.RunDue()

		require.Equal(t, map[string]int{"ada@example.com": 1}, mail.sent)
	})
}

// The code that enqueues is tested without any worker.
func TestSignupEnqueues(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		require.NoError(t, signup.Signup(t.Context(), kit.Client, "ada@example.com"))

		durabletest.RequireEnqueued(t, kit.Store, signup.Welcome())
		reminder := durabletest.RequireEnqueued(t, kit.Store, signup.Reminder(),
			func(args signup.MailArgs, _ durable.Record) bool { return args.Email == "ada@example.com" })
		require.Equal(t, 72*time.Hour, time.Until(reminder.Record.DueAt))
		durabletest.RequireNotEnqueued(t, kit.Store, signup.Digest())
	})
}

// A single handler, called once as a worker calls it.
func TestBouncedMailIsDead(t *testing.T) {
	handler := signup.Send(&outbox{}, "welcome!")
	got := durabletest.Perform(t, signup.Welcome(), handler, signup.MailArgs{Email: "nobody@example.com"})
	require.ErrorIs(t, got.Err, signup.ErrBounced)
	require.Equal(t, durable.Dead, got.Record.State)
	require.Equal(t, []string{"level=INFO msg=sending to=nobody@example.com"}, got.Log)
}

// Retries take the time they take, and the test does not.
func TestMailServerIsDownForAMinute(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		mail := &outbox{down: true}
		kit.Worker(func(w *durable.Worker) { signup.Register(w, mail) })
		receipt, err := signup.Welcome().Enqueue(t.Context(), kit.Client, signup.MailArgs{Email: "ada@example.com"})
		require.NoError(t, err)

		require.Equal(t, durabletest.Tally{Failed: 4}, kit.Advance(time.Minute)) // at 0s, 5s, 15s and 35s
		mail.down = false
		require.Equal(t, durabletest.Tally{Succeeded: 1}, kit.Advance(time.Minute))

		record := durabletest.RequireState(t, kit.Store, receipt.ID, durable.Succeeded)
		require.Equal(t, 5, record.Attempt)
	})
}

// Five days in a few milliseconds.
func TestDigestEachMorning(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		berlin, err := time.LoadLocation("Europe/Berlin")
		require.NoError(t, err)
		kit.AdvanceTo(time.Date(2026, 10, 23, 12, 0, 0, 0, berlin)) // the clocks are set back on the 25th
		mail := &outbox{}
		kit.Worker(func(w *durable.Worker) { signup.Register(w, mail) })

		kit.Advance(5 * 24 * time.Hour)

		require.Equal(t, map[string]int{"team@example.com": 5}, mail.sent)
		for _, run := range durabletest.Enqueued(t, kit.Store, signup.Digest()) {
			require.Equal(t, 8, run.Record.DueAt.In(berlin).Hour())
		}
	})
}

// A worker loses its network after the mail has gone and before it could say so.
// The run is executed again elsewhere, the key keeps the mail from being sent
// twice, and what the first worker writes when it is back is refused.
func TestWorkerLosesItsNetwork(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		mail := &outbox{slow: 30 * time.Second}
		register := func(w *durable.Worker) { signup.Register(w, mail) }
		first := kit.Worker(register)
		receipt, err := signup.Welcome().Enqueue(t.Context(), kit.Client, signup.MailArgs{Email: "ada@example.com"})
		require.NoError(t, err)
		kit.Advance(time.Second)

		first.Pause()
		second := kit.Worker(register)
		kit.Advance(2 * durabletest.LeaseDuration)
		record := durabletest.RequireState(t, kit.Store, receipt.ID, durable.Succeeded)
		require.Equal(t, second.Name(), *record.Worker)

		first.Resume()
		kit.Advance(time.Minute)
		require.Equal(t, []durable.RunID{receipt.ID}, first.Refused())
		require.Equal(t, map[string]int{"ada@example.com": 1}, mail.sent)
	})
}

// A deploy: the worker is asked to stop while a mail is on its way. The run is
// handed back, and no attempt is spent.
func TestDeploy(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		mail := &outbox{slow: 30 * time.Second}
		register := func(w *durable.Worker) { signup.Register(w, mail) }
		first := kit.Worker(register)
		receipt, err := signup.Welcome().Enqueue(t.Context(), kit.Client, signup.MailArgs{Email: "ada@example.com"})
		require.NoError(t, err)
		kit.Advance(time.Second)

		require.NoError(t, first.Stop()) // waits ten seconds, then ends the handler's context
		durabletest.RequireState(t, kit.Store, receipt.ID, durable.Pending)

		kit.Worker(register)
		kit.RunDue()
		record := durabletest.RequireState(t, kit.Store, receipt.ID, durable.Succeeded)
		require.Equal(t, 1, record.Attempt)
	})
}
