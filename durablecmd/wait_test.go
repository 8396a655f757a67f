package durablecmd_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
)

var answer = durable.NewJob[string]("answer", durable.MaxAttempts(1))

func answers(_ context.Context, app *durablecmd.App) error {
	durable.Register(app.Worker, answer, func(ctx context.Context, run *durable.Run[string]) error {
		run.Log().Info("asked", "for", run.Args+"\x1b[31m")
		if err := run.Progress(ctx, 0.5, "half of it"); err != nil {
			return err
		}
		if err := run.Checkpoint(ctx, map[string]int{"page": 3}); err != nil {
			return err
		}
		if run.Args == "bad" {
			return durable.Permanent(errors.New("no answer"))
		}
		return run.SetResult(42)
	})
	return nil
}

func TestWaitingForARun(t *testing.T) {
	t.Parallel()
	env := file(t)
	s := serve(t, env, answers)
	s.logs("worker started")

	e := execute(t, env, "enqueue", "answer", "--args", `"good"`, "--wait")
	require.Equal(t, 0, e.code, e.stderr)
	id := strings.TrimSpace(e.stdout)
	e = execute(t, env, "runs", "wait", id, "--json")
	require.Equal(t, 0, e.code, e.stderr)
	record := decode[durable.Record](t, e.stdout)
	require.Equal(t, durable.Succeeded, record.State)
	require.JSONEq(t, `42`, string(record.Result))
	require.JSONEq(t, `{"page":3}`, string(record.Checkpoint))
	require.Equal(t, "half of it", record.Progress.Note)
	require.Contains(t, *record.Attempts[0].Log, "asked")
	shown := execute(t, env, "runs", "show", id).stdout
	for _, text := range []string{"50 % half of it", `{"page":3}`, "log of execution 1 (attempt 1 of 1):\ntime=", "msg=asked"} {
		require.Contains(t, shown, text)
	}
	require.NotContains(t, shown, "\x1b")

	e = execute(t, env, "enqueue", "answer", "--args", `"bad"`, "--wait")
	require.Equal(t, 3, e.code)
	id = strings.TrimSpace(e.stdout)
	require.Equal(t, "durable-worker: run "+id+" is dead: no answer\n", e.stderr)
	e = execute(t, env, "runs", "wait", id, "--json")
	require.Equal(t, 3, e.code)
	require.Equal(t, durable.Dead, decode[durable.Record](t, e.stdout).State)
	require.Equal(t, "failed", decode[failure](t, e.stderr).Error.Code)

	id = strings.TrimSpace(execute(t, env, "enqueue", "answer", "--in", "1h", "--args", `""`).stdout)
	e = execute(t, env, "runs", "wait", id, "--timeout", "100ms")
	require.Equal(t, 4, e.code)
	require.Contains(t, e.stderr, "has not ended within 100ms")
	require.Equal(t, "timed_out", decode[failure](t, execute(t, env, "runs", "wait", id, "--timeout", "1ms", "--json").stderr).Error.Code)
	require.Equal(t, 0, execute(t, env, "runs", "cancel", id).code)
	require.Equal(t, 3, execute(t, env, "runs", "wait", id).code, "it is cancelled")
	unknown := execute(t, env, "runs", "wait", durable.NewRunID().String(), "--json")
	require.Equal(t, "not_found", decode[failure](t, unknown.stderr).Error.Code)
	require.Equal(t, 1, unknown.code)
	require.Contains(t, execute(t, env, "--help").stdout, "4 it did not end in time")
	require.Equal(t, 2, execute(t, env, "runs", "wait", "7").code)
	require.Equal(t, 2, execute(t, env, "runs", "wait", id, "--timeout=-1s").code)
	s.signal()
	require.Equal(t, 0, s.ends())
}
