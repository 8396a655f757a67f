package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

type meetArgs struct {
	N int `json:"n"`
}

var meet = durable.NewJob[meetArgs]("meet", durable.Retry(durable.Exponential(20*time.Millisecond, 20*time.Millisecond)), durable.Timeout(5*time.Second))

// registerMeet registers a handler that ends in every way there is, and says
// much of itself.
func registerMeet(app *durablecmd.App) {
	durable.Register(app.Worker, meet, func(ctx context.Context, run *durable.Run[meetArgs]) error {
		if rand.IntN(3) == 0 {
			run.Log().Info("a line", "of", run.ID)
		}
		if rand.IntN(3) == 0 {
			if err := run.Progress(ctx, rand.Float64(), "a note"); err != nil {
				return err
			}
		}
		if rand.IntN(3) == 0 {
			if err := run.Checkpoint(ctx, run.Args); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(rand.IntN(20)) * time.Millisecond):
		}
		switch rand.IntN(8) {
		case 0:
			return errors.New("a failure")
		case 1:
			return durable.Permanent(errors.New("for good"))
		case 2:
			return durable.Snooze(10 * time.Millisecond)
		case 3:
			return durable.Cancel(errors.New("not wanted"))
		case 4:
			_, err := meet.Enqueue(ctx, run, meetArgs{}, durable.Unique("u"+strconv.Itoa(rand.IntN(3))))
			return err
		default:
			return run.SetResult(run.Args)
		}
	})
}

// recent are ids that the goroutines of a process tell each other.
type recent struct {
	mu  sync.Mutex
	ids []durable.RunID
}

func (r *recent) add(id durable.RunID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids = append(r.ids, id); len(r.ids) > 40 {
		r.ids = r.ids[1:]
	}
}

func (r *recent) some() []durable.RunID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []durable.RunID
	for range min(len(r.ids), 1+rand.IntN(4)) {
		ids = append(ids, r.ids[rand.IntN(len(r.ids))])
	}
	return ids
}

// peer is a process that enqueues, cancels, retries and deletes the same runs as
// its like, in eight goroutines.
func peer() error {
	lasts, err := time.ParseDuration(os.Getenv("CHAOS_PEER"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lasts+time.Minute)
	defer cancel()
	store, err := backend.Open(ctx, os.Getenv("DURABLE_DATABASE_URL"), backend.Config{MaxConns: 4})
	if err != nil {
		return err
	}
	defer store.Close()
	until, known := time.Now().Add(lasts), &recent{}
	var group sync.WaitGroup
	var faults [8]error
	for i := range faults {
		group.Go(func() {
			for time.Now().Before(until) && faults[i] == nil {
				faults[i] = meddle(ctx, store, known)
				<-time.After(time.Duration(rand.IntN(10)) * time.Millisecond)
			}
		})
	}
	group.Wait()
	return errors.Join(faults[:]...)
}

// meddle does one thing.
func meddle(ctx context.Context, store durable.Store, known *recent) error {
	operator := operate.New(store, operate.Config{}).As("peer")
	var err error
	switch rand.IntN(8) {
	case 0:
		_, err = operator.Cancel(ctx, "meddled with", known.some()...)
	case 1:
		_, err = operator.Retry(ctx, "", known.some()...)
	case 2:
		_, err = operator.Delete(ctx, "", known.some()...)
	case 3:
		var page durable.Page
		if page, err = store.Runs(ctx, durable.Filter{Limit: 20}); err == nil && len(page.Runs) > 0 {
			known.add(page.Runs[rand.IntN(len(page.Runs))].ID)
		}
	default:
		key := strconv.Itoa(rand.IntN(3))
		options := []durable.Option{durable.Unique("u" + key)}
		switch rand.IntN(4) {
		case 0:
			options[0] = durable.UniqueFor("u"+key, 300*time.Millisecond)
		case 1:
			options[0] = durable.Replace("r" + key)
		case 2:
			options[0] = durable.Debounce("r"+key, 20*time.Millisecond, 100*time.Millisecond)
		}
		options = append(options, durable.Priority(rand.IntN(3)))
		var receipt durable.Receipt
		if receipt, err = meet.Enqueue(ctx, durable.NewClient(store), meetArgs{N: 1}, options...); err == nil {
			known.add(receipt.ID)
		}
	}
	if errors.Is(err, durable.ErrNotFound) { // the only run of a command was deleted before
		return nil
	}
	return err
}

// startPeer runs a peer; its end is wanted to be without an error.
func startPeer(dsn string, lasts time.Duration) func() error {
	cmd := exec.Command(os.Args[0]) //nolint:gosec // the test binary itself
	cmd.Env = append(os.Environ(), "CHAOS_PEER="+lasts.String(), "GORACE=atexit_sleep_ms=0", "DURABLE_DATABASE_URL="+dsn)
	type ended struct {
		out []byte
		err error
	}
	end := make(chan ended, 1)
	go func() {
		out, err := cmd.CombinedOutput()
		end <- ended{out, err}
	}()
	return func() error {
		e := <-end
		if e.err != nil {
			return fmt.Errorf("peer: %w: %s", e.err, e.out)
		}
		return nil
	}
}

// meetEverywhere lets processes enqueue the same keys, and cancel, retry and
// delete the same runs, while others execute them and sweep what is a second old.
func meetEverywhere(t *testing.T, dsn string, peers int, lasts time.Duration) {
	t.Helper()
	for i := range 3 {
		startWorker(t, dsn, "w"+strconv.Itoa(i), "DURABLE_RETENTION=1s", "DURABLE_RETENTION_DEAD=1s", "DURABLE_SWEEP_INTERVAL=1s",
			"DURABLE_MAX_CONCURRENT_RUNS="+strconv.Itoa(1+20*i), "DURABLE_LOG_LEVEL=error")
	}
	ends := make([]func() error, peers)
	for i := range ends {
		ends[i] = startPeer(dsn, lasts)
	}
	for _, end := range ends {
		require.NoError(t, end())
	}
}

func TestEverythingMeets_SQLite(t *testing.T) {
	t.Parallel()
	dsn := sqliteDSN(t)
	store := openStore(t, dsn)
	meetEverywhere(t, dsn, 4, 5*time.Second)
	until(t, store, 3*time.Minute, "all runs end", nothingOpen)
}

// nothingOpen holds when all runs have ended. Those that were retried are swept
// by the next full pass only.
func nothingOpen(counts map[durable.State]store.Count) bool {
	return counts[durable.Pending].N+counts[durable.Running].N == 0
}

func TestEverythingMeets_PostgreSQL(t *testing.T) {
	dsn := pgtest.Database(t)
	store := openStore(t, dsn)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	_, err = conn.Exec(t.Context(), `
		create function never() returns trigger language plpgsql as $$ begin raise exception 'run % has ended in %: it is % now', old.id, old.state, new.state; end $$;
		create trigger ended before update on durable.runs for each row when (old.state = 2 or old.state > 2 and new.state not in (0, old.state)) execute function never()`)
	require.NoError(t, err)
	over, watched := make(chan struct{}), make(chan error, 1)
	go func() { watched <- watchKeys(dsn, over) }()
	meetEverywhere(t, dsn, 8, 12*time.Second)
	close(over)
	require.NoError(t, <-watched)
	until(t, store, 3*time.Minute, "all runs end", nothingOpen)
	requireNone(t, conn, map[string]string{
		"deadlocks":          "select deadlocks from pg_stat_database where datname = current_database()",
		"attempts of no run": "select count(*) from durable.attempts a where not exists (select from durable.runs r where r.id = a.run_id)",
		"problems of no run": "select count(*) from durable.problems a where not exists (select from durable.runs r where r.id = a.run_id)",
		"progress of no run": "select count(*) from durable.progress a where not exists (select from durable.runs r where r.id = a.run_id)",
		"steps of no run":    "select count(*) from durable.steps a where not exists (select from durable.runs r where r.id = a.run_id)",
		"inputs of no run":   "select count(*) from durable.inputs a where not exists (select from durable.runs r where r.id = a.run_id)",
		"places in line":     "select count(*) from durable.ready",
		"keys of no run":     "select count(*) from durable.unique_keys k where not exists (select from durable.runs r where r.id = k.run_id)",
	})
	// A lease that was held for a moment when its last run ended is left to the
	// next reclaim.
	require.Eventually(t, func() bool {
		var leases int
		err := conn.QueryRow(t.Context(), "select count(*) from durable.leases").Scan(&leases)
		return err == nil && leases == 0
	}, time.Minute, 50*time.Millisecond, "leases of nothing")
}

// watchKeys wants at most one run that has not ended of each key that is only
// ever unique.
func watchKeys(dsn string, over <-chan struct{}) error {
	conn, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	for looks := 1; ; looks++ {
		select {
		case <-over:
			return nil
		case <-time.After(time.Millisecond):
		}
		var twice string
		err := conn.QueryRow(context.Background(), `select coalesce(string_agg(runs, ', '), '') from (
			select key || ': ' || string_agg(id || ' in ' || state, ', ') runs from durable.runs where state < 2 and key like 'u%' group by key having count(*) > 1) k`).Scan(&twice)
		if err != nil {
			return err
		}
		if twice != "" {
			return fmt.Errorf("look %d: runs of one key that have not ended: %s", looks, twice)
		}
	}
}

func requireNone(t *testing.T, conn *pgx.Conn, queries map[string]string) {
	t.Helper()
	for what, query := range queries {
		var n int64
		require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&n))
		require.Zero(t, n, what)
	}
}
