package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASumGoesOnFromItsCheckpoint(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, progress(t.Context(), filepath.Join(t.TempDir(), "progress.db"), &out))
	require.Regexp(t, `^result: 15
progress: \d+ %, number \d
attempt 1: failure
attempt 2: success
  its log: .*msg=continuing from=3.*
`, out.String())
}
