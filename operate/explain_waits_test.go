package operate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

func TestExplain_NamesTheRunThatADependentWaitsFor(t *testing.T) {
	db := memory.New(memory.Config{})
	o := operate.New(db, operate.Config{})
	job := durable.NewJob[int]("mail")
	source := job.New(1, durable.After(time.Hour))
	dependent := job.New(2, durable.DependsOn(durable.OnSuccess(source.ID)))
	_, err := db.Enqueue(t.Context(), source, dependent)
	require.NoError(t, err)
	why, err := o.Explain(t.Context(), dependent.ID)
	require.NoError(t, err)
	require.Equal(t, operate.BlockerDependency, why.Blockers[0].Kind)
	require.Contains(t, why.Summary, source.ID.String())
	require.Contains(t, commandsOf(why), "explain "+source.ID.String())
	require.Contains(t, commandsOf(why), "runs release "+dependent.ID.String())

	changed, err := db.Operate(t.Context(), store.RunCommand{Action: store.CancelRuns, Runs: []store.RunID{source.ID}, By: "ann"})
	require.NoError(t, err)
	require.Equal(t, store.RunChanged, changed[0].Result)
	_, err = db.Release(t.Context(), store.ReleaseRequest{Limit: 10})
	require.NoError(t, err)
	why, err = o.Explain(t.Context(), dependent.ID)
	require.NoError(t, err)
	require.Contains(t, why.Summary, "was cancelled")
}

func commandsOf(why operate.Explanation) (commands []string) {
	for i := range why.Next {
		commands = append(commands, why.Next[i].Command)
	}
	return commands
}
