package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// TestThePlaceOfARefusedRunIsHandedOver has a run keep its place of one limit while it waits
// to be retried, and be dropped then because another limit is full. The next run for the
// place is of another worker, which polls each minute.
func TestThePlaceOfARefusedRunIsHandedOver(t *testing.T) {
	t.Parallel()
	type args struct{}
	var doc, api = durable.NewLimit("doc", durable.Mutex()), durable.NewLimit("api", durable.Mutex())
	var hold = durable.NewJob[args]("hold", durable.Limited(api))
	var dropped = durable.NewJob[args]("dropped", durable.Limited(doc, durable.Until(store.UntilFinished)),
		durable.Limited(api, durable.WhenFull(store.FullDrop, 0)), durable.Retry(durable.Fixed(time.Second)))
	var next = durable.NewJob[args]("next", durable.Limited(doc))
	migrated := openStore(t, "")
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	release, begun := make(chan struct{}), make(chan string, 10)
	defer close(release)
	config := durable.WorkerConfig{PollInterval: time.Minute, Process: new(durable.Process)}
	first := durable.NewWorker(openMigrated(t, migrated.url, migrated.schema).Store, config)
	durable.Register(first, hold, func(context.Context, *durable.Run[args]) error {
		begun <- "hold"
		<-release
		return nil
	})
	durable.Register(first, dropped, func(context.Context, *durable.Run[args]) error {
		begun <- "dropped"
		return errors.New("once more")
	})
	second := durable.NewWorker(openMigrated(t, migrated.url, migrated.schema).Store, config)
	durable.Register(second, next, func(context.Context, *durable.Run[args]) error {
		begun <- "next"
		return nil
	})
	workers.Go(func() { _ = first.Run(ctx) })
	workers.Go(func() { _ = second.Run(ctx) })
	begins := inTurn(t, begun)
	require.Eventually(t, func() bool {
		_, err := migrated.Gate(ctx, "api", "")
		_, other := migrated.Gate(ctx, "doc", "")
		return errors.Join(err, other) == nil
	}, time.Minute, 10*time.Millisecond)
	client := durable.NewClient(migrated)
	for _, run := range []durable.NewRun{dropped.New(args{}), hold.New(args{})} {
		_, err := client.Enqueue(ctx, run)
		require.NoError(t, err)
		begins(run.Job)
	}
	_, err := client.Enqueue(ctx, next.New(args{}))
	require.NoError(t, err)
	begins("next")
}
