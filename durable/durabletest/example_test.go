package durabletest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
)

// inExample takes the place of the *testing.T that a test has.
type inExample struct{ *testing.T }

func (inExample) Context() context.Context { return context.Background() }

func (inExample) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// One handler alone, with what it returned, stored and enqueued.
func ExamplePerform() {
	t := inExample{new(testing.T)} // your test's t
	mail, archive := durable.NewJob[string]("mail"), durable.NewJob[string]("archive")
	send := func(ctx context.Context, run *durable.Run[string]) error {
		if _, err := archive.Enqueue(ctx, run, run.Args); err != nil {
			return err
		}
		return run.SetResult("sent to " + run.Args)
	}

	performed := durabletest.Perform(t, mail, send, "ann@example.com")
	fmt.Println(performed.Record.State, string(performed.Record.Result))
	fmt.Println(performed.Enqueued[0].Job, string(performed.Enqueued[0].Args))
	// Output:
	// succeeded "sent to ann@example.com"
	// archive "ann@example.com"
}

// A test of a retry that is due an hour later takes milliseconds.
func ExampleRun() {
	_ = func(t *testing.T) { // TestMailIsRetried
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			mail := durable.NewJob[string]("mail", durable.Retry(durable.Fixed(time.Hour)))
			kit.Worker(func(w *durable.Worker) {
				durable.Register(w, mail, func(_ context.Context, run *durable.Run[string]) error {
					if run.Attempt == 1 {
						return context.DeadlineExceeded
					}
					return nil
				})
			})
			receipt, err := mail.Enqueue(t.Context(), kit.Client, "ann")
			if err != nil {
				t.Fatal(err)
			}
			kit.RunDue()
			durabletest.RequireState(t, kit.Store, receipt.ID, durable.Pending)
			kit.Advance(time.Hour)
			durabletest.RequireState(t, kit.Store, receipt.ID, durable.Succeeded)
		})
	}
}
