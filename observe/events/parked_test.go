package events_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/observe/events"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// A handler that waits for an input, and then sleeps: each wait is an event that says what for.
func TestARunThatWaitsIsParkedAndNotSnoozed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &sink{began: time.Now()}
		db := memory.New(memory.Config{})
		streaming(t, to, events.Config{Kinds: []events.Kind{events.RunParked}}, func(s *events.Stream) {
			worker := durable.NewWorker(db, durable.WorkerConfig{Hooks: s.Hooks(), Elapsed: func() time.Duration { return time.Since(to.began) }, Process: new(durable.Process)})
			job := durable.NewJob[string]("mail")
			durable.Register(worker, job, func(ctx context.Context, run *durable.Run[string]) error {
				if _, err := durable.Receive[string](ctx, run, "approved", 0); err != nil {
					return err
				}
				return run.Sleep(ctx, "an hour", time.Hour)
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- worker.Run(ctx) }()
			receipt, err := job.Enqueue(ctx, db, "")
			require.NoError(t, err)
			pass(time.Minute)
			_, err = job.Send(ctx, db, receipt.ID, "approved", "eva")
			require.NoError(t, err)
			pass(2 * time.Hour)
			cancel()
			require.NoError(t, <-ended)
		})
		all := to.all()
		require.Len(t, all, 2)
		require.Equal(t, []events.Wait{{Step: "approved", Kind: store.StepInput}}, all[0].Run.Waits)
		require.Nil(t, all[0].Run.RetryAt, "nobody knows when the input comes")
		require.Equal(t, "an hour", all[1].Run.Waits[0].Step)
		require.WithinDuration(t, all[1].At.Add(time.Hour), *all[1].Run.Waits[0].Until, time.Second)
		require.WithinDuration(t, all[1].At.Add(time.Hour), *all[1].Run.RetryAt, time.Second)
		text, err := json.Marshal(all[0].Run.Waits)
		require.NoError(t, err)
		require.JSONEq(t, `[{"step": "approved", "kind": "input", "until": null}]`, string(text))
	})
}

func TestTheWaitsOfOneEventAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &sink{began: time.Now()}
		streaming(t, to, events.Config{}, func(s *events.Stream) {
			s.Hooks().RunSettled(observe.RunVerdict{Run: mail, Outcome: store.Snoozed, Verdict: store.Applied, Parks: make([]observe.Park, 100)})
		})
		require.Len(t, to.all()[0].Run.Waits, 20)
	})
}
