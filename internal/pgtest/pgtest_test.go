package pgtest_test

import (
	"bufio"
	"context"
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

func TestPoolerIsNotAskedToCancel(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.Pooler(t)+"&default_query_exec_mode=exec")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	const sleep = "select pg_sleep(3) as of_the_pooler_test"
	_, err = conn.Exec(ctx, sleep)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	direct, err := pgx.Connect(t.Context(), pgtest.Server(t))
	require.NoError(t, err)
	_, err = direct.Exec(t.Context(), "select pg_sleep(1)") // a request on its way would have come
	require.NoError(t, err)
	var active bool
	require.NoError(t, direct.QueryRow(t.Context(),
		"select exists (select from pg_stat_activity where query = $1 and state = 'active')", sleep).Scan(&active))
	require.True(t, active, "the statement goes on")
	require.NoError(t, direct.Close(t.Context()))
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
