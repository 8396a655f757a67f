package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
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
	for name, dsn := range map[string]string{
		"sqlite":     "sqlite:" + filepath.Join(t.TempDir(), "processes.db"),
		"PostgreSQL": pgtest.Database(t),
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, processes(t.Context(), dsn, "", &out))
			require.Equal(t, "killed one of two workers, with its hands full\nmap[succeeded:40], taken over: true\n", out.String())
		})
	}
}
