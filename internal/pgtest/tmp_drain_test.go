package pgtest_test

import (
	"context"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/postgres"
	"github.com/durable-worker/durable-worker/internal/pgtest"
)

type noArgs struct{ N int }

func TestTmpDrain(t *testing.T) {
	cl := pgtest.StartPrivate(t, pgtest.Options{Fsync: true, Settings: map[string]string{"shared_buffers": "1GB"}})
	slots, _ := strconv.Atoi(os.Getenv("SLOTS"))
	for rep := 0; rep < 3; rep++ {
	url := pgtest.DatabaseOn(t, cl.URL())
	store, err := postgres.Open(context.Background(), url, postgres.Config{})
	if err != nil { t.Fatal(err) }
	if _, err := store.Migrate(context.Background()); err != nil { t.Fatal(err) }
	job := durable.NewJob[noArgs]("noop")
	client := durable.NewClient(store)
	const n = 100000
	t0 := time.Now()
	for i := 0; i < n; i += 1000 {
		var runs []durable.NewRun
		for j := 0; j < 1000; j++ {
			runs = append(runs, job.New(noArgs{j}))
		}
		if _, err := client.Enqueue(context.Background(), runs...); err != nil { t.Fatal(err) }
	}
	t.Logf("enqueue %.0f/s", n/time.Since(t0).Seconds())
	var done atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	w := durable.NewWorker(store, durable.WorkerConfig{MaxConcurrentRuns: slots})
	durable.Register(w, job, func(ctx context.Context, run *durable.Run[noArgs]) error {
		if done.Add(1) == n { cancel() }
		return nil
	})
	start := time.Now()
	if err := w.Run(ctx); err != nil { t.Fatal(err) }
	el := time.Since(start)
	c, _ := store.Counts(context.Background())
	t.Logf("%.0f/s %v", n/el.Seconds(), c)
	store.Close()
	}
}
