package durablecmd_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

type workerList struct {
	Workers []struct {
		Name, Instance, State, Version string
		Queues, Jobs                   []string
		Capacity, Executing            int
	}
	Next *string
}

type servedList struct {
	Jobs, Queues []struct {
		Job, Queue, Name      string
		Pending, Due, Running store.Count
		ServedBy              int `json:"served_by"`
		Workers               []string
	}
}

func TestAWorkerIsListedUntilItStops(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{
		"sqlite":   file(t),
		"postgres": {"DURABLE_DATABASE_URL=" + pgtest.Database(t), "DURABLE_HTTP_ADDR=off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := append(env, "DURABLE_WORKER_NAME=web-7", "DURABLE_QUEUES=default,slow=2", "DURABLE_MAX_CONCURRENT_RUNS=7")
			begun, release := make(chan struct{}, 10), make(chan struct{})
			s := serve(t, env, holding(begun, release, true))
			s.logs("worker started")
			var list workerList
			require.Eventually(t, func() bool {
				list = decode[workerList](t, execute(t, env, "workers", "list", "--json").stdout)
				return len(list.Workers) == 1
			}, time.Minute, 10*time.Millisecond)
			w := list.Workers[0]
			require.Equal(t, []any{"web-7", "working", []string{"default", "slow"}, []string{"hold"}, 7}, []any{w.Name, w.State, w.Queues, w.Jobs, w.Capacity})
			require.Regexp(t, `web-7 +working +\d+m?s ago +\d+m?s ago +0/7 +default,slow +hold`, execute(t, env, "workers", "list").stdout)
			require.Regexp(t, `queues +default, slow\n`, execute(t, env, "workers", "show", "web-7").stdout)
			require.Regexp(t, `state +working\n`, execute(t, env, "workers", "show", w.Instance[:8]).stdout)
			e := execute(t, env, "workers", "show", "web-9")
			require.Equal(t, 1, e.code)
			require.Contains(t, e.stderr, `worker "web-9"`)

			e = execute(t, env, "enqueue", "hold")
			require.Equal(t, 0, e.code)
			require.Empty(t, e.stderr)
			<-begun
			e = execute(t, env, "enqueue", "hold", "--queue", "nosuch")
			require.Equal(t, 0, e.code)
			require.Contains(t, e.stderr, "no living worker serves job hold on queue nosuch: the run waits until one does")
			require.Contains(t, execute(t, env, "enqueue", "fly", "--force", "--json").stderr, "no living worker serves job fly on queue default")

			jobs := decode[servedList](t, execute(t, env, "jobs", "list", "--json").stdout).Jobs
			require.Len(t, jobs, 3)
			require.Equal(t, []any{"hold", "default", int64(1), 1, []string{"web-7"}}, []any{jobs[1].Job, jobs[1].Queue, jobs[1].Running.N, jobs[1].ServedBy, jobs[1].Workers})
			require.Equal(t, []any{"hold", "nosuch", int64(1), 0}, []any{jobs[2].Job, jobs[2].Queue, jobs[2].Due.N, jobs[2].ServedBy})
			require.Regexp(t, `hold +nosuch +1 +1 +0 +0 +\d+m?s ago +none\n`, execute(t, env, "jobs", "list").stdout)
			require.Regexp(t, `default +active +1 +1 +- +0 +\d+m?s ago +web-7\n`, execute(t, env, "queues", "list").stdout)
			e = execute(t, env, "doctor")
			require.Equal(t, 1, e.code)
			require.Contains(t, e.stdout, "no living worker serves job hold on queue nosuch: 1 run due")

			close(release)
			s.signal()
			require.Equal(t, 0, s.ends())
			require.Empty(t, decode[workerList](t, execute(t, env, "workers", "list", "--json").stdout).Workers, "it has stopped in order")
			require.Equal(t, "no workers\n", execute(t, env, "workers", "list").stdout)
			level, text := decode[diagnosis](t, execute(t, env, "doctor", "--json").stdout).level("workers")
			require.Equal(t, "failed", level)
			require.Contains(t, text, "0 workers alive; 2 runs due, the oldest for")
		})
	}
}

func TestJobsOfAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	env := file(t)
	require.Equal(t, 0, execute(t, env, "migrate", "up").code)
	require.Equal(t, "no jobs\n", execute(t, env, "jobs", "list").stdout)
	require.JSONEq(t, `{"jobs":[],"next":null}`, execute(t, env, "jobs", "list", "--json").stdout)
	require.JSONEq(t, `{"workers":[],"next":null}`, execute(t, env, "workers", "list", "--json").stdout)
}

func TestAWorkerServesMetrics(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{
		"sqlite":   append(file(t), "DURABLE_HTTP_ADDR=127.0.0.1:0"),
		"postgres": {"DURABLE_DATABASE_URL=" + pgtest.Database(t), "DURABLE_HTTP_ADDR=127.0.0.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, append(env, "DURABLE_MAX_CONCURRENT_RUNS=7"), stock)
			address := s.address()
			becomes(t, address, "/readyz", http.StatusOK)
			require.Equal(t, 0, execute(t, env, "enqueue", "log", "--args", `{"message":"x"}`, "--wait").code)
			var text string
			require.Eventually(t, func() bool {
				text = scrape(t, address)
				return strings.Contains(text, `durable_runs_settled_total{job="log",queue="default",outcome="success"} 1`)
			}, time.Minute, 10*time.Millisecond)
			require.Contains(t, text, "\ndurable_worker_capacity 7\n")
			require.Contains(t, text, "\ndurable_worker_ready 1\n")
			require.Contains(t, text, `durable_run_wait_seconds_count{job="log",queue="default"} 1`)
			require.Equal(t, name == "postgres", strings.Contains(text, `durable_pool_connections_max{pool="engine"} 4`))
			require.NotContains(t, text, "message")
			s.signal()
			require.Equal(t, 0, s.ends())
		})
	}
}

func scrape(t *testing.T, address string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	require.NoError(t, err)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	return string(text)
}
