package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestALateWriteIsRefusedByTheTable(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, fence(t.Context(), t.TempDir(), &out))
	require.Regexp(t, `^second worker, fence \d+ writes: <nil>
first worker, fence \d+ writes late: lease: lost
stored: new prices
$`, out.String())
}
