package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
)

func TestAnOrderIsShippedOnce(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, transaction(t.Context(), pgtest.Database(t), &out))
	require.Equal(t, `succeeded in attempt 2, shipped 1 time
attempt 1: completed in a transaction that was not committed
`, out.String())
}
