package durablecmd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// hostileName is a name that a step may have, and that a terminal may obey.
const hostileName = "a\u202eb"

// waiter registers a job that records steps, and waits for the input approved.
func waiter(ctx context.Context, app *durablecmd.App) error {
	durable.Register(app.Worker, durable.NewJob[map[string]string]("order"), func(ctx context.Context, run *durable.Run[map[string]string]) error {
		_, err := durable.Step(ctx, run, hostileName, func(context.Context) (map[string]string, error) {
			return map[string]string{"token": "canary", "says": hostile}, nil
		})
		if err != nil {
			return err
		}
		_, err = durable.Step(ctx, run, "charge", func(context.Context) (int, error) { return 0, textError(hostile) }, durable.StepAttempts(1))
		if !durable.Final(err) {
			return err
		}
		approved, err := durable.Receive[string](ctx, run, "approved", time.Hour)
		if err != nil {
			return err
		}
		if approved != "yes" {
			return durable.Permanent(textError("not approved"))
		}
		return nil
	})
	return stock(ctx, app)
}

func TestARunThatWaitsForAnInputIsShownAndSentIt(t *testing.T) {
	t.Parallel()
	env := append(file(t), "DURABLE_REDACT=token")
	do := func(code int, args ...string) ended {
		t.Helper()
		e := execute(t, env, args...)
		require.Equal(t, code, e.code, "%v: %s", args, e.stderr)
		for _, obeyed := range []string{"\u009b", "\u202e", "\u007f", "\U000e0041", "\x1b"} {
			require.NotContains(t, e.stdout+e.stderr, obeyed, args)
		}
		return e
	}
	s := serve(t, env, waiter)
	s.logs("worker started")
	id := strings.TrimSpace(do(0, "enqueue", "order", "--args", `{"to":"ann"}`, "--unique", "o1").stdout)
	require.Contains(t, do(0, "runs", "steps", strings.TrimSpace(do(0, "enqueue", "sleep", "--in", "1h").stdout)).stdout, "no steps")
	eventually(t, env, "the input approved", "runs", "show", id)

	shown := do(0, "runs", "show", id).stdout
	require.Regexp(t, `waits for +the input approved, until .* \(in 59m\)`, shown)
	require.Regexp(t, `steps +a\\u202eb \(done\), charge \(failed\), approved \(input\)`, shown)
	table := do(0, "runs", "steps", id[:24]).stdout
	require.Regexp(t, `(?m)^STEP +KIND +TRIES +TOOK +WHEN +UNTIL +SIZE +ERROR$`, table)
	require.Regexp(t, `(?m)^charge +failed +1 .* a\\u009b31mb`, table)
	require.Regexp(t, `(?m)^approved +input +0 +- .* in 59m`, table)
	require.NotContains(t, table, "says")
	require.Contains(t, do(0, "runs", "steps", id, "--values").stdout, `{"says":"a\u009b31mb\u202ec\x7fd\U000e0041e","token":"•••"}`)
	list := decode[operate.StepList](t, do(0, "runs", "steps", id, "--values", "--json").stdout)
	require.Equal(t, hostileName, list.Steps[0].Name, "the JSON means the same")
	require.Equal(t, "approved", list.Waits[0].Name)
	require.Equal(t, "null", string(decode[operate.StepList](t, do(0, "runs", "steps", id, "--json").stdout).Steps[0].Value))
	why := do(0, "runs", "explain", id).stdout
	require.Regexp(t, `(?m)^input +it waits for the input "approved", at most for another 59 min`, why)
	require.Contains(t, why, "durable-worker runs send "+id+" approved --value JSON")

	require.Regexp(t, `a\\u202eb +done .*"token":"canary"`, do(0, "runs", "reveal", id, "--reason", "ticket").stdout)
	require.Contains(t, do(0, "runs", "reveal", id, "--json").stdout, `"token": "canary"`)
	require.Contains(t, do(0, "audit", "list", "--json", "--action", "reveal").stdout, "ticket")

	require.Contains(t, do(2, "runs", "send", id, "approved", "--value", "yes").stderr, "--value: not valid JSON")
	require.Contains(t, do(2, "runs", "send", id, "approved").stderr, "--value")
	require.Contains(t, do(2, "runs", "send", id, "--value", "1").stderr, "the name of the input")
	require.Contains(t, do(2, "runs", "send", id, "approved", "--key", "o1", "--value", "1").stderr, "--job and --key")
	require.Contains(t, do(2, "runs", "send", id, hostile, "--value", "1").stderr, "without control characters")
	require.Contains(t, do(2, "runs", "send", id, "other", "--value", `{"token":"•••"}`).stderr, "write the values")
	require.Contains(t, do(1, "runs", "send", "approved", "--job", "order", "--key", "o2", "--value", `1`).stderr, `no unfinished run of job order holds the key "o2": not found`)
	require.Contains(t, do(1, "runs", "send", store.NewRunID().String(), "x", "--value", `1`).stderr, "not found")
	require.Equal(t, id+": note sent\n", do(0, "runs", "send", "note", "--job", "order", "--key", "o1", "--value", `{ "a": 1 }`).stdout)
	require.Equal(t, id+": note was sent before\n", do(0, "runs", "send", id, "note", "--value", `{"a":1}`).stdout, "the same value, written otherwise")
	require.Equal(t, "conflict", decode[failure](t, do(1, "runs", "send", id, "note", "--value", `2`, "--json").stderr).Error.Code)
	sent := decode[operate.SentInput](t, do(0, "runs", "send", id, "approved", "--value", `"yes"`, "--json").stdout)
	require.Equal(t, "approved", sent.Name)
	require.False(t, sent.Existing)
	eventually(t, env, "succeeded", "runs", "show", id)
	require.Regexp(t, `(?m)^note +\S+ ago +\S+@\S+ +7 +{"a":1}$`, do(0, "runs", "steps", id, "--values").stdout)
	require.NotContains(t, do(0, "runs", "show", id).stdout, "waits for")
	require.Regexp(t, id+` +send_input`, do(0, "audit", "list", "--action", "send_input").stdout)
	require.Contains(t, do(0, "audit", "list", "--json", "--action", "send_input").stdout, `"input": "approved"`)
	require.Contains(t, do(1, "runs", "send", id, "late", "--value", "1").stderr, "conflict: input \"late\" of run "+id+": the run has ended")
	s.signal()
	require.Equal(t, 0, s.ends())
}

func TestStepsAreForgottenOfARunThatDoesNotExecute(t *testing.T) {
	t.Parallel()
	env := file(t)
	s := serve(t, env, waiter)
	s.logs("worker started")
	id := strings.TrimSpace(execute(t, env, "enqueue", "order", "--args", `{}`).stdout)
	eventually(t, env, "the input approved", "runs", "show", id)
	s.signal()
	require.Equal(t, 0, s.ends())

	e := execute(t, env, "runs", "steps", id, "--forget", "charge", "--forget", "no such")
	require.Equal(t, id+": forgot 1 step\n", e.stdout, e.stderr)
	require.NotContains(t, execute(t, env, "runs", "steps", id).stdout, "charge")
	require.Contains(t, execute(t, env, "audit", "list", "--json", "--action", "forget_steps").stdout, `"charge"`)
	e = execute(t, env, "runs", "steps", id, "--forget", "charge")
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, `has recorded no step of "charge": not found`)
	require.Equal(t, 2, execute(t, env, "runs", "steps", id, "--forget", "x", "--values").code)
	require.Equal(t, 2, execute(t, env, "runs", "steps", id, "--forget", "").code)
	require.JSONEq(t, `{"run":"`+id+`","steps":1}`, execute(t, env, "runs", "steps", id, "--forget", "approved", "--json").stdout)
	require.Contains(t, execute(t, env, "runs", "show", id).stdout, "steps")
	require.Contains(t, execute(t, env, "runs", "explain", id).stdout, "snoozed", "a wait that is forgotten does not make the run due")
}
