package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEachTickOnceForAllHosts(t *testing.T) {
	var out bytes.Buffer
	var ticks []string
	for length := 3200 * time.Millisecond; len(ticks) < 2 && length < time.Minute; length *= 2 { // a slow machine takes some seconds to begin
		out.Reset()
		require.NoError(t, timer(t.Context(), filepath.Join(t.TempDir(), "timer.db"), length, &out))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		ticks = lines[:len(lines)-1]
	}
	require.GreaterOrEqual(t, len(ticks), 2, out.String())
	seen := map[string]bool{}
	for _, tick := range ticks {
		require.False(t, seen[tick], "twice: %s", tick)
		seen[tick] = true
	}
}
