package durablecmd_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuiltinJobsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	bodies := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- r.Header.Get("Idempotency-Key") + " " + string(body)
		_, _ = io.WriteString(w, `{"welcome":"ada"}`)
	}))
	t.Cleanup(receiver.Close)
	env := file(t, "DURABLE_HTTP_JOB_ALLOW="+receiver.URL+"/hooks", "DURABLE_EXEC_ALLOW=echo=/bin/echo")
	s := serve(t, env, stock)
	s.logs("worker started")

	id := strings.TrimSpace(execute(t, env, "enqueue", "http", "--args", `{"url":"`+receiver.URL+`/hooks/welcome","body":{"user":7}}`).stdout)
	require.Equal(t, id+` {"user":7}`, <-bodies)
	eventually(t, env, `"welcome": "ada"`, "runs", "show", id, "--json")
	id = strings.TrimSpace(execute(t, env, "enqueue", "exec", "--args", `{"command":"echo","args":["a; b"]}`).stdout)
	eventually(t, env, `"stdout": "a; b\n"`, "runs", "show", id, "--json")
	id = strings.TrimSpace(execute(t, env, "enqueue", "http", "--args", `{"url":"`+receiver.URL+`/admin"}`).stdout)
	eventually(t, env, "nothing in DURABLE_HTTP_JOB_ALLOW covers it", "runs", "show", id, "--json")
	id = strings.TrimSpace(execute(t, env, "enqueue", "exec", "--args", `{"command":"/bin/sh"}`).stdout)
	eventually(t, env, "it is not in DURABLE_EXEC_ALLOW", "runs", "show", id, "--json")
	eventually(t, env, `"state": "dead"`, "runs", "show", id, "--json")
	s.signal()
	require.Equal(t, 0, s.ends())
	require.Empty(t, bodies)
}

func TestBuiltinJobsAreOffUnlessTheyAreAllowed(t *testing.T) {
	t.Parallel()
	env := file(t)
	s := serve(t, env, stock)
	s.logs("worker started")
	for job, variable := range map[string]string{"http": "DURABLE_HTTP_JOB_ALLOW", "exec": "DURABLE_EXEC_ALLOW"} {
		args := map[string]string{"http": `{"url":"http://127.0.0.1:1"}`, "exec": `{"command":"/bin/true"}`}[job]
		id := strings.TrimSpace(execute(t, env, "enqueue", job, "--args", args).stdout)
		eventually(t, env, "the job "+job+" is not allowed on this worker: "+variable+" is not set", "runs", "show", id, "--json")
	}
	s.signal()
	require.Equal(t, 0, s.ends())
}

func TestBuiltinJobsMayBeLeftOut(t *testing.T) {
	t.Parallel()
	env := file(t, "DURABLE_BUILTIN_JOBS=exec, http")
	s := serve(t, env, stock)
	s.logs("worker started")
	sleep := strings.TrimSpace(execute(t, env, "enqueue", "sleep", "--args", `{"for":"1ms"}`).stdout)
	id := strings.TrimSpace(execute(t, env, "enqueue", "exec", "--args", `{"command":"/bin/true"}`).stdout)
	eventually(t, env, "DURABLE_EXEC_ALLOW is not set", "runs", "show", id, "--json")
	require.Contains(t, execute(t, env, "runs", "show", sleep, "--json").stdout, `"state": "pending"`)
	s.signal()
	require.Equal(t, 0, s.ends())
	for _, text := range []string{"exec,exec", "shell", "exec,", "log;sleep"} {
		e := execute(t, file(t, "DURABLE_BUILTIN_JOBS="+text), "config")
		require.Equal(t, 2, e.code, text)
		require.Contains(t, e.stderr, "DURABLE_BUILTIN_JOBS")
	}
}

func TestAListThatCannotBeReadIsNamed(t *testing.T) {
	t.Parallel()
	e := execute(t, file(t, "DURABLE_HTTP_JOB_ALLOW=https://ann:canary@api.example.com", "DURABLE_EXEC_ALLOW=bin/true"), "config")
	require.Equal(t, 2, e.code)
	require.Contains(t, e.stderr, "DURABLE_HTTP_JOB_ALLOW: ")
	require.Contains(t, e.stderr, "a user is not allowed here")
	require.Contains(t, e.stderr, `DURABLE_EXEC_ALLOW="bin/true": "bin/true": want an absolute path`)
	require.NotContains(t, e.stderr, "canary")
}
