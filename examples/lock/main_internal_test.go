package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/redistest"
)

func TestLock(t *testing.T) {
	for _, redis := range []string{"", redistest.URL(t)} {
		var out strings.Builder
		require.NoError(t, run(t.Context(), redis, filepath.Join(t.TempDir(), "lock.db"), &out))
		require.Equal(t, "three hosts: 1 wrote the report, 2 skipped it\n"+
			"second holder writes: accepted true\nfirst holder, late writes: accepted false\n", out.String())
	}
}
