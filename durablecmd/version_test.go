package durablecmd_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durablecmd"
)

func TestAProgramSaysItsVersion(t *testing.T) {
	t.Parallel()
	said := func(version string, args ...string) string {
		t.Helper()
		e := executeWith(t, durablecmd.Start{Args: args, Version: version})
		require.Zero(t, e.code, e.stderr)
		return e.stdout
	}
	require.Equal(t, "v1.2.3\n", said("v1.2.3", "--version"))
	require.Equal(t, "durable-worker v1.2.3 ("+runtime.Version()+", "+runtime.GOOS+"/"+runtime.GOARCH+")\n", said("v1.2.3", "version"))
	json := decode[map[string]any](t, said("v1.2.3", "version", "--json"))
	require.Equal(t, map[string]any{"version": "v1.2.3", "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}, json)
	require.NotEqual(t, "\n", said("", "--version"), "the main module's")
}
