package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
)

func TestAnOrderIsConfirmedIfItIsThere(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, shop(t.Context(), pgtest.Database(t), &out))
	require.Equal(t, "order confirmed to ada@example.com\n", out.String())
}
