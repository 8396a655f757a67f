package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOneTraceFromTheRequestToTheLastRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), filepath.Join(t.TempDir(), "tracing.db"), &out))
	require.Equal(t, strings.TrimPrefix(`
4bf92f3577b34da6a3ce929d0e0e4736 POST /orders
4bf92f3577b34da6a3ce929d0e0e4736   enqueue order
4bf92f3577b34da6a3ce929d0e0e4736     execute order
4bf92f3577b34da6a3ce929d0e0e4736       enqueue receipt
4bf92f3577b34da6a3ce929d0e0e4736         execute receipt
`, "\n"), out.String())
}
