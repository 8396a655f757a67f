package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
)

// TestMain turns the test binary into a worker process when it is started as one.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-worker") {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTheRunsOfAKilledProcessAreTakenOver(t *testing.T) {
	for name, dsn := range map[string]func(*testing.T) string{
		"sqlite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "processes.db") },
		"PostgreSQL": func(t *testing.T) string { return pgtest.Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			for range 5 { // the kill may meet the worker between two claims
				out.Reset()
				require.NoError(t, processes(t.Context(), dsn(t), "", &out))
				if !strings.Contains(out.String(), "taken over: false") {
					break
				}
			}
			require.Equal(t, "killed one of two workers, with its hands full\nmap[succeeded:100], taken over: true\n", out.String())
		})
	}
}
