package durablecmd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
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
	pendingRuns(t, storeOf(t, env), 100_100)
	require.Contains(t, execute(t, env, "queues", "list").stdout, "  100000+  ")
	compact := strings.Join(strings.Fields(execute(t, env, "queues", "list", "--json").stdout), "")
	require.Contains(t, compact, `"pending":{"n":100000,"at_least":true}`)
	require.Contains(t, execute(t, env, "runs", "count").stdout, "pending    100100\n")
}
