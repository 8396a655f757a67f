package durablecmd_test

import (
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durablecmd"
)

// TestVerbThatDoesNotEndIsLeft: a verb that does not heed the signal, here one
// that reads what never comes, is left at the second.
func TestVerbThatDoesNotEndIsLeft(t *testing.T) {
	t.Parallel()
	stdin, never := io.Pipe()
	signals, exited, code := make(chan os.Signal), make(chan int, 1), make(chan int, 1)
	var stdout, stderr buffer
	start := durablecmd.Start{Args: []string{"enqueue", "log", "--args", "-"}, Env: file(t), Stdin: stdin, Stdout: &stdout, Stderr: &stderr, Signals: signals,
		Exit: func(code int) { exited <- code }}
	go func() { code <- start.Run(t.Context()) }()
	signals <- syscall.SIGTERM
	signals <- syscall.SIGTERM
	require.Equal(t, 1, <-exited)
	require.Contains(t, stderr.String(), "did not stop in time")
	require.NoError(t, never.Close())
	require.Equal(t, 1, <-code)
	require.Contains(t, stderr.String(), "interrupted")
	require.Empty(t, stdout.String())
}

// TestOutputThatCannotBeWritten: help and the version fail where nothing can be printed, and
// not as if the command line were wrong.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--help"}, {"help"}, {"runs", "list", "--help"}, {"--version"}, {"version"}} {
		full, other := io.Pipe()
		require.NoError(t, full.CloseWithError(syscall.ENOSPC))
		var stderr buffer
		start := durablecmd.Start{Args: args, Env: file(t), Stdout: other, Stderr: &stderr}
		require.Equal(t, 1, start.Run(t.Context()), args)
		require.Contains(t, stderr.String(), "no space left on device", args)
		require.NotContains(t, stderr.String(), "for usage", args)
	}
}
