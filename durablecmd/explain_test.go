package durablecmd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func TestVerbsExplainRunsAndGroupProblems(t *testing.T) {
	t.Parallel()
	env := file(t)
	require.Equal(t, 0, execute(t, env, "migrate", "up").code)
	db := storeOf(t, env)
	runs := pendingRuns(t, db, 3)
	id := runs[0].ID.String()

	out := execute(t, env, "runs", "explain", id)
	require.Equal(t, 0, out.code, out.stderr)
	require.Contains(t, out.stdout, "no_worker")
	require.Contains(t, out.stdout, "no worker has ever declared the job")
	out = execute(t, env, "runs", "explain", id, "--json")
	require.Contains(t, strings.Join(strings.Fields(out.stdout), ""), `"kind":"no_worker"`)
	out = execute(t, env, "runs", "explain", store.NewRunID().String())
	require.Equal(t, 0, out.code, "that a run is not there is an answer")
	require.Contains(t, out.stdout, "not there")

	heads, err := db.Heads(t.Context(), store.Serves{Queues: []string{"default"}, Jobs: []string{"sleep"}})
	require.NoError(t, err)
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: store.WorkerID{Name: "w", Instance: uuid.New()}, Duration: time.Minute, Limit: 2,
		Steps: []store.Step{{Lane: heads[0].Lane, Take: 2}}}
	claimed, err := db.Claim(t.Context(), request)
	require.NoError(t, err)
	settlement := store.Settlement{Claim: request.Claim, Worker: request.Worker, Last: true}
	for i, run := range claimed {
		settlement.Runs = append(settlement.Runs, store.Settled{ID: run.ID, Outcome: store.Outcome{Kind: store.Death, Error: "no route to host 10.0.0." + string(rune('1'+i))}})
	}
	_, err = db.Settle(t.Context(), []store.Settlement{settlement})
	require.NoError(t, err)

	out = execute(t, env, "problems", "list")
	require.Contains(t, out.stdout, "no route to host #")
	group := strings.Fields(strings.Split(out.stdout, "\n")[1])
	require.Equal(t, []string{"2", "sleep"}, group[1:3])
	require.Equal(t, 2, execute(t, env, "problems", "retry", group[0]).code, "it wants --yes")
	out = execute(t, env, "problems", "acknowledge", group[0], "--yes", "--reason", "known")
	require.Equal(t, 0, out.code, out.stderr)
	require.Contains(t, out.stdout, "2 changed")
	require.Contains(t, execute(t, env, "problems", "list").stdout, "no problems")
	require.Contains(t, execute(t, env, "problems", "list", "--acknowledged").stdout, "no route to host #")
	require.Contains(t, execute(t, env, "audit", "list").stdout, "acknowledge")
	require.Equal(t, 1, execute(t, env, "problems", "retry", group[0], "--yes").code, "it is not open any more")
	require.Contains(t, execute(t, env, "runs", "explain", claimed[0].ID.String()).stdout, "it is dead: no route to host 10.0.0.1")

	out = execute(t, env, "stats", "--range", "24h")
	require.Equal(t, 0, out.code, out.stderr)
	require.Contains(t, out.stdout, "all ")
	require.Equal(t, 2, execute(t, env, "stats", "--range", "2h").code)
}
