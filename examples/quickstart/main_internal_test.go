package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryMailIsSent(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, quickstart(t.Context(), filepath.Join(t.TempDir(), "quickstart.db"), &out))
	require.Equal(t, `succeeded in attempt 1: "sent to ada@example.com"
succeeded in attempt 3: "sent to busy@example.com"
succeeded in attempt 1: "sent to alan@example.com"
`, out.String())
}
