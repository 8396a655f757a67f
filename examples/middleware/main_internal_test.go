package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryAttemptGoesThroughTheMiddleware(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), filepath.Join(t.TempDir(), "middleware.db"), &out))
	for _, line := range []string{
		"invoice 1 of acme is sent\n" + `msg=attempt job=invoice tenant=acme attempt=1 error=<nil>`,
		`msg=attempt job=invoice tenant=slow attempt=1 error="too slow"`,
		`msg=attempt job=invoice tenant=slow attempt=2 error="too slow"`,
		`msg=attempt job=invoice tenant=unknown attempt=1 error="no tenant \"unknown\""`,
	} {
		require.Contains(t, out.String(), line)
	}
}
