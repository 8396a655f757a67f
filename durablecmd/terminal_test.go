package durablecmd_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
)

func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	for range 2 {
		require.Zero(t, execute(t, env, "enqueue", "log", "--queue", "a-queue-with-a-long-name").code)
	}
	widest := func(width int, args ...string) (int, string) {
		e := executeWith(t, durablecmd.Start{Setup: stock, Env: env, Args: args, Width: width, Height: 25})
		require.Zero(t, e.code, e.stderr)
		most := 0
		for line := range strings.Lines(e.stdout) {
			most = max(most, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
		}
		return most, e.stdout
	}
	for _, args := range [][]string{{"runs", "list"}, {"queues", "list"}, {"jobs", "list"}, {"config"}} {
		for _, width := range []int{60, 80, 200} {
			most, text := widest(width, args...)
			require.LessOrEqual(t, most, width, "%v at %d:\n%s", args, width, text)
		}
	}
	_, narrow := widest(60, "runs", "list")
	require.Contains(t, narrow, "STATE")
	require.NotContains(t, narrow, "CREATED")
	require.Regexp(t, `(?m)^[0-9a-f-]{36} `, narrow, "ids are whole, to be pasted")
	wide, text := widest(60, "runs", "list", "--wide")
	require.Greater(t, wide, 60)
	require.Contains(t, text, "CREATED")
	require.Contains(t, execute(t, env, "runs", "list").stdout, "CREATED", "what is piped is whole")
}

func TestAListIsWatched(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	require.Zero(t, execute(t, env, "enqueue", "log").code)
	for width, cleared := range map[int]string{0: "", 80: "\x1b[H\x1b[2J"} {
		signals := make(chan os.Signal, 1)
		var stdout, stderr buffer
		start := durablecmd.Start{Setup: stock, Env: env, Args: []string{"runs", "count", "--watch", "100ms"}, Stdin: strings.NewReader(""),
			Stdout: &stdout, Stderr: &stderr, Signals: signals, Width: width, Height: 25}
		code := make(chan int, 1)
		go func() { code <- start.Run(t.Context()) }()
		require.Eventually(t, func() bool { return strings.Count(stdout.String(), cleared+"pending    1\n") >= 2 }, time.Minute, 5*time.Millisecond)
		signals <- syscall.SIGINT
		require.Zero(t, <-code, "%s", stderr.String())
	}
	for _, list := range []string{"runs list", "runs count", "queues list", "jobs list", "workers list", "schedules list", "limits list",
		"problems list", "audit list", "locks list", "locks forced"} {
		e := execute(t, env, append(strings.Fields(list), "--watch", "1ms")...)
		require.Equal(t, 2, e.code, list)
		require.Contains(t, e.stderr, "--watch 1ms: want at least 100ms", list)
	}
}

func TestLocksAreWatched(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal, 1)
	var stdout, stderr buffer
	start := durablecmd.Start{Setup: stock, Env: migrated(t), Args: []string{"locks", "list", "--watch", "100ms"}, Stdin: strings.NewReader(""),
		Stdout: &stdout, Stderr: &stderr, Signals: signals}
	code := make(chan int, 1)
	go func() { code <- start.Run(t.Context()) }()
	require.Eventually(t, func() bool { return strings.Count(stdout.String(), "no locks are held\n") >= 2 }, time.Minute, 5*time.Millisecond)
	signals <- syscall.SIGINT
	require.Zero(t, <-code, "%s", stderr.String())
}

func TestHelpIsACommandToo(t *testing.T) {
	t.Parallel()
	for _, one := range [][2][]string{{{"help"}, {"--help"}}, {{"help", "runs", "list"}, {"runs", "list", "--help"}}, {{"help", "version"}, {"version", "--help"}}} {
		command, flag := execute(t, nil, one[0]...), execute(t, nil, one[1]...)
		require.Zero(t, command.code, command.stderr)
		require.NotEmpty(t, command.stdout)
		require.Equal(t, flag.stdout, command.stdout)
	}
}

func TestWordsAreCompleted(t *testing.T) {
	t.Parallel()
	complete := func(words ...string) []string {
		e := execute(t, nil, append([]string{"__complete"}, words...)...)
		require.Zero(t, e.code, e.stderr)
		return strings.Fields(e.stdout)
	}
	require.Subset(t, complete(""), []string{"work", "runs", "schedules", "completion", "help", "version"})
	require.Equal(t, []string{"reveal", "retry", "release", "rerun"}, complete("runs", "re"))
	require.Equal(t, []string{"--error", "--ended-since"}, complete("runs", "list", "--e"))
	require.Equal(t, []string{"succeeded"}, complete("runs", "list", "--state", "s"))
	require.Equal(t, []string{"failed"}, complete("batches", "list", "--state", "f"))
	require.Equal(t, []string{"--all"}, complete("runs", "cancel", "--state", "dead", "--al"))
	require.Empty(t, complete("runs", "list", "--queue", ""), "any name")
	require.Equal(t, []string{"bash", "zsh", "fish"}, complete("completion", ""))
	require.Equal(t, 2, execute(t, nil, "completion", "cmd").code)

	script := execute(t, nil, "completion", "bash").stdout
	program := filepath.Join(t.TempDir(), "durable-worker")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\nfor w in \"$@\"; do echo \"<$w>\"; done\n"), 0o700)) //nolint:gosec // it is executed
	shell := exec.CommandContext(t.Context(), "bash", "-c", script+"\nCOMP_WORDS=("+program+" runs list ''); COMP_CWORD=3; _durable_worker; printf '%s\\n' \"${COMPREPLY[@]}\"")
	text, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Equal(t, "<__complete>\n<runs>\n<list>\n<>\n", string(text))
}

func TestLogsAreAskedFor(t *testing.T) {
	t.Parallel()
	env := file(t, "DURABLE_POLL_INTERVAL=20ms")
	job := durable.NewJob[string]("chatty", durable.MaxAttempts(2), durable.Retry(durable.Fixed(time.Millisecond)))
	s := serve(t, env, func(_ context.Context, app *durablecmd.App) error {
		durable.Register(app.Worker, job, func(_ context.Context, run *durable.Run[string]) error {
			for range 3 {
				run.Log().Info("line of", "try", run.Attempt)
			}
			return errors.New("no")
		})
		return nil
	})
	s.logs("worker started")
	e := execute(t, env, "enqueue", "chatty", "--args", `""`, "--wait")
	require.Equal(t, 3, e.code, e.stderr)
	id := strings.Fields(e.stdout)[0]
	show := execute(t, env, "runs", "show", id).stdout
	require.Contains(t, show, "EXECUTION  ATTEMPT")
	require.Contains(t, show, "log of execution 2 (attempt 2 of 2):\n")
	require.NotContains(t, show, "log of execution 1")
	require.Contains(t, show, "1 earlier execution left a stack or a log: --full\n")
	full := execute(t, env, "runs", "show", id, "--full").stdout
	require.Contains(t, full, "log of execution 1 (attempt 1 of 2):\n")
	require.NotContains(t, full, "--full")
	require.Len(t, strings.Split(strings.TrimSpace(execute(t, env, "runs", "logs", id).stdout), "\n"), 6)
	tail := execute(t, env, "runs", "logs", id, "--tail", "4").stdout
	require.Equal(t, 4, strings.Count(tail, "\n"))
	require.Equal(t, 1, strings.Count(tail, "try=1"))
	logged := decode[struct {
		Run   string
		Lines []string
	}](t, execute(t, env, "runs", "logs", id, "--tail", "4", "--json").stdout)
	require.Equal(t, id, logged.Run)
	require.Equal(t, strings.Split(strings.TrimSpace(tail), "\n"), logged.Lines)
	require.Equal(t, 2, execute(t, env, "runs", "logs", id, "--tail", "-1").code)
	s.signal()
	require.Zero(t, s.ends(), s.stderr)
}

func TestSchedulesSayWhenInTheirZone(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	at := func(now string, args ...string) string {
		e := executeWith(t, durablecmd.Start{Setup: stock, Env: env, Args: args, Now: func() time.Time {
			instant, err := time.Parse(time.RFC3339, now)
			require.NoError(t, err)
			return instant
		}})
		require.Zero(t, e.code, e.stderr)
		return e.stdout
	}
	const noon = "2030-01-01T12:00:00Z"
	created := at(noon, "schedules", "create", "nightly", "log", "--cron", "30 2 * * *", "--zone", "Europe/Berlin")
	require.Equal(t, "nightly created, next 2030-01-02T02:30:00+01:00 Europe/Berlin, 2030-01-02T01:30:00Z\n", created)
	require.Contains(t, at(noon, "schedules", "list"), "in 13h, once a worker has planned it")
	require.Contains(t, at(noon, "schedules", "show", "nightly"), "2030-01-02T02:30:00+01:00 Europe/Berlin, 2030-01-02T01:30:00Z (in 13h, once a worker")
	require.Contains(t, at(noon, "schedules", "preview", "nightly"), "2030-01-02T02:30:00+01:00 Europe/Berlin, 2030-01-02T01:30:00Z")

	s := serve(t, append(env, "DURABLE_POLL_INTERVAL=20ms"), stock)
	s.logs("worker started")
	require.Eventually(t, func() bool { return !strings.Contains(at(noon, "schedules", "list"), "once a worker") }, time.Minute, 20*time.Millisecond)
	s.signal()
	require.Zero(t, s.ends(), s.stderr)
	require.Contains(t, at("2100-01-01T00:00:00Z", "schedules", "list"), "overdue by ")
}
