package durablecmd_test

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durablecmd"
)

var lastLine = regexp.MustCompile(`^demo: enqueued (\d+), succeeded (\d+), dead (\d+), retried (\d+), schedules fired (\d+)$`)

// sum reads the demo's last line: enqueued, succeeded, dead, retried, fired.
func sum(t *testing.T, stdout string) []int {
	t.Helper()
	lines := strings.Split(strings.TrimRight(stdout, "\n"), "\n")
	found := lastLine.FindStringSubmatch(lines[len(lines)-1])
	require.NotNil(t, found, stdout)
	numbers := make([]int, 5)
	for i := range numbers {
		numbers[i], _ = strconv.Atoi(found[i+1])
	}
	return numbers
}

func TestTheDemoEndsByItselfWithItsSum(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var e ended
	var n []int
	for try := range 5 { // the machine may be too slow to show all of it in time, which the demo says
		began := time.Now()
		e = execute(t, []string{"DURABLE_DATABASE_URL=nonsense"}, "demo", "--for", "8s")
		took := time.Since(began)
		require.Equal(t, 0, e.code, e.stderr)
		require.Empty(t, e.stderr)
		n = sum(t, e.stdout)
		if took < 8*time.Second && n[2] == 2 && n[0]+n[4] == n[1]+n[2] {
			break
		}
		require.Less(t, try, 4, "%v: %s", took, e.stdout)
	}
	enqueued, succeeded, dead, retried, fired := n[0], n[1], n[2], n[3], n[4]
	require.Greater(t, enqueued, 20)
	require.Equal(t, enqueued+fired, succeeded+dead, e.stdout)
	require.Equal(t, 2, dead)
	require.Equal(t, 6, retried)
	require.Positive(t, fired)
	require.NotContains(t, e.stdout, "\x1b")
	require.Contains(t, e.stdout, "s  pending ")
	require.Regexp(t, `waiting for limits [1-9]`, e.stdout, "limited work waits")
	require.Regexp(t, `waiting for limits 0\n`, e.stdout)
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left, "the folder is removed")
}

func TestTheDemoRetainsItsFileIfAsked(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	e := execute(t, nil, "demo", "--for", "4s", "--keep")
	require.Equal(t, 0, e.code, e.stderr)
	n := sum(t, e.stdout)
	env := regexp.MustCompile(`DURABLE_DATABASE_URL=\S+`).FindString(e.stdout)
	require.NotEmpty(t, env)
	type page struct{ Runs []struct{ ID string } }
	dead := decode[page](t, execute(t, []string{env}, "runs", "list", "--state", "dead", "--json").stdout)
	require.Len(t, dead.Runs, n[2])
	all := decode[page](t, execute(t, []string{env}, "runs", "list", "--limit", "200", "--json").stdout)
	require.Len(t, all.Runs, n[0]+n[4])
}

func TestTheDemoIsRedrawnOnATerminal(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{100, 40}, {40, 12}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			e := executeWith(t, durablecmd.Start{Args: []string{"demo", "--for", "5s"}, Width: size[0], Height: size[1]})
			require.Equal(t, 0, e.code, e.stderr)
			frames := strings.Split(e.stdout, "\x1b[J")
			require.Greater(t, len(frames), 2, "it is redrawn; how often depends on the machine")
			height := strings.Count(frames[0], "\n")
			require.Less(t, height, size[1])
			up := fmt.Sprintf("\x1b[%dA", height)
			for i, frame := range frames[:len(frames)-1] {
				if i > 0 {
					require.True(t, strings.HasPrefix(frame, up), "each frame is drawn over the one before")
				}
				require.Equal(t, height, strings.Count(frame, "\n"))
				for line := range strings.SplitSeq(strings.TrimPrefix(frame, up), "\n") {
					line = strings.TrimSuffix(strings.TrimPrefix(line, "\r"), "\x1b[K")
					require.LessOrEqual(t, len([]rune(line)), size[0]-1, line)
				}
			}
			final := frames[len(frames)-2]
			require.Contains(t, final, "mail")
			require.Contains(t, final, "ledger")
			require.Contains(t, final, "█")
			sum(t, frames[len(frames)-1])
		})
	}
}

func TestASignalEndsTheDemo(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal, 1)
	stdout := &buffer{}
	done := make(chan int, 1)
	go func() {
		done <- durablecmd.Start{Args: []string{"demo"}, Stdout: stdout, Stderr: io.Discard, Signals: signals}.Run(t.Context())
	}()
	require.Eventually(t, func() bool { return strings.Contains(stdout.String(), "running") }, time.Minute, 5*time.Millisecond)
	signals <- os.Interrupt
	select {
	case code := <-done:
		require.Equal(t, 1, code)
	case <-time.After(time.Minute):
		require.Fail(t, "the demo goes on")
	}
	sum(t, stdout.String())
}
