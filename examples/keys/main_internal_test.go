package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheSameThingIsStoredOnce(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, keys(t.Context(), filepath.Join(t.TempDir(), "keys.db"), &out))
	const one, other = "welcome ada\n", "index of change 4\n"
	// No order is promised between two jobs, and a slow machine finds both due.
	require.Equal(t, `welcome, existing: false
welcome, existing: true
index, existing: false
index, existing: true
index, existing: true
index, existing: true
index, existing: true
welcome ada
index of change 4
the first has ended; welcome, existing: false
`, strings.Replace(out.String(), other+one, one+other, 1))
}
