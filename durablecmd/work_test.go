package durablecmd_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/internal/pgtest"
)

// status asks the health listener.
func status(t *testing.T, address, path string) (int, map[string]any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	require.NoError(t, err)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = response.Body.Close() }()
	var body map[string]any
	_ = json.NewDecoder(response.Body).Decode(&body) // a 404 has none
	return response.StatusCode, body
}

func becomes(t *testing.T, address, path string, want int) map[string]any {
	t.Helper()
	var body map[string]any
	require.Eventually(t, func() bool {
		var code int
		code, body = status(t, address, path)
		return code == want
	}, time.Minute, 10*time.Millisecond)
	return body
}

// holding registers a job whose handler waits for what it is given; it tells
// when it has begun. A nil release is never ready.
func holding(begun chan<- struct{}, release <-chan struct{}, heedsContext bool) func(context.Context, *durablecmd.App) error {
	return func(_ context.Context, app *durablecmd.App) error {
		durable.Register(app.Worker, durable.NewJob[struct{}]("hold"), func(ctx context.Context, _ *durable.Run[struct{}]) error {
			begun <- struct{}{}
			if !heedsContext {
				ctx = context.WithoutCancel(ctx)
			}
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		return nil
	}
}

func TestAWorkerExecutesWhatTheCommandLineEnqueues(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{
		"sqlite":   file(t, "DURABLE_POLL_INTERVAL=1h"), // woken, not by chance
		"postgres": {"DURABLE_DATABASE_URL=" + pgtest.Database(t), "DURABLE_SCHEMA=mine", "DURABLE_HTTP_ADDR=off", "DURABLE_LOG_LEVEL=debug", "DURABLE_POLL_INTERVAL=1h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, env, stock)
			s.logs("worker started")
			id := strings.TrimSpace(execute(t, env, "enqueue", "log", "--args", `{"message":"good morning"}`).stdout)
			s.logs(`"message":"good morning"`)
			eventually(t, env, "succeeded", "runs", "show", id)
			nap := strings.TrimSpace(execute(t, env, "enqueue", "sleep", "--args", `{"for":"1ms"}`).stdout)
			eventually(t, env, "succeeded", "runs", "show", nap)
			bad := strings.TrimSpace(execute(t, env, "enqueue", "sleep", "--args", `{"for":"long"}`, "--max-attempts", "1", "--force").stdout)
			eventually(t, env, "dead", "runs", "show", bad)
			s.signal()
			require.Equal(t, 0, s.ends())
			for _, text := range []string{"worker starting", "signal received", "worker draining", "worker stopped", `"run":"` + id} {
				require.Contains(t, s.stderr.String(), text)
			}
		})
	}
}

func TestTheFirstSignalLetsHandlersFinish(t *testing.T) {
	t.Parallel()
	env := file(t)
	begun, release := make(chan struct{}, 1), make(chan struct{})
	s := serve(t, env, holding(begun, release, true))
	address := s.address()
	require.Equal(t, true, becomes(t, address, "/readyz", http.StatusOK)["ready"])
	id := strings.TrimSpace(execute(t, env, "enqueue", "hold").stdout)
	<-begun
	s.signal()
	body := becomes(t, address, "/readyz", http.StatusServiceUnavailable)
	require.Equal(t, "draining", body["reason"])
	require.InDelta(t, 1, body["executing"], 0)
	code, _ := status(t, address, "/healthz")
	require.Equal(t, http.StatusOK, code)
	close(release)
	require.Equal(t, 0, s.ends())
	require.Contains(t, execute(t, env, "runs", "show", id).stdout, "succeeded")
	code, _ = status(t, address, "/healthz")
	require.Zero(t, code, "no one listens any more")
}

func TestTheSecondSignalEndsTheDrain(t *testing.T) {
	t.Parallel()
	env := file(t, "DURABLE_DRAIN_TIMEOUT=1h")
	begun := make(chan struct{}, 1)
	s := serve(t, env, holding(begun, nil, true))
	s.logs("worker started")
	id := strings.TrimSpace(execute(t, env, "enqueue", "hold").stdout)
	<-begun
	s.signal()
	s.logs("worker draining")
	s.signal()
	require.Equal(t, 0, s.ends())
	run := execute(t, env, "runs", "show", id, "--json").stdout
	require.Contains(t, run, `"state": "pending"`)
	require.Contains(t, run, `"attempt": 0`)
}

// A program such as timeout signals the process and then its group.
func TestSimultaneousSignalsAreOne(t *testing.T) {
	t.Parallel()
	env := file(t, "DURABLE_DRAIN_TIMEOUT=1h")
	begun, release := make(chan struct{}, 1), make(chan struct{})
	s := serveWith(t, durablecmd.Start{Env: env, Setup: holding(begun, release, true), OneSignal: time.Hour})
	s.logs("worker started")
	id := strings.TrimSpace(execute(t, env, "enqueue", "hold").stdout)
	<-begun
	for range 5 { // no more than three fit, so two have been taken
		s.signal()
	}
	s.logs("worker draining")
	close(release)
	require.Equal(t, 0, s.ends())
	require.Contains(t, execute(t, env, "runs", "show", id).stdout, "succeeded")
}

func TestTheThirdSignalExits(t *testing.T) {
	t.Parallel()
	env := file(t, "DURABLE_DRAIN_TIMEOUT=1h", "DURABLE_CANCEL_GRACE=1h")
	begun, release := make(chan struct{}, 1), make(chan struct{})
	s := serve(t, env, holding(begun, release, false))
	s.logs("worker started")
	require.Equal(t, 0, execute(t, env, "enqueue", "hold").code)
	<-begun
	for range 3 {
		s.signal()
	}
	require.Equal(t, 1, <-s.exited)
	close(release) // a real exit would have ended the handler
	s.ends()
}

func TestAHandlerThatIgnoresItsContextIsAFailure(t *testing.T) {
	t.Parallel()
	env := file(t, "DURABLE_DRAIN_TIMEOUT=0s", "DURABLE_CANCEL_GRACE=0s")
	begun, release := make(chan struct{}, 1), make(chan struct{})
	defer close(release)
	s := serve(t, env, holding(begun, release, false))
	s.logs("worker started")
	id := strings.TrimSpace(execute(t, env, "enqueue", "hold").stdout)
	<-begun
	s.signal()
	require.Equal(t, 1, s.ends())
	require.Contains(t, s.stderr.String(), id)
}

func TestOnStopIsCalledInReverse(t *testing.T) {
	t.Parallel()
	var order []string
	s := serve(t, file(t), func(ctx context.Context, app *durablecmd.App) error {
		require.NotNil(t, app.Client)
		require.NotNil(t, app.Logger)
		app.OnStop(func(context.Context) error { order = append(order, "first"); return errors.New("no ink") })
		app.OnStop(func(ctx context.Context) error {
			order = append(order, "second")
			_, err := app.Store.Jobs(ctx) // the store is still open
			return err
		})
		return stock(ctx, app)
	})
	s.logs("worker started")
	s.signal()
	require.Equal(t, 1, s.ends())
	require.Equal(t, []string{"second", "first"}, order)
	require.Contains(t, s.stderr.String(), "no ink")
}

func TestAFailedSetupEndsTheProgram(t *testing.T) {
	t.Parallel()
	s := serve(t, file(t), func(context.Context, *durablecmd.App) error { return errors.New("no smtp server") })
	require.Equal(t, 1, s.ends())
	require.Contains(t, s.stderr.String(), "no smtp server")
}

func TestOnlyADefaultAddressGivesWay(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	s := serve(t, file(t, "DURABLE_HTTP_ADDR="+taken.Addr().String()), stock)
	require.Equal(t, 1, s.ends())
	require.Contains(t, s.stderr.String(), "DURABLE_HTTP_ADDR")
	require.Contains(t, s.stderr.String(), "address already in use")

	// Two programs with the default: both start, at different addresses.
	env := file(t)[:1]
	one, two := serve(t, env, stock), serve(t, env, stock)
	first, second := one.address(), two.address()
	require.NotEqual(t, first, second)
	for _, address := range []string{first, second} {
		require.True(t, strings.HasPrefix(address, "127.0.0.1:"), address)
		becomes(t, address, "/readyz", http.StatusOK)
	}

	for _, off := range []string{"off", ""} {
		quiet := serve(t, file(t, "DURABLE_HTTP_ADDR="+off), stock)
		quiet.logs("worker started")
		require.NotContains(t, quiet.stderr.String(), "health listener")
	}
}

func TestTheListenerServesHealthAndMetricsAndNothingElse(t *testing.T) {
	t.Parallel()
	s := serve(t, file(t), stock)
	address := s.address()
	for _, path := range []string{"/", "/metrics/", "/debug/pprof/", "/debug/vars", "/api/v1/runs", "/healthz/", "/readyz/x", "/..%2fetc/passwd"} {
		code, _ := status(t, address, path)
		require.Equal(t, http.StatusNotFound, code, path)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/readyz", strings.NewReader("x"))
	require.NoError(t, err)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusMethodNotAllowed, response.StatusCode)
}

func TestAWorkerWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	cluster := pgtest.StartPrivate(t, pgtest.Options{})
	cluster.Stop(t, pgtest.Fast)
	env := []string{"DURABLE_DATABASE_URL=" + cluster.URL(), "DURABLE_HTTP_ADDR=127.0.0.1:0"}
	s := serve(t, env, stock)
	s.logs("the database cannot be reached")
	address := s.address()
	require.Equal(t, "the database has not been reached yet", becomes(t, address, "/readyz", http.StatusServiceUnavailable)["reason"])
	becomes(t, address, "/healthz", http.StatusOK)
	e := execute(t, env, "runs", "list", "--json")
	require.Equal(t, 1, e.code)
	require.Equal(t, "unreachable", decode[failure](t, e.stderr).Error.Code)
	cluster.Start(t)
	becomes(t, address, "/readyz", http.StatusOK)
	s.signal()
	require.Equal(t, 0, s.ends())
}

func TestASignalEndsTheWaitForTheDatabase(t *testing.T) {
	t.Parallel()
	s := serve(t, []string{"DURABLE_DATABASE_URL=postgres://ann:canary@127.0.0.1:1/app", "DURABLE_HTTP_ADDR=off"}, stock)
	s.logs("the database cannot be reached")
	s.signal()
	require.Equal(t, 0, s.ends())
	require.NotContains(t, s.stderr.String(), "canary")
}

func TestADatabaseThatRefusesIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	before, after, _ := strings.Cut(url, "?")
	s := serve(t, []string{"DURABLE_DATABASE_URL=" + before + "_nowhere?" + after, "DURABLE_HTTP_ADDR=off"}, stock)
	require.Equal(t, 1, s.ends())
	require.Contains(t, s.stderr.String(), "does not exist")
}

func TestReadinessTellsOfOutcomesThatTheDatabaseDoesNotTake(t *testing.T) {
	t.Parallel()
	env := file(t, "DURABLE_LEASE_DURATION=2s", "DURABLE_DRAIN_TIMEOUT=1s", "DURABLE_CANCEL_GRACE=1s")
	release := make(chan struct{})
	s := serve(t, env, holding(make(chan struct{}, 1), release, true))
	address := s.address()
	require.Nil(t, becomes(t, address, "/readyz", http.StatusOK)["unsettled"])
	path := strings.TrimPrefix(env[0], "DURABLE_DATABASE_URL=sqlite:")
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), "create trigger refuse before update on runs when new.state > 1 begin select raise(abort, 'no'); end")
	require.NoError(t, err)
	id := strings.TrimSpace(execute(t, env, "enqueue", "hold").stdout)
	close(release)
	var aside any
	require.Eventually(t, func() bool {
		aside = becomes(t, address, "/readyz", http.StatusOK)["unsettled"]
		return aside != nil
	}, time.Minute, 50*time.Millisecond)
	require.Equal(t, map[string]any{"count": 1.0, "runs": []any{id}, "locked": 0.0}, aside)
	s.signal()
	require.Equal(t, 1, s.ends(), "an outcome is lost")
	require.Contains(t, s.stderr.String(), "the store did not accept the outcomes of 1 runs")
}

// A program that is at work when the schema becomes too new for it stops taking
// work, says why, and goes on when it fits again.
func TestAWorkerNoticesASchemaThatItCannotServe(t *testing.T) {
	t.Parallel()
	server, files := pgtest.Database(t), file(t, "DURABLE_POLL_INTERVAL=1s")
	db, err := sql.Open("sqlite", strings.TrimPrefix(files[0], "DURABLE_DATABASE_URL=sqlite:")+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for name, c := range map[string]struct {
		env []string
		set func(minCompatible string)
	}{
		"sqlite": {files, func(minCompatible string) {
			_, err := db.ExecContext(t.Context(), "update meta set min_compatible = "+minCompatible)
			require.NoError(t, err)
		}},
		"postgres": {append([]string{"DURABLE_DATABASE_URL=" + server}, files[1:]...), func(minCompatible string) {
			pgtest.Execute(t, server, "update durable.meta set min_compatible = "+minCompatible)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, c.env, stock)
			becomes(t, s.address(), "/readyz", http.StatusOK)
			c.set("1000")
			body := becomes(t, s.address(), "/readyz", http.StatusServiceUnavailable)
			require.Contains(t, body["reason"], "the database's schema does not fit this program")
			require.Contains(t, body["reason"], "1000")
			c.set("1")
			becomes(t, s.address(), "/readyz", http.StatusOK)
			s.logs("the schema can be served again")
			s.signal()
			require.Zero(t, s.ends())
		})
	}
}
