package builtin

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/durable-worker/durable-worker/durable"
)

// ExecArgs are the arguments of the job "exec".
type ExecArgs struct {
	Command string   `json:"command"` // a name of the list, not a line for a shell
	Args    []string `json:"args"`
	Stdin   string   `json:"stdin"`
}

// ExecResult is the result of a run of the job "exec" that has succeeded.
type ExecResult struct {
	ExitCode int    `json:"exit_code"`
	Stdout   string `json:"stdout"` // the last 8 KiB; begins with … when there was more
}

// The exit codes that mean more than "failed", those of sysexits.h.
const (
	exitUsage  = 64 // the arguments make no sense: dead immediately
	exitData   = 65 // the input makes no sense: dead immediately
	exitConfig = 78 // the program is set up wrongly: dead immediately
)

// Exec returns the job "exec", which starts a program of the list, without a
// shell, in a process group of its own, and judges by the exit code: 0 is
// success, with ExecResult as the result; 64, 65 and 78 (usage, input,
// configuration) are dead immediately; any other code, 75 (temporary) among them, and
// a signal are tried again by the retry policy.
//
// The program's environment is PATH, LANG and what reports the run:
// DURABLE_RUN_ID, DURABLE_IDEMPOTENCY_KEY (both the run's id),
// DURABLE_ATTEMPT and DURABLE_FENCE, and TRACEPARENT and TRACESTATE, as the headers of
// the job http. Nothing of the worker's own environment is
// handed on. It starts in the worker's directory.
//
// When the run's time is over, its lease is lost or the worker stops, the group
// gets SIGTERM, and SIGKILL after Config.ExecGrace, whatever the exit code then
// is. What the program has left behind in its group when it ends is killed.
//
// A program that could not be started because the machine lacks file
// descriptors, processes or memory has not failed: the run is put back for some
// seconds and no attempt is spent. Arguments longer than the system takes are
// dead immediately.
//
// One attempt may take an hour, unless the run says otherwise.
func Exec() durable.Job[ExecArgs] {
	return durable.NewJob[ExecArgs](NameExec, durable.Timeout(time.Hour), durable.DeadOnMisfit())
}

func (j *Jobs) exec(ctx context.Context, run *durable.Run[ExecArgs]) error {
	path, found := j.config.ExecAllow.find(run.Args.Command)
	switch {
	case len(j.config.ExecAllow.list) == 0:
		return durable.Permanent(fmt.Errorf("the job %s is not allowed on this worker: %s is not set", NameExec, j.config.ExecHint))
	case !found:
		return durable.Permanent(fmt.Errorf("the command %.100q is not allowed on this worker: it is not in %s", run.Args.Command, j.config.ExecHint))
	}
	for i, arg := range run.Args.Args {
		if strings.ContainsRune(arg, 0) {
			return durable.Permanent(fmt.Errorf("args[%d] holds a NUL", i))
		}
	}
	var stdout, stderr tail
	command := exec.Command(path, run.Args.Args...) //nolint:gosec,noctx // a program of the operator's list; ctx is obeyed below
	command.Stdin = strings.NewReader(run.Args.Stdin)
	command.Stdout, command.Stderr = &stdout, &stderr
	command.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
		"DURABLE_RUN_ID=" + run.ID.String(), "DURABLE_IDEMPOTENCY_KEY=" + run.IdempotencyKey(),
		"DURABLE_ATTEMPT=" + strconv.Itoa(run.Attempt), "DURABLE_FENCE=" + strconv.FormatInt(int64(run.Fence), 10),
	}
	command.Env = append(command.Env, j.traceVariables(ctx, run.RunInfo)...)
	// A process that has left the group and still holds the pipes is waited for only
	// so long.
	command.WaitDelay = time.Second
	err := perform(ctx, command, max(j.config.ExecGrace, 0))
	if ctx.Err() != nil {
		return withOutput(run.Args.Command, context.Cause(ctx), &stderr)
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		run.Log().Warn("a process that left the group of the command still holds its output; it is not waited for", "event", "exec.left_behind")
		err = nil
	}
	if failed, ok := errors.AsType[*startError](err); ok && starved(failed.err) {
		return notBegun(run, fmt.Errorf("command %s: %w", run.Args.Command, failed.err))
	}
	if err != nil {
		return judge(run.Args.Command, err, &stderr)
	}
	return run.SetResult(ExecResult{ExitCode: 0, Stdout: stdout.String()})
}

// judge says what the end of a program means.
func judge(name string, err error, stderr *tail) error {
	if errors.Is(err, syscall.E2BIG) {
		return durable.Permanent(withOutput(name, err, stderr))
	}
	ended, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return withOutput(name, err, stderr)
	}
	err = withOutput(name, errors.New(ended.String()), stderr)
	switch ended.ExitCode() {
	case exitUsage, exitData, exitConfig:
		return durable.Permanent(err)
	default:
		return err
	}
}

// maxNamed is how much of what a program says of its failure is kept, bytes: an
// error is stored up to 8 KiB, from its beginning.
const maxNamed = 4 << 10

// withOutput adds the program's output to why it failed.
func withOutput(name string, err error, stderr *tail) error {
	err = fmt.Errorf("command %s: %w", name, err)
	if text := strings.TrimSpace(stderr.String()); text != "" {
		if len(text) > maxNamed {
			text = "…" + strings.ToValidUTF8(text[len(text)-maxNamed:], "")
		}
		err = fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// startError is a command that has not been started.
type startError struct{ err error }

func (e *startError) Error() string { return e.err.Error() }

func (e *startError) Unwrap() error { return e.err }

// perform starts the command and returns when it has ended, its group with it.
func perform(ctx context.Context, command *exec.Cmd, grace time.Duration) error {
	group, err := start(command)
	if err != nil {
		return &startError{err}
	}
	defer group.release()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		group.await()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		group.terminate()
		timer := time.NewTimer(grace)
		select {
		case <-ended:
		case <-timer.C:
		}
		timer.Stop()
		group.kill()
		<-ended
	}
	group.kill() // what the command has left behind
	return group.reap()
}
