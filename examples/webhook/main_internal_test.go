package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestADeadRunReachesTheReceiver(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), filepath.Join(t.TempDir(), "webhook.db"), &out))
	require.Equal(t, "receiver: not now\nreceiver: run.dead: job invoice, attempt 1 of 3: no customer 7\n", out.String())
}
