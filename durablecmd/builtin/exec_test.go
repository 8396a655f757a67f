//go:build unix

package builtin_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd/builtin"
	"github.com/durable-worker/durable-worker/store"
)

// shell is a station that may start a shell: the scripts are the tests' own.
func shell(t *testing.T, grace time.Duration) *station {
	t.Helper()
	programs, err := builtin.ParsePrograms("sh=/bin/sh,/bin/true,gone=/nowhere/at/all")
	require.NoError(t, err)
	return begin(t, builtin.Config{ExecAllow: programs, ExecGrace: grace, ExecHint: "DURABLE_EXEC_ALLOW"})
}

func script(text string, options ...durable.Option) durable.NewRun {
	return builtin.Exec().New(builtin.ExecArgs{Command: "sh", Args: []string{"-c", text}}, options...)
}

func TestExecHandsOnWhatItSaysAndNothingElse(t *testing.T) {
	t.Setenv("CANARY", "canary")
	s := shell(t, 0)
	run := builtin.Exec().New(builtin.ExecArgs{
		Command: "sh", Args: []string{"-c", `env | sort; printf '%s|' "$@"; cat`, "$0; ls", "a b", "$HOME", "`id`", ""}, Stdin: "from stdin",
	})
	r := s.attempt(run)
	require.Equal(t, durable.Succeeded, r.State, reason(r))
	var result builtin.ExecResult
	require.NoError(t, json.Unmarshal(r.Result, &result))
	require.Zero(t, result.ExitCode)
	id := run.ID.String()
	require.Contains(t, result.Stdout, "DURABLE_RUN_ID="+id+"\n")
	require.Contains(t, result.Stdout, "DURABLE_IDEMPOTENCY_KEY="+id+"\n")
	require.Contains(t, result.Stdout, "DURABLE_ATTEMPT=1\n")
	require.Contains(t, result.Stdout, "DURABLE_FENCE=")
	require.Regexp(t, "TRACEPARENT=00-"+strings.ReplaceAll(id, "-", "")+"-[0-9a-f]{16}-00\n", result.Stdout)
	require.Contains(t, result.Stdout, "a b|$HOME|`id`||from stdin", "no shell reads the arguments")
	require.NotContains(t, result.Stdout, "canary")
	require.NotContains(t, result.Stdout, "HOME=")
}

func TestExecJudgesByTheExitCode(t *testing.T) {
	t.Parallel()
	s := shell(t, 0)
	for _, c := range []struct {
		script string
		state  durable.State
		say    string
	}{
		{"exit 0", durable.Succeeded, ""},
		{"echo no paper >&2; exit 1", durable.Pending, "command sh: exit status 1: no paper"},
		{"exit 2", durable.Pending, "exit status 2"},
		{"exit 75", durable.Pending, "exit status 75"},
		{"exit 64", durable.Dead, "exit status 64"},
		{"echo bad input >&2; exit 65", durable.Dead, "exit status 65: bad input"},
		{"exit 78", durable.Dead, "exit status 78"},
		{"kill -9 $$", durable.Pending, "signal: killed"},
		{"printf 'a\\000b\\377c' >&2; exit 65", durable.Dead, "a\ufffdb\ufffdc"},
	} {
		r := s.attempt(script(c.script))
		require.Equal(t, c.state, r.State, c.script)
		require.Contains(t, reason(r), c.say)
	}
	r := s.attempt(builtin.Exec().New(builtin.ExecArgs{Command: "/bin/true"}))
	require.JSONEq(t, `{"exit_code":0,"stdout":""}`, string(r.Result))
	r = s.attempt(builtin.Exec().New(builtin.ExecArgs{Command: "gone"}))
	require.Equal(t, durable.Pending, r.State, "another worker may have it, or this one tomorrow")
	require.Contains(t, reason(r), "no such file")
}

func TestExecIsRefusedUnlessItIsAllowed(t *testing.T) {
	t.Parallel()
	none := begin(t, builtin.Config{ExecHint: "DURABLE_EXEC_ALLOW"})
	r := none.attempt(script("true"))
	require.Equal(t, durable.Dead, r.State)
	require.Equal(t, "the job exec is not allowed on this worker: DURABLE_EXEC_ALLOW is not set", reason(r))
	s := shell(t, 0)
	for _, command := range []string{"", "true", "/bin/sh", "sh ", "./sh", "../bin/sh", "sh=/bin/sh", "/bin/../bin/true"} {
		r := s.attempt(builtin.Exec().New(builtin.ExecArgs{Command: command}))
		require.Equal(t, durable.Dead, r.State, command)
		require.Contains(t, reason(r), "it is not in DURABLE_EXEC_ALLOW")
	}
}

// TestAMachineWithoutDescriptorsSpendsNoAttempt takes all file descriptors from
// this process, and so runs beside no other test.
func TestAMachineWithoutDescriptorsSpendsNoAttempt(t *testing.T) {
	allowed := origins(t, "http://127.0.0.1:9")
	programs, err := builtin.ParsePrograms("/bin/true")
	require.NoError(t, err)
	s := begin(t, builtin.Config{ExecAllow: programs, HTTPAllow: allowed})
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	low := syscall.Rlimit{Cur: 3, Max: limit.Max}
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low))
	t.Cleanup(func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)) })
	for _, run := range []durable.NewRun{
		builtin.Exec().New(builtin.ExecArgs{Command: "/bin/true"}, durable.MaxAttempts(1)),
		posting("http://127.0.0.1:9", durable.MaxAttempts(1)),
	} {
		_, err := s.store.Enqueue(t.Context(), run)
		require.NoError(t, err)
		r := s.until(run.ID, func(r durable.Record) bool {
			return r.FinishedAt != nil || r.State == durable.Pending && r.DueAt.Sub(r.CreatedAt) >= 5*time.Second
		})
		require.Equal(t, durable.Pending, r.State, reason(r))
		require.Zero(t, r.Attempt)
	}
}

func TestExecDoesNotRetryArgumentsThatAreTooLong(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		return // other systems take them
	}
	r := shell(t, 0).attempt(builtin.Exec().New(builtin.ExecArgs{Command: "/bin/true", Args: []string{strings.Repeat("a", 131_100)}}))
	require.Equal(t, durable.Dead, r.State)
	require.Contains(t, reason(r), "argument list too long")
}

func TestProgramsAreReadStrictly(t *testing.T) {
	t.Parallel()
	p, err := builtin.ParsePrograms("report=/usr/local/bin/report, /bin/true,odd=/opt/a=b")
	require.NoError(t, err)
	require.Equal(t, []builtin.Program{{"report", "/usr/local/bin/report"}, {"/bin/true", "/bin/true"}, {"odd", "/opt/a=b"}}, p.List())
	again, err := builtin.ParsePrograms(p.String())
	require.NoError(t, err)
	require.Equal(t, p, again)
	for _, text := range []string{
		"true", "bin/true", "./true", "a=true", "a=./true", "=/bin/true", "a b=/bin/true", "a=/bin/../bin/true", "a=/bin//true", "a=/bin/", "/", "a=/", ",", "/bin/true,",
		"a=/bin/true,a=/bin/false", "a=/bin/tr\x00ue", "a=/bin/tr\nue", "ä=/bin/true", strings.Repeat("a", 65) + "=/bin/true",
	} {
		_, err := builtin.ParsePrograms(text)
		require.Error(t, err, text)
	}
}

func TestExecKeepsTheEndOfAFlood(t *testing.T) {
	t.Parallel()
	s := shell(t, 0)
	r := s.attempt(script("head -c 5000000 /dev/zero | tr '\\0' x; printf end"))
	require.Equal(t, durable.Succeeded, r.State, reason(r))
	var result builtin.ExecResult
	require.NoError(t, json.Unmarshal(r.Result, &result))
	require.Equal(t, "…"+strings.Repeat("x", 8<<10-3)+"end", result.Stdout)
	r = s.attempt(script("head -c 5000000 /dev/zero | tr '\\0' x >&2; echo end >&2; exit 1"))
	require.Less(t, len(reason(r)), 9<<10)
	require.True(t, strings.HasSuffix(reason(r), "xend"))
	require.Equal(t, durable.Succeeded, s.attempt(builtin.Exec().New(builtin.ExecArgs{Command: "/bin/true", Stdin: strings.Repeat("x", 200_000)})).State,
		"a program need not read its input")
}

// pids waits for a file of process numbers.
func pids(t *testing.T, path string, n int) (numbers []int) {
	t.Helper()
	require.Eventually(t, func() bool {
		text, _ := os.ReadFile(path)
		numbers = nil
		for _, word := range strings.Fields(string(text)) {
			number, err := strconv.Atoi(word)
			require.NoError(t, err)
			numbers = append(numbers, number)
		}
		return len(numbers) == n
	}, time.Minute, 5*time.Millisecond)
	return numbers
}

// gone waits until processes have ended. A grandchild may stay a zombie until
// the process that adopted it looks; it does nothing any more.
func gone(t *testing.T, numbers []int) {
	t.Helper()
	for _, number := range numbers {
		require.Eventually(t, func() bool {
			if syscall.Kill(number, 0) != nil {
				return true
			}
			text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(number), "stat"))
			return err != nil || strings.Contains(string(text), ") Z ")
		}, time.Minute, 5*time.Millisecond, "process %d goes on", number)
	}
}

func TestExecEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	deaf := `trap '' TERM; sh -c 'trap "" TERM; echo $$ >> "$0"; while :; do sleep 1; done' "$0" & echo $$ >> "$0"; while :; do sleep 1; done`
	run := func(path, text string, options ...durable.Option) durable.NewRun {
		return builtin.Exec().New(builtin.ExecArgs{Command: "sh", Args: []string{"-c", text, path}}, options...)
	}
	t.Run("when the time is over", func(t *testing.T) {
		t.Parallel()
		s, path := shell(t, 50*time.Millisecond), filepath.Join(t.TempDir(), "pids")
		r := s.attempt(run(path, deaf, durable.Timeout(4*time.Second)))
		require.Equal(t, durable.Pending, r.State)
		require.Equal(t, store.Failure, r.Attempts[0].Outcome)
		require.Contains(t, reason(r), "command sh:")
		gone(t, pids(t, path, 2))
	})
	t.Run("when the worker stops", func(t *testing.T) {
		t.Parallel()
		s, path := shell(t, 50*time.Millisecond), filepath.Join(t.TempDir(), "pids")
		one := run(path, deaf)
		_, err := s.store.Enqueue(t.Context(), one)
		require.NoError(t, err)
		numbers := pids(t, path, 2)
		require.NoError(t, s.stop())
		gone(t, numbers)
		r := s.until(one.ID, func(r durable.Record) bool { return r.State == durable.Pending })
		require.Zero(t, r.Attempt, "handed back, not failed")
	})
	t.Run("with time to end by itself", func(t *testing.T) {
		t.Parallel()
		s, path := shell(t, time.Minute), filepath.Join(t.TempDir(), "pids")
		begun := time.Now()
		r := s.attempt(run(path, `trap 'echo 7 >> "$0"; kill %1; exit 0' TERM; echo 6 >> "$0"; sleep 600 & wait`, durable.Timeout(4*time.Second)))
		require.Equal(t, durable.Pending, r.State, "an exit of 0 after the time was over is no success")
		require.Equal(t, []int{6, 7}, pids(t, path, 2))
		require.Less(t, time.Since(begun), 5*time.Minute)
	})
	t.Run("when it leaves a child behind", func(t *testing.T) {
		t.Parallel()
		s, path := shell(t, 0), filepath.Join(t.TempDir(), "pids")
		begun := time.Now()
		r := s.attempt(run(path, `sleep 600 & echo $! >> "$0"; echo done`))
		require.Equal(t, durable.Succeeded, r.State, reason(r))
		require.JSONEq(t, `{"exit_code":0,"stdout":"done\n"}`, string(r.Result))
		require.Less(t, time.Since(begun), 5*time.Minute, "the child holds the output open, and is not waited for")
		gone(t, pids(t, path, 1))
	})
}
