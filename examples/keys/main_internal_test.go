package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheSameThingIsStoredOnce(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, keys(t.Context(), filepath.Join(t.TempDir(), "keys.db"), &out))
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
`, out.String())
}
