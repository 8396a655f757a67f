package api_test

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
)

// python runs a script of the directory of the Python client.
func python(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "python3", args...)
	command.Dir = "python"
	command.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONIOENCODING=utf-8")
	var stderr stringWriter
	command.Stderr = &stderr
	output, err := command.Output()
	require.NoError(t, err, "make need installs python3: %s", stderr)
	return string(output)
}

type stringWriter []byte

func (w *stringWriter) Write(p []byte) (int, error) { *w = append(*w, p...); return len(p), nil }

func TestThePythonClientIsThatOfTheDescription(t *testing.T) {
	t.Parallel()
	have, err := os.ReadFile("python/durable_api.py")
	require.NoError(t, err)
	require.Equal(t, python(t, "generate.py", "--print"), string(have), "python3 operate/api/python/generate.py")
}

// TestAPythonProgramEnqueuesWaitsAndCancels has the client talk to a real server.
func TestAPythonProgramEnqueuesWaitsAndCancels(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	worker := durable.NewWorker(b.store, durable.WorkerConfig{})
	durable.Register(worker, durable.NewJob[map[string]any]("mail"), func(context.Context, *durable.Run[map[string]any]) error { return nil })
	stop := b.work(worker)
	defer stop()
	server := httptest.NewServer(b.handler)
	t.Cleanup(server.Close)
	require.Equal(t, `enqueued once: True True
ended: succeeded {'to': 'ann@example.com'}
cancelled: changed
cancelled: changed
the oldest: cancelled
schedule: nightly/a@b
event: survey {'n': 0, 'is': 'exact'}
refused: 422 unknown_job
refused: 401 unauthorized
`, python(t, "example.py", server.URL, operatorToken))
	require.Contains(t, b.send("GET", "/audit?kind=run", "").Body.String(), "not needed, ü")
}
