package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestADeploySpendsNoAttempt(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, drain(t.Context(), filepath.Join(t.TempDir(), "drain.db"), &out))
	require.Equal(t, `v1: long stops early: durable: worker is draining
succeeded in attempt 1: "v1 copied the last of 5 parts"
succeeded in attempt 1: "v2 copied the last of 100 parts"
`, out.String())
}
