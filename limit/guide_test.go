package limit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/limit"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// The code of docs/flow-control.md.

// ImportArgs are the args of the page's first job.
type ImportArgs struct {
	Tenant string `json:"tenant"`
	Rows   int    `json:"rows"`
}

var Tenant = durable.NewLimit("tenant", durable.Semaphore(2))

var Import = durable.NewJob[ImportArgs]("import",
	durable.Limited(Tenant, durable.KeyFrom(func(a ImportArgs) string { return a.Tenant })))

func TestTwoImportsOfEachTenant(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(func(w *durable.Worker) { durable.Register(w, Import, importRows) })
		for range 3 {
			_, err := Import.Enqueue(t.Context(), kit.Client, ImportArgs{Tenant: "acme"})
			require.NoError(t, err)
		}
		require.Equal(t, durabletest.Tally{Succeeded: 2}, kit.Advance(90*time.Second)) // each takes a minute
		require.Equal(t, durabletest.Tally{Succeeded: 1}, kit.RunAll())
	})
}

func importRows(context.Context, *durable.Run[ImportArgs]) error {
	time.Sleep(time.Minute) //nolint:forbidigo // virtual time of the kit
	return nil
}

var (
	GitHub  = durable.NewLimit("github", durable.TokenBucket(500, time.Second, 10))
	Account = durable.NewLimit("account", durable.Mutex())
	Hourly  = durable.NewLimit("hourly", durable.FixedWindow(5000, time.Hour))
	Dropbox = durable.NewLimit("dropbox", durable.SlidingWindow(4, time.Hour, 60))
	Fair    = durable.NewLimit("fair", durable.DynamicWindow(20, time.Hour, 60, 2, 20))
)

var Sync = durable.NewJob[ImportArgs]("sync",
	durable.MaxConcurrent(40),                          // runs of this job, over all workers
	durable.Limited(Tenant, durable.KeyOf("{tenant}")), // shared with Import
	durable.Limited(GitHub, durable.Weight(2)),         // two calls for each run
	durable.Limited(Account, durable.KeyOf("{tenant}"), durable.Until(store.UntilFinished)))

// caller calls an API that the tests replace.
type caller struct{ url string }

func (c caller) sync(ctx context.Context, run *durable.Run[ImportArgs]) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusTooManyRequests {
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		pause := max(time.Duration(seconds)*time.Second, time.Second)
		if err := run.Penalize(ctx, GitHub, pause); err != nil {
			run.Log().Warn("the limit is not penalized", "error", err)
		}
		return durable.Snooze(pause) // spends no attempt
	}
	return nil
}

func TestAPauseIsKept(t *testing.T) {
	calls := make(chan struct{}, 10)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls <- struct{}{}
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer api.Close()
	db := memory.New(memory.Config{})
	got := durabletest.PerformOn(t, db, Sync, caller{api.URL}.sync, ImportArgs{Tenant: "acme"})
	require.Equal(t, durable.Pending, got.Record.State)
	require.Len(t, calls, 1)
}

func handler(limiter *limit.Limiter, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := limiter.Take(r.Context(), r.Header.Get("X-Customer"), 1)
		var full *limit.FullError
		switch {
		case errors.As(err, &full):
			w.Header().Set("Retry-After", strconv.Itoa(int(full.RetryIn/time.Second)+1))
			w.WriteHeader(http.StatusTooManyRequests)
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func TestAServiceRefusesWhatIsTooMuch(t *testing.T) {
	db := memory.New(memory.Config{})
	requests := limit.New(db, durable.NewLimit("requests", durable.TokenBucket(60, time.Minute, 2)), limit.Config{})
	h := handler(requests, http.NotFoundHandler())
	for i, want := range []int{404, 404, 429} {
		answer := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Customer", "acme")
		h.ServeHTTP(answer, r)
		require.Equal(t, want, answer.Code, "request %d", i)
		if want == 429 {
			require.Equal(t, "1", answer.Header().Get("Retry-After"))
		}
	}
}

func rebuild(ctx context.Context, db limit.Store, index func(ctx context.Context) error) error {
	limiter := limit.New(db, Account, limit.Config{})
	return limiter.Do(ctx, "acme", func(ctx context.Context) error {
		return index(ctx) // ctx ends before another may have the place
	})
}

func TestCodeOutsideOfRunsHasAPlace(t *testing.T) {
	require.NoError(t, rebuild(t.Context(), memory.New(memory.Config{}), func(ctx context.Context) error { return ctx.Err() }))
}

var (
	Feed  = durable.NewLimit("feed", durable.Mutex())
	Begin = durable.NewJob[ImportArgs]("begin")
	Part  = durable.NewJob[ImportArgs]("part")
	End   = durable.NewJob[ImportArgs]("end")
)

func enqueueBatch(ctx context.Context, client *durable.Client, batch string) error {
	args := ImportArgs{Tenant: "acme"}
	_, err := client.Enqueue(ctx,
		Begin.New(args, durable.LimitedBy(Feed, args.Tenant, durable.AcquireFor(batch, 24*time.Hour))))
	return err // its handler enqueues the parts, the last of them End
}

func endOf(batch string, args ImportArgs) durable.NewRun {
	return End.New(args, durable.LimitedBy(Feed, args.Tenant, durable.ReleaseFor(batch)))
}

func TestABatchHasItsPlaceUntilItsEnd(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(func(w *durable.Worker) {
			nothing := func(context.Context, *durable.Run[ImportArgs]) error { return nil }
			durable.Register(w, Begin, nothing)
			durable.Register(w, Part, nothing)
			durable.Register(w, End, nothing)
			durable.Register(w, durable.NewJob[ImportArgs]("declares", durable.Limited(Feed)), nothing)
		})
		require.NoError(t, enqueueBatch(t.Context(), kit.Client, "batch 7"))
		require.NoError(t, enqueueBatch(t.Context(), kit.Client, "batch 8"))
		require.Equal(t, durabletest.Tally{Succeeded: 1}, kit.RunDue(), "one batch has begun")
		_, err := kit.Client.Enqueue(t.Context(), endOf("batch 7", ImportArgs{Tenant: "acme"}))
		require.NoError(t, err)
		require.Equal(t, durabletest.Tally{Succeeded: 2}, kit.RunDue(), "it has ended, and the other one has begun")
	})
}

func TestTheLimitsOfThePageAreValid(t *testing.T) {
	for _, one := range []durable.Limit{Tenant, GitHub, Account, Hourly, Dropbox, Fair, Feed} {
		require.NoError(t, store.CheckLimit(one.Spec()))
	}
	run := Sync.New(ImportArgs{Tenant: "acme"})
	require.NoError(t, run.Fault())
	require.Len(t, run.Limits, 4)
}
