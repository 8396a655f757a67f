package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// TestMain turns the test binary into the program when asked to.
func TestMain(m *testing.M) {
	if os.Getenv("EXAMPLE_PROGRAM") == "" {
		os.Exit(m.Run())
	}
	main()
}

// program is the program as a person types it.
func program(t *testing.T, dsn string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(os.Args[0], args...) //nolint:gosec // the test binary itself
	cmd.Env = append(os.Environ(), "EXAMPLE_PROGRAM=1", "GORACE=atexit_sleep_ms=0", "DURABLE_DATABASE_URL="+dsn,
		"DURABLE_HTTP_ADDR=off", "DURABLE_LOG_FORMAT=text")
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

func TestTheProgramWorksUntilItIsStopped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "worker.db")
	enqueue, out := program(t, "sqlite:"+file, "enqueue", "welcome", "--force", "--args", `"ada@example.com"`)
	store, err := sqlite.Open(t.Context(), file, sqlite.Config{})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	enqueue.Stderr = nil // it says that no worker is there yet
	require.NoError(t, enqueue.Run(), out)
	id, err := durable.ParseRunID(string(bytes.TrimSpace(out.Bytes())))
	require.NoError(t, err, out)

	worker, log := program(t, "sqlite:"+file)
	require.NoError(t, worker.Start())
	ended := make(chan error, 1)
	go func() { ended <- worker.Wait() }()
	t.Cleanup(func() { _ = worker.Process.Kill() })
	records, err := durable.NewClient(store).Wait(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, durable.Succeeded, records[0].State)

	require.NoError(t, worker.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-ended:
		require.NoError(t, err, log)
	case <-time.After(time.Minute):
		t.Fatal("the worker does not end")
	}
	require.Contains(t, log.String(), "ada@example.com")
}
