package pgtest_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
)

func TestServerStopsAndStarts(t *testing.T) {
	t.Parallel()
	c := pgtest.StartPrivate(t, pgtest.Options{})
	database := pgtest.DatabaseOn(t, c.URL())
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "create table kept ()")
	require.NoError(t, err)
	for _, mode := range []pgtest.Mode{pgtest.Immediate, pgtest.Fast} {
		c.Stop(t, mode)
		_, err = pgx.Connect(t.Context(), database)
		require.Error(t, err)
		c.Start(t)
	}
	conn, err = pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "select from kept")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

// holding is set for the process that the next test kills.
const holding = "PGTEST_HOLD"

func TestServerEndsWithAKilledProcess(t *testing.T) {
	t.Parallel()
	if os.Getenv(holding) != "" {
		server := pgtest.StartPrivate(t, pgtest.Options{})
		_, _ = os.Stdout.WriteString(server.Dir() + "\n")
		<-t.Context().Done() // forever: it is killed
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^TestServerEndsWithAKilledProcess$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), holding+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, _, err := bufio.NewReader(out).ReadLine()
	require.NoError(t, err)
	dir := string(line)
	require.DirExists(t, filepath.Join(dir, "data"))
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.Eventually(t, func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	}, 2*time.Minute, 20*time.Millisecond, "%s remains", dir)
}
