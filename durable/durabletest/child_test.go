package durabletest_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
)

// child names the part that a process plays that TestRunFails starts.
const child = "DURABLETEST_CHILD"

// TestChild is executed by itself in that process, and does nothing elsewhere.
func TestChild(t *testing.T) {
	part := os.Getenv(child)
	if part == "" {
		return
	}
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		t.Cleanup(func() { t.Log("cleanup of the test") })
		kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error {
			if part == "stuck" {
				waitFor(make(chan struct{}))
			}
			return nil
		}), func(c *durable.WorkerConfig) { c.Logger = slog.New(slog.NewTextHandler(t.Output(), nil)) })
		enqueue(t, kit)
		if part == "elsewhere" {
			kit.RunDue()
			enqueue(t, kit, durable.OnQueue("images"))
			kit.RunDue()
			t.Fatal("nothing was executed")
		}
		if part == "bounds" {
			kit.Worker(func(w *durable.Worker) {
				handles(func(_ context.Context, run *durable.Run[mailArgs]) error { run.Log().Info("a line"); return nil })(w)
				durable.AddSchedule(w, "tick", mailJob(), mailArgs{}, durable.Every(10*time.Second))
			})
			kit.Advance(86 * 24 * time.Hour)
			t.Log("it goes on")
		}
		kit.Advance(0)
		if part == "fatal" {
			t.Fatal("given up")
		}
	})
}

// playedInChild executes a test that is to fail in a process of its own, and returns what it printed.
func playedInChild(t *testing.T, test, part string) (string, *os.ProcessState) {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+test, "-test.v") //nolint:gosec // this very program
	command.Env = append(os.Environ(), child+"="+part)
	said, err := command.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, string(said))
	require.NotContains(t, string(said), "panic:")
	return string(said), command.ProcessState
}

func inChild(t *testing.T, test, part string) string {
	t.Helper()
	said, _ := playedInChild(t, test, part)
	return said
}

func TestRunFails(t *testing.T) {
	play := func(t *testing.T, part string) string {
		t.Helper()
		return inChild(t, "^TestChild$", part)
	}
	t.Run("a handler that never returns fails the test with its stack", func(t *testing.T) {
		t.Parallel()
		said := play(t, "stuck")
		require.Contains(t, said, "worker-1 could not be stopped")
		require.Contains(t, said, "durabletest_test.waitFor")
		require.Contains(t, said, "goroutines that began in the test have not ended with it")
		require.Contains(t, said, "--- FAIL: TestChild")
	})
	t.Run("a test beyond the bounds stops there within a second of CPU, and says so in few lines", func(t *testing.T) {
		t.Parallel()
		said, ended := playedInChild(t, "^TestChild$", "bounds")
		require.Contains(t, said, "runs are still due or running after")
		require.Contains(t, said, "Kit.Limits allows")
		require.NotContains(t, said, "it goes on")
		require.Less(t, strings.Count(said, "\n"), 50, said)
		// It takes 0.3 s of CPU on a quiet machine; the race detector makes it several times as much.
		most := time.Second
		if raced {
			most *= 12
		}
		require.Less(t, ended.UserTime()+ended.SystemTime(), most)
	})
	t.Run("a test in which nothing was executed, although runs are due, says why", func(t *testing.T) {
		t.Parallel()
		said := play(t, "elsewhere")
		require.Equal(t, 1, strings.Count(said, "no worker of the kit serves"), said)
		require.Contains(t, said, `job "mail" on queue "images"`)
	})
	t.Run("the workers of a test that gives up are stopped, before its cleanup", func(t *testing.T) {
		t.Parallel()
		said := play(t, "fatal")
		require.Regexp(t, `(?s)given up.*worker stopped.*cleanup of the test`, said)
		require.NotContains(t, said, "have not ended")
	})
}
