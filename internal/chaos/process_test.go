package chaos_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// Jobs of the worker processes of these tests.
type (
	napArgs struct {
		For   store.Duration `json:"for"`
		Until string         `json:"until,omitempty"` // a file: sleeps until it is there
	}
	deathArgs struct{}
)

var (
	nap   = durable.NewJob[napArgs]("nap")
	death = durable.NewJob[deathArgs]("death")
)

// TestMain turns the test binary into a worker process when asked to.
func TestMain(m *testing.M) {
	if os.Getenv("CHAOS_PEER") != "" {
		if err := peer(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv("CHAOS_WORKER") == "" {
		os.Exit(m.Run())
	}
	if err := stepClock(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	durablecmd.Main(func(_ context.Context, app *durablecmd.App) error {
		durable.Register(app.Worker, nap, func(ctx context.Context, run *durable.Run[napArgs]) error {
			for {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(time.Duration(run.Args.For)):
				}
				if _, err := os.Stat(run.Args.Until); run.Args.Until == "" || err == nil {
					return nil
				}
			}
		})
		durable.Register(app.Worker, death, func(context.Context, *durable.Run[deathArgs]) error {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		})
		registerMeet(app)
		registerBounded(app)
		registerSpin(app)
		registerJourney(app)
		registerShipment(app)
		registerMortal(app)
		registerBatches(app)
		return nil
	})
}

// worker is one process of the program.
type worker struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	done chan struct{}

	mu   sync.Mutex
	logs bytes.Buffer
}

const (
	leaseDuration = 4 * time.Second
	pollInterval  = 200 * time.Millisecond
	drainTimeout  = time.Second
	cancelGrace   = 5 * time.Second
)

// startWorker runs a worker process with short terms until the test ends.
func startWorker(t *testing.T, dsn, name string, env ...string) *worker {
	t.Helper()
	return startWorkerIn(t, dsn, name, func(*exec.Cmd) {}, env...)
}

// startWorkerIn is startWorker in other surroundings.
func startWorkerIn(t *testing.T, dsn, name string, surround func(*exec.Cmd), env ...string) *worker {
	t.Helper()
	w := &worker{t: t, name: name, done: make(chan struct{})}
	w.cmd = exec.Command(os.Args[0], "work") //nolint:gosec // the test binary itself
	w.cmd.Env = append(os.Environ(), "CHAOS_WORKER=1", "GORACE=atexit_sleep_ms=0", "DURABLE_DATABASE_URL="+dsn, "DURABLE_WORKER_NAME="+name,
		"DURABLE_LEASE_DURATION="+leaseDuration.String(), "DURABLE_POLL_INTERVAL="+pollInterval.String(),
		"DURABLE_DRAIN_TIMEOUT="+drainTimeout.String(), "DURABLE_CANCEL_GRACE="+cancelGrace.String(), "DURABLE_HTTP_ADDR=off", "DURABLE_LOG_FORMAT=text")
	w.cmd.Env = append(w.cmd.Env, env...)
	w.cmd.Stdout, w.cmd.Stderr = w, w
	surround(w.cmd)
	require.NoError(t, w.cmd.Start())
	go func() { _ = w.cmd.Wait(); close(w.done) }()
	t.Cleanup(func() {
		_ = w.cmd.Process.Signal(syscall.SIGCONT)
		_ = w.cmd.Process.Kill()
		<-w.done
		if t.Failed() {
			t.Logf("log of %s:\n%s", w.name, w.log())
		}
	})
	return w
}

// Write takes in the worker's output.
func (w *worker) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.logs.Write(p)
}

func (w *worker) log() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.logs.String()
}

func (w *worker) signal(s os.Signal) time.Time {
	w.t.Helper()
	require.NoError(w.t, w.cmd.Process.Signal(s))
	return time.Now()
}

// exited waits for the process and returns when it ended.
func (w *worker) exited() time.Time {
	w.t.Helper()
	select {
	case <-w.done:
		return time.Now()
	case <-time.After(2 * time.Minute):
		w.t.Fatalf("%s did not exit", w.name)
		return time.Time{}
	}
}

// openStore opens and migrates the store that the processes share.
func openStore(t *testing.T, dsn string) backend.Store {
	t.Helper()
	store, err := backend.Open(t.Context(), dsn, backend.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	return store
}

// enqueueNaps enqueues n runs that take d each.
func enqueueNaps(t *testing.T, db durable.Store, n int, d time.Duration) []durable.RunID {
	t.Helper()
	return enqueueAlike(t, db, n, napArgs{For: store.Duration(d)})
}

// enqueueHeld enqueues n runs that end when they are released: however slow the
// machine is, they are all under way until then.
func enqueueHeld(t *testing.T, db durable.Store, n int, until string) []durable.RunID {
	t.Helper()
	return enqueueAlike(t, db, n, napArgs{For: store.Duration(50 * time.Millisecond), Until: until})
}

func release(t *testing.T, until string) {
	t.Helper()
	require.NoError(t, os.WriteFile(until, nil, 0o600))
}

// enqueueTries bounds the repeats of an enqueue that fails.
const enqueueTries = 5

func enqueueAlike(t *testing.T, store durable.Store, n int, args napArgs) []durable.RunID {
	t.Helper()
	runs := make([]durable.NewRun, n)
	ids := make([]durable.RunID, n)
	for i := range runs {
		runs[i] = nap.New(args)
		ids[i] = runs[i].ID
	}
	_, err := durable.NewClient(store).Enqueue(t.Context(), runs...)
	for try := 0; err != nil && try < enqueueTries; try++ { // the connection may be what the test ends; a repeat is harmless
		_, err = durable.NewClient(store).Enqueue(t.Context(), runs...)
	}
	require.NoError(t, err)
	return ids
}

// until waits for a condition on the counts of runs by state.
func until(t *testing.T, db durable.Store, limit time.Duration, what string, holds func(map[durable.State]store.Count) bool) {
	t.Helper()
	var counts map[durable.State]store.Count
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		got, err := db.Counts(ctx)
		cancel()
		if err == nil {
			if counts = got; holds(got) {
				return
			}
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Fatalf("%s: not within %v, counts are %v", what, limit, counts)
}

func succeeded(n int) func(map[durable.State]store.Count) bool {
	return func(c map[durable.State]store.Count) bool { return c[durable.Succeeded].N == int64(n) }
}

// runningOn returns the runs that a worker has in hand.
func runningOn(t *testing.T, store durable.Store, name string) map[durable.RunID]durable.Record {
	t.Helper()
	held := map[durable.RunID]durable.Record{}
	filter := durable.Filter{States: []durable.State{durable.Running}, Limit: 200}
	for {
		page, err := store.Runs(t.Context(), filter)
		require.NoError(t, err)
		for _, r := range page.Runs {
			if r.Worker != nil && *r.Worker == name {
				held[r.ID] = r
			}
		}
		if page.Next == (durable.RunID{}) {
			return held
		}
		filter.Before = page.Next
	}
}

func record(t *testing.T, store durable.Store, id durable.RunID) durable.Record {
	t.Helper()
	r, err := store.Run(t.Context(), id)
	require.NoError(t, err)
	return r
}

// crashes wants the run to have lost its worker so many times. A worker that
// says itself that it lost a lease was stopped by a busy machine for longer than
// its leases last, which is a crash too.
func crashes(t *testing.T, want int, r durable.Record, living ...*worker) {
	t.Helper()
	for _, w := range living {
		if strings.Contains(w.log(), `msg="lease lost"`) {
			t.Logf("%s lost a lease: the machine was too slow to tell crashes", w.name)
			require.GreaterOrEqual(t, r.CrashCount, want)
			return
		}
	}
	require.Equal(t, want, r.CrashCount)
}

// failures lists the attempts that were charged to a run without a success.
func failures(r durable.Record) (list []string) {
	for _, a := range r.Attempts {
		if a.Outcome != store.Success && a.Outcome != store.Crash {
			list = append(list, fmt.Sprintf("%s on %s: %v", a.Outcome, a.Worker, a.Error))
		}
	}
	return list
}
