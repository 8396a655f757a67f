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
	"github.com/durable-worker/durable-worker/store/backend"
)

// batched registers a job that succeeds, or is dead after one attempt, with a hostile text.
func batched(ctx context.Context, app *durablecmd.App) error {
	durable.Register(app.Worker, durable.NewJob[string]("page"), func(_ context.Context, run *durable.Run[string]) error {
		if run.Args == "dies" {
			return durable.Permanent(textError(hostile))
		}
		return nil
	})
	return stock(ctx, app)
}

// enqueuePages stores a batch of pages, with the args that are given.
func enqueuePages(t *testing.T, env []string, batch store.NewBatch, args ...string) {
	t.Helper()
	db, err := backend.Open(t.Context(), strings.TrimPrefix(env[0], "DURABLE_DATABASE_URL="), backend.Config{})
	require.NoError(t, err)
	defer db.Close()
	var runs []store.NewRun
	for _, arg := range args {
		run := durable.NewJob[string]("page").New(arg)
		if arg == "later" {
			run.After = time.Hour
		}
		run.Batch = &batch
		runs = append(runs, run)
	}
	_, err = db.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
}

func TestBatchesAreShownClosedRetriedCancelledAndWaitedFor(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	do := func(code int, args ...string) ended {
		t.Helper()
		e := execute(t, env, args...)
		require.Equal(t, code, e.code, "%v: %s", args, e.stderr)
		for _, obeyed := range []string{"\u009b", "\u202e", "\u007f", "\x1b"} {
			require.NotContains(t, e.stdout+e.stderr, obeyed, args)
		}
		return e
	}
	require.Contains(t, do(0, "batches", "list").stdout, "no batches")
	batch := store.NewBatch{ID: store.NewRunID(), Name: "pages", OpenFor: time.Hour}
	id := batch.ID.String()
	enqueuePages(t, env, batch, "ok", "dies", "later")
	s := serve(t, env, batched)
	s.logs("worker started")
	eventually(t, env, "unfinished  1", "batches", "show", id)

	shown := do(0, "batches", "show", id[:24]).stdout
	require.Regexp(t, `(?m)^state +running, open$`, shown)
	require.Regexp(t, `(?m)^done +\[#{13}x{13}\.{14}\] 66%$`, shown)
	require.Regexp(t, `(?m)^rate +\S+ a second$`, shown)
	require.Regexp(t, `(?m)^time left +about `, shown)
	require.Regexp(t, `(?m)^open until +\S+ \(in 59m\)$`, shown)
	require.Regexp(t, `(?m)^\S{36} +page +dead +a\\u009b31mb`, shown)
	require.Regexp(t, `(?m)^`+id+` +pages +running, open +66% +3 +1 +1 +0 `, do(0, "batches", "list", "--state", "running", "--name", "pages").stdout)
	require.Equal(t, "no batches\n", do(0, "batches", "list", "--state", "failed,cancelled").stdout)
	list := decode[operate.BatchList](t, do(0, "batches", "list", "--json").stdout)
	require.Equal(t, store.BatchCounts{Members: 3, Succeeded: 1, Dead: 1}, list.Batches[0].Counts)
	require.Equal(t, 4, do(4, "batches", "wait", id, "--timeout", "50ms").code)

	require.Regexp(t, `(?m)^state +running$`, do(0, "batches", "close", id).stdout)
	require.Regexp(t, `batch +`+id+` +close`, do(0, "audit", "list", "--kind", "batch").stdout)
	require.Contains(t, do(0, "batches", "retry", id, "--reason", "ticket").stdout, id+": retry: 1 run matched, 1 changed")
	require.Regexp(t, `"batch": "`+id+`"`, do(0, "audit", "list", "--json", "--kind", "bulk").stdout)
	eventually(t, env, "unfinished  1", "batches", "show", id)
	require.Equal(t, 0, decode[operate.Bulk](t, do(0, "batches", "retry", id, "--json").stdout).Conflict)

	require.True(t, decode[operate.BatchView](t, do(0, "batches", "cancel", id, "--reason", "wrong file", "--json").stdout).Cancelled)
	waited := do(3, "batches", "wait", id)
	require.Regexp(t, `(?m)^state +cancelled$`, waited.stdout)
	require.Contains(t, waited.stderr, "is cancelled")
	require.Contains(t, waited.stderr, "wrong file")
	do(1, "batches", "cancel", id)

	good := store.NewBatch{ID: store.NewRunID(), Name: "good"}
	enqueuePages(t, env, good, "ok")
	require.Equal(t, store.BatchSucceeded, decode[operate.BatchView](t, do(0, "batches", "wait", good.ID.String(), "--json").stdout).State)
}

func TestABatchThatIsNamedWronglyIsRefused(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	for _, line := range []string{"batches", "batches show 7", "batches list --state dead", "batches list --limit 0", "batches list --cursor x", "batches close", "batches wait 7", "batches wait " + store.NewRunID().String() + " --timeout -1s", "batches retry x", "batches cancel x"} {
		e := execute(t, env, strings.Fields(line)...)
		require.Equal(t, 2, e.code, "%s: %s", line, e.stderr)
	}
	for _, verb := range []string{"show", "wait", "close", "cancel", "retry"} {
		e := execute(t, env, "batches", verb, store.NewRunID().String(), "--json")
		require.Equal(t, 1, e.code, verb)
		require.Equal(t, "not_found", decode[failure](t, e.stderr).Error.Code)
	}
}

func TestRunsAreAddedToAnOpenBatchAndFoundByIt(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	do := func(code int, args ...string) ended {
		t.Helper()
		e := execute(t, env, args...)
		require.Equal(t, code, e.code, "%v: %s", args, e.stderr)
		return e
	}
	batch := store.NewBatch{ID: store.NewRunID(), Name: "pages", OpenFor: time.Hour}
	id := batch.ID.String()
	enqueuePages(t, env, batch, "later")
	added := strings.TrimSpace(do(0, "enqueue", "page", "--force", "--args", `"x"`, "--batch", id[:24]).stdout)
	do(0, "enqueue", "page", "--force", "--args", `"x"`)
	do(0, "runs", "cancel", added)
	shown := do(0, "runs", "show", added).stdout
	require.Regexp(t, `(?m)^batch +pages, `+id+` \(running, open\): 1 of 2 ended$`, shown)
	run := decode[operate.LinkedRun](t, do(0, "runs", "show", added, "--json").stdout)
	require.Equal(t, []any{batch.ID, int64(1)}, []any{run.Batch.ID, run.Batch.Unfinished})
	list := func(args ...string) []store.Record {
		return decode[operate.RunList](t, do(0, append([]string{"runs", "list", "--json", "--batch", id}, args...)...).stdout).Runs
	}
	require.Len(t, list(), 2)
	require.Equal(t, added, list("--state", "cancelled")[0].ID.String())
	require.Len(t, list("--limit", "1"), 1)
	require.Regexp(t, `(?m)^cancelled +1$`, do(0, "runs", "count", "--batch", id).stdout)
	require.Contains(t, do(2, "runs", "list", "--batch", "7").stderr, `--batch: "7" is not a batch id`)
	require.Contains(t, do(2, "runs", "delete", "--all", "--batch", "00000000-0000-0000-0000-000000000000", "--yes").stderr, "no batch has the id")
	require.Contains(t, do(2, "runs", "list", "--batch", id, "--parent", added).stderr, "want only one of")

	require.Contains(t, do(0, "runs", "delete", "--all", "--batch", id, "--state", "pending", "--dry-run").stdout, "1 run")

	do(0, "batches", "close", id)
	enqueue := func(batch string) []string { return []string{"enqueue", "page", "--force", "--batch", batch} }
	require.Contains(t, do(1, enqueue(id)...).stderr, "batch "+id+" is closed")
	require.Contains(t, do(1, enqueue(store.NewRunID().String())...).stderr, "not found")
	require.Contains(t, do(1, enqueue("ffffffff")...).stderr, "ffffffff")
	require.Contains(t, do(2, enqueue("7")...).stderr, `"7" is not a batch id`)
	do(0, "batches", "cancel", id, "--reason", "wrong file")
	require.Contains(t, do(1, enqueue(id)...).stderr, "was cancelled: wrong file")
}
