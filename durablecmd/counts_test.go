package durablecmd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// storeOf opens the store of an environment beside the program.
func storeOf(t *testing.T, env []string) backend.Store {
	t.Helper()
	url, _ := strings.CutPrefix(env[0], "DURABLE_DATABASE_URL=")
	db, err := backend.Open(t.Context(), url, backend.Config{Schema: "durable"})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return db
}

// pendingRuns stores runs of the job sleep.
func pendingRuns(t *testing.T, db backend.Store, n int, options ...durable.Option) []store.NewRun {
	t.Helper()
	runs := make([]store.NewRun, n)
	for i := range runs {
		runs[i] = durable.RunOf(durable.JobInfo{Name: "sleep", Queue: "default", MaxAttempts: 3}, []byte(`{"for":"1s"}`), options...)
	}
	_, err := db.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	return runs
}

func TestACountThatIsALowerBoundSaysSo(t *testing.T) {
	t.Parallel()
	env := file(t)
	require.Equal(t, 0, execute(t, env, "migrate", "up").code)
	db := storeOf(t, env)
	pendingRuns(t, db, 100_100)
	require.Contains(t, execute(t, env, "queues", "list").stdout, "  100000+  ")
	compact := strings.Join(strings.Fields(execute(t, env, "queues", "list", "--json").stdout), "")
	require.Contains(t, compact, `"pending":{"n":100000,"at_least":true}`)
	require.Contains(t, execute(t, env, "runs", "count").stdout, "pending    100100\n")
}

// TestACountIsTrueBesideManyPendingRuns: what has ended is counted, and is not what
// remains of an estimate.
func TestACountIsTrueBesideManyPendingRuns(t *testing.T) {
	t.Parallel()
	files := migrated(t)
	server := append([]string{"DURABLE_DATABASE_URL=" + pgtest.Database(t)}, files[1:]...)
	require.Equal(t, 0, execute(t, server, "migrate", "up").code)
	for name, env := range map[string][]string{"sqlite": files, "postgres": server} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storeOf(t, env)
			pendingRuns(t, db, 200_000, durable.OnQueue("bulk"))
			pendingRuns(t, db, 119, durable.OnQueue("done"))
			job := durable.NewJob[map[string]string]("sleep", durable.OnQueue("done"))
			worker := durable.NewWorker(db, durable.WorkerConfig{Queues: []durable.Queue{{Name: "done"}}, PollInterval: 20 * time.Millisecond})
			durable.Register(worker, job, func(context.Context, *durable.Run[map[string]string]) error { return nil })
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- worker.Run(ctx) }()
			const want = "pending    200000\nrunning    0\nsucceeded  119\ndead       0\ncancelled  0\n"
			require.Eventually(t, func() bool { return execute(t, env, "runs", "count").stdout == want }, time.Minute, 50*time.Millisecond)
			stop()
			require.NoError(t, <-ended)
		})
	}
}
