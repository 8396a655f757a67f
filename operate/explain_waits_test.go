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

func TestDependenciesAreReadAsPeopleWriteThem(t *testing.T) {
	db := memory.New(memory.Config{})
	o := operate.New(db, operate.Config{})
	a, b := store.NewRunID(), store.NewRunID()
	for text, want := range map[string][]operate.Dependency{
		a.String():                    {{operate.OnSuccess, []store.RunID{a}}},
		a.String() + "," + b.String(): {{operate.OnSuccess, []store.RunID{a, b}}},
		"failure:" + a.String() + ", " + b.String():    {{operate.OnFailure, []store.RunID{a, b}}},
		"failure:" + a.String() + ",end:" + b.String(): {{operate.OnFailure, []store.RunID{a}}, {operate.OnEnd, []store.RunID{b}}},
		a.String() + ",success:" + b.String():          {{operate.OnSuccess, []store.RunID{a}}, {operate.OnSuccess, []store.RunID{b}}},
	} {
		got, err := o.Dependencies(t.Context(), text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	got, err := o.Dependencies(t.Context(), "end:"+a.String(), b.String())
	require.NoError(t, err)
	require.Equal(t, operate.OnSuccess, got[1].On, "each text begins a condition")
	for _, bad := range []string{"", ",", "success:", "met:" + a.String(), ":" + a.String(), a.String() + ","} {
		_, err := o.Dependencies(t.Context(), bad)
		require.ErrorIs(t, err, store.ErrInvalid, bad)
	}
}
