package chaos_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// Two versions of a program execute one job with args of different types. What one version
// cannot decode, the other executes, and a key stays in order.
func TestTwoVersionsOfAJobsArgs_PostgreSQL(t *testing.T) { twoVersions(t, pgtest.Database(t)) }

func TestTwoVersionsOfAJobsArgs_SQLite(t *testing.T) {
	twoVersions(t, "sqlite:"+filepath.Join(t.TempDir(), "durable.db"))
}

type (
	numbered struct {
		Customer int `json:"customer"`
		N        int `json:"n"`
	}
	lettered struct {
		Customer string `json:"customer"`
		N        int    `json:"n"`
	}
)

func twoVersions(t *testing.T, dsn string) {
	const customers, each = 10, 4
	inOrder := durable.Limited(durable.NewLimit("customer", durable.Mutex()), durable.KeyOf("{customer}"), durable.Until(store.UntilFinished))
	first, then := durable.NewJob[numbered]("charge", inOrder), durable.NewJob[lettered]("charge", inOrder)
	var mu sync.Mutex
	done := map[string][]int{}
	note := func(customer string, n int) {
		mu.Lock()
		defer mu.Unlock()
		done[customer] = append(done[customer], n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var ended sync.WaitGroup
	begin := func(register func(w *durable.Worker)) store.Store {
		db, err := backend.Open(t.Context(), dsn, backend.Config{})
		require.NoError(t, err)
		t.Cleanup(db.Close)
		_, err = db.Migrate(t.Context())
		require.NoError(t, err)
		w := durable.NewWorker(db, durable.WorkerConfig{Process: new(durable.Process), MaxConcurrentRuns: 8})
		register(w)
		ended.Go(func() { _ = w.Run(ctx) })
		return db
	}
	begin(func(w *durable.Worker) {
		durable.Register(w, first, func(_ context.Context, run *durable.Run[numbered]) error {
			note(strconv.Itoa(run.Args.Customer), run.Args.N)
			return nil
		})
	})
	db := begin(func(w *durable.Worker) {
		durable.Register(w, then, func(_ context.Context, run *durable.Run[lettered]) error {
			note(run.Args.Customer, run.Args.N)
			return nil
		})
	})
	require.Eventually(t, func() bool { jobs, err := db.Jobs(ctx); return err == nil && len(jobs) > 0 }, time.Minute, 20*time.Millisecond)
	client := durable.NewClient(db)
	for n := range each {
		for customer := range customers {
			run := first.New(numbered{Customer: customer, N: n})
			if (customer+n)%2 == 0 {
				run = then.New(lettered{Customer: fmt.Sprint(customer), N: n})
			}
			_, err := client.Enqueue(ctx, run)
			require.NoError(t, err)
		}
	}
	began := time.Now()
	require.Eventually(t, func() bool {
		counts, err := db.Counts(ctx)
		return err == nil && counts[store.Succeeded].N == customers*each
	}, 2*time.Minute, 50*time.Millisecond)
	page, err := db.Runs(ctx, store.Filter{Limit: store.LargestPage})
	require.NoError(t, err)
	misfits := 0
	for i := range page.Runs {
		record, err := db.Run(ctx, page.Runs[i].ID)
		require.NoError(t, err)
		require.Equal(t, 1, record.Attempt, "misfits spend no attempt")
		misfits += len(record.Attempts)
	}
	t.Logf("%d runs after %v, %d misfits", customers*each, time.Since(began), misfits)
	require.Positive(t, misfits, "the versions met")
	for customer, order := range done {
		require.True(t, slices.IsSorted(order), "customer %s: %v", customer, order)
	}
	cancel()
	ended.Wait()
}
