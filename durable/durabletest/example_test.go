package durabletest_test

import (
	"context"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
)

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
