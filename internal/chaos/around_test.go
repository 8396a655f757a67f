package chaos_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// logInto gives a worker a pipe for its output, and returns the other end.
func logInto(t *testing.T) (surround func(*exec.Cmd), reader *os.File) {
	t.Helper()
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = reader.Close(), writer.Close() })
	return func(cmd *exec.Cmd) {
		cmd.Stdout, cmd.Stderr = writer, writer
		cmd.Env = append(cmd.Env, "DURABLE_LOG_LEVEL=debug")
	}, reader
}

// ended waits until a worker has exited, and returns its exit code and how long that took.
func (w *worker) ended(since time.Time) (code int, took time.Duration) {
	w.t.Helper()
	took = w.exited().Sub(since)
	return w.cmd.ProcessState.ExitCode(), took
}

// probe is the answer of a worker.
func probe(t *testing.T, address, path string) (code int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	body, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body)
}

func answersWith(t *testing.T, address, path string, want int) (text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		code, body := probe(t, address, path)
		text = body
		return code == want
	}, time.Minute, 20*time.Millisecond, "%s: %s", path, text)
	return text
}

// leases counts them all.
func leases(t *testing.T, dsn string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	require.NoError(t, conn.QueryRow(t.Context(), "select count(*) from durable.leases").Scan(&n))
	return n
}

// TestALogThatIsNotRead simulates a log driver that hangs: the worker logs more than its pipe
// holds. It has to execute, settle, drain and exit nevertheless, and its probes have to fail
// after a lease.
func TestALogThatIsNotRead(t *testing.T) {
	t.Parallel()
	dsn, address := pgtest.Database(t), freeAddress(t)
	db := openStore(t, dsn)
	surround, _ := logInto(t)
	w := startWorkerIn(t, dsn, "unheard", surround, "DURABLE_HTTP_ADDR="+address, "DURABLE_LEASE_DURATION=3s")
	answersWith(t, address, "/readyz", http.StatusOK)
	enqueueNaps(t, db, 800, 0) // three lines each
	until(t, db, time.Minute, "all of them end", succeeded(800))
	for _, path := range []string{"/readyz", "/healthz"} {
		require.Contains(t, answersWith(t, address, path, http.StatusServiceUnavailable), "the log is not read: a write to it has not returned for ")
	}
	ids := enqueueNaps(t, db, 100, time.Hour)
	until(t, db, time.Minute, "it goes on", func(c map[durable.State]store.Count) bool { return c[durable.Running].N == 100 })
	code, took := w.ended(w.signal(syscall.SIGTERM))
	require.Equal(t, 0, code)
	require.Less(t, took, drainTimeout+cancelGrace+10*time.Second)
	for _, id := range ids[:3] {
		r := record(t, db, id)
		require.Equal(t, durable.Pending, r.State, "it was handed back")
		require.Zero(t, r.CrashCount)
	}
	require.Zero(t, leases(t, dsn))
}

// TestALogThatIsReadLate: nothing is lost that fits, and what does not fit is counted.
func TestALogThatIsReadLate(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := openStore(t, dsn)
	surround, reader := logInto(t)
	w := startWorkerIn(t, dsn, "late", surround)
	ids := enqueueNaps(t, db, 800, 0)
	until(t, db, time.Minute, "all of them end", succeeded(800))
	w.signal(syscall.SIGTERM)
	seen, last := map[string]int{}, ""
	require.NoError(t, reader.SetReadDeadline(time.Now().Add(time.Minute)))
	for lines := bufio.NewScanner(reader); lines.Scan(); {
		if last = lines.Text(); strings.Contains(last, "event=run.ended ") {
			_, rest, _ := strings.Cut(last, " run=")
			id, _, _ := strings.Cut(rest, " ")
			seen[id]++
		}
		if strings.Contains(last, "event=worker.stopped") {
			break // the test holds the other end too
		}
	}
	code, _ := w.ended(time.Now())
	require.Equal(t, 0, code)
	require.Contains(t, last, "event=worker.stopped")
	for _, id := range ids {
		require.Equal(t, 1, seen[id.String()], "each line once")
	}
}

// TestAReaderOfTheLogThatGoesAway: `worker | logger`, and both are signalled. The worker
// drains, and a run that must not begin again is not dead.
func TestAReaderOfTheLogThatGoesAway(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db, gate := openStore(t, dsn), filepath.Join(t.TempDir(), "gate")
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	w := startWorkerIn(t, dsn, "first", func(cmd *exec.Cmd) { cmd.Stdout, cmd.Stderr = writer, writer })
	require.NoError(t, writer.Close())
	once := nap.New(napArgs{Until: gate}, durable.OnCrash(durable.CrashDead))
	_, err = durable.NewClient(db).Enqueue(t.Context(), once)
	require.NoError(t, err)
	enqueueHeld(t, db, 20, gate)
	until(t, db, time.Minute, "all are under way", func(c map[durable.State]store.Count) bool { return c[durable.Running].N == 21 })
	<-time.After(time.Second) // the answer of the claim may be on its way: what has not begun is handed back immediately

	require.NoError(t, reader.Close())
	code, took := w.ended(w.signal(syscall.SIGTERM))
	require.Equal(t, 0, code, "141 is an end by SIGPIPE")
	require.GreaterOrEqual(t, took, drainTimeout)
	require.Less(t, took, drainTimeout+cancelGrace)
	require.Zero(t, leases(t, dsn))
	r := record(t, db, once.ID)
	require.Equal(t, durable.Pending, r.State)
	require.Zero(t, r.CrashCount)

	startWorker(t, dsn, "second")
	release(t, gate)
	until(t, db, time.Minute, "the next worker executes them", succeeded(21))
}

// limited has the worker started with few descriptors.
func limited(descriptors int) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.Args = []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" work`, descriptors), cmd.Path}
		cmd.Path = "/bin/sh"
	}
}

// TestFewDescriptors: clients of the health listener take all that the process may have, and
// its connections to the database are ended. It says what it lacks, and goes on afterwards.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := openStore(t, dsn)
	w := startWorkerIn(t, dsn, "crowded", limited(32), "DURABLE_HTTP_ADDR=127.0.0.1:0")
	address := w.address(t, "health listener ready")
	answersWith(t, address, "/readyz", http.StatusOK)

	crowding, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() { crowd(crowding, address); close(left) }()
	require.Eventually(t, func() bool { return strings.Contains(w.log(), "event=listener.accept_failed") }, time.Minute, 20*time.Millisecond)
	require.Regexp(t, `event=listener.accept_failed listener=health error="[^"]*too many open files"`, w.log())
	admin, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = admin.Close(context.Background()) }()
	noConnection := func() bool {
		_, err := admin.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and application_name like 'durable%' and pid <> pg_backend_pid()`)
		require.NoError(t, err)
		return strings.Contains(w.log(), "socket: too many open files")
	}
	require.Eventually(t, noConnection, time.Minute, 100*time.Millisecond, "the cause is in the log")
	leave()
	<-left

	enqueueNaps(t, db, 50, time.Millisecond)
	until(t, db, time.Minute, "it has descriptors again", succeeded(50))
	answersWith(t, address, "/readyz", http.StatusOK)
	code, _ := w.ended(w.signal(syscall.SIGTERM))
	require.Equal(t, 0, code)
}

// crowd opens connections and says nothing, until ctx ends.
func crowd(ctx context.Context, address string) {
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			_ = conn.Close()
		}
	}()
	for ctx.Err() == nil {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err != nil {
			continue
		}
		if open = append(open, conn); len(open) > 64 {
			_ = open[0].Close()
			open = open[1:]
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// TestTooFewDescriptorsForSQLite: a worker that cannot open its file says what it lacks.
func TestTooFewDescriptorsForSQLite(t *testing.T) {
	t.Parallel()
	dsn := sqliteDSN(t)
	openStore(t, dsn)
	unable := 0
	for descriptors := 9; descriptors < 16; descriptors++ {
		w := startWorkerIn(t, dsn, fmt.Sprintf("with %d", descriptors), limited(descriptors))
		require.Eventually(t, func() bool {
			select {
			case <-w.done:
				return true
			default:
				return strings.Contains(w.log(), "event=worker.started")
			}
		}, time.Minute, 5*time.Millisecond)
		_ = w.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		w.exited()
		if log := w.log(); strings.Contains(log, "event=worker.failed") {
			require.Contains(t, log, "too many open files", log)
			unable += strings.Count(log, "unable to open database file (14): open ")
		}
	}
	require.Positive(t, unable)
}
