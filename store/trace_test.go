package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

func TestTraceOf(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, one := range []struct{ name, parent, state, trace string }{
		{"a parent", parent, "", parent},
		{"with a state", parent, "a=1", parent + ";a=1"},
		{"a state without room", parent, strings.Repeat("a", store.MaxTraceSize), parent},
		{"no parent", "", "a=1", ""},
		{"another version", "01" + parent[2:], "", ""},
		{"upper case", strings.ToUpper(parent), "", ""},
		{"too short", parent[:54], "", ""},
		{"too long", parent + "0", "", ""},
		{"no hyphen", strings.ReplaceAll(parent, "-", "0"), "", ""},
	} {
		require.Equal(t, one.trace, store.TraceOf(one.parent, one.state), one.name)
	}
	back, state := store.TraceHeaders(parent + ";a=1")
	require.Equal(t, []string{parent, "a=1"}, []string{back, state})
	back, state = store.TraceHeaders("mine;a=1")
	require.Equal(t, []string{"", ""}, []string{back, state})
}
