package durablecmd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

func TestVerbsReleaseDependentsAndRetryThemWithTheirSource(t *testing.T) {
	t.Parallel()
	env := file(t)
	require.Equal(t, 0, execute(t, env, "migrate", "up").code)
	db := storeOf(t, env)
	job := durable.NewJob[struct{}]("sleep")
	source := job.New(struct{}{})
	first := job.New(struct{}{}, durable.DependsOn(durable.OnSuccess(source.ID)))
	second := job.New(struct{}{}, durable.DependsOn(durable.OnSuccess(first.ID)))
	_, err := db.Enqueue(t.Context(), source, first, second)
	require.NoError(t, err)

	out := execute(t, env, "runs", "release", second.ID.String(), "--reason", "not needed", "--json")
	require.Equal(t, 0, out.code, out.stderr)
	require.Contains(t, out.stdout, `"result": "changed"`)
	require.Contains(t, execute(t, env, "audit", "list").stdout, "not needed")

	require.Equal(t, 0, execute(t, env, "runs", "cancel", source.ID.String()).code)
	_, err = db.Release(t.Context(), store.ReleaseRequest{Limit: 100})
	require.NoError(t, err)
	_, err = db.Release(t.Context(), store.ReleaseRequest{Limit: 100})
	require.NoError(t, err)
	out = execute(t, env, "runs", "retry", source.ID.String(), "--with-dependents", "--json")
	require.Equal(t, 0, out.code, out.stderr)
	require.Contains(t, out.stdout, `"left": {`)
	require.Contains(t, out.stdout, first.ID.String())
	require.NotContains(t, out.stdout, second.ID.String(), "it was released, and is not cancelled")
	out = execute(t, env, "runs", "retry", source.ID.String(), first.ID.String(), "--with-dependents")
	require.Equal(t, 2, out.code)
	require.Contains(t, out.stderr, "want the id of one run")
}
