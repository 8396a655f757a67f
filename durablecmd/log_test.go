package durablecmd_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
)

// unread is a pipe that is not read: no write to it returns until it is closed.
type unread chan struct{}

func (u unread) Write(p []byte) (int, error) {
	<-u
	return len(p), nil
}

// free is an address at which nothing listens.
func free(t *testing.T) string {
	t.Helper()
	var binder net.ListenConfig
	listener, err := binder.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// unheard is a worker whose log is not read.
func unheard(t *testing.T, setup func(context.Context, *durablecmd.App) error, more ...string) (env []string, address string, signals chan os.Signal, exited, code chan int) {
	t.Helper()
	address = free(t)
	env = migrated(t, append([]string{"DURABLE_HTTP_ADDR=" + address, "DURABLE_LEASE_DURATION=1s", "DURABLE_POLL_INTERVAL=500ms"}, more...)...)
	pipe := unread(make(chan struct{}))
	signals, exited, code = make(chan os.Signal, 3), make(chan int, 1), make(chan int, 1)
	start := durablecmd.Start{Env: env, Setup: setup, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: pipe, Signals: signals,
		Exit: func(code int) { exited <- code }}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		defer close(done)
		code <- start.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done; close(pipe) })
	return env, address, signals, exited, code
}

// TestAWorkerWhoseLogIsNotReadWorks: it executes, its probes fail after a lease and say why,
// and it drains.
func TestAWorkerWhoseLogIsNotReadWorks(t *testing.T) {
	t.Parallel()
	env, address, signals, _, code := unheard(t, stock)
	e := execute(t, env, "enqueue", "log", "--args", `{"message":"no one hears me"}`, "--wait", "--timeout", "1m")
	require.Equal(t, 0, e.code, e.stderr)
	for _, path := range []string{"/readyz", "/healthz"} {
		reason := becomes(t, address, path, http.StatusServiceUnavailable)["reason"]
		require.Regexp(t, `^the log is not read: a write to it has not returned for \d+m?\d*s$`, reason)
	}
	text := scrape(t, address)
	require.Contains(t, text, "\ndurable_log_lines_dropped_total 0\n")
	require.Regexp(t, `\ndurable_log_blocked_seconds [1-9]`, text)
	e = execute(t, env, "healthcheck")
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, "the log is not read")
	signals <- syscall.SIGTERM
	require.Equal(t, 0, <-code)
}

// TestSignalsActAlthoughTheLogIsNotRead: the second and the third one too.
func TestSignalsActAlthoughTheLogIsNotRead(t *testing.T) {
	t.Parallel()
	for name, signalled := range map[string]int{"hurry": 2, "exit": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, release := make(chan struct{}, 1), make(chan struct{})
			grace := map[bool]string{true: "DURABLE_CANCEL_GRACE=1h", false: "DURABLE_CANCEL_GRACE=1s"}[signalled == 3]
			env, _, signals, exited, code := unheard(t, holding(begun, release, signalled == 2), "DURABLE_DRAIN_TIMEOUT=1h", grace)
			require.Eventually(t, func() bool { return execute(t, env, "enqueue", "hold").code == 0 }, time.Minute, 100*time.Millisecond, "it is declared")
			<-begun
			for range signalled {
				signals <- syscall.SIGTERM
			}
			if signalled == 3 {
				require.Equal(t, 1, <-exited)
				close(release) // a real exit would have ended the handler
			}
			<-code
		})
	}
}

// TestASignalActsBeforeItIsLogged: also where the logger waits.
func TestASignalActsBeforeItIsLogged(t *testing.T) {
	t.Parallel()
	pipe, signals, stopped := unread(make(chan struct{})), make(chan os.Signal, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		durablecmd.Watching(ctx, signals, slog.New(slog.NewTextHandler(pipe, nil)), func() { close(stopped) })
	}()
	signals <- syscall.SIGTERM
	<-stopped
	cancel()
	close(pipe)
	<-done
}

// TestTheErrorThatEndsAWorkerIsWritten, and so is what was logged before.
func TestTheErrorThatEndsAWorkerIsWritten(t *testing.T) {
	t.Parallel()
	e := executeWith(t, durablecmd.Start{Env: file(t), Args: []string{"work"}, Setup: func(_ context.Context, app *durablecmd.App) error {
		for i := range 1000 {
			app.Logger.Info("one of many", "i", i)
		}
		return durable.Permanent(io.ErrUnexpectedEOF)
	}})
	require.Equal(t, 1, e.code)
	require.Equal(t, 1000, strings.Count(e.stderr, "one of many"))
	lines := strings.Split(strings.TrimSpace(e.stderr), "\n")
	require.Contains(t, lines[len(lines)-1], `"msg":"stopped by an error"`)
	require.Contains(t, lines[len(lines)-1], "unexpected EOF")
}

// TestTheDashboardServesAlthoughItsOutputIsNotRead: neither its log nor its address.
func TestTheDashboardServesAlthoughItsOutputIsNotRead(t *testing.T) {
	t.Parallel()
	address := free(t)
	pipe, signals := unread(make(chan struct{})), make(chan os.Signal, 3)
	start := durablecmd.Start{Args: []string{"dashboard"}, Setup: stock, Env: migrated(t, "DURABLE_DASHBOARD_ADDR="+address),
		Stdin: strings.NewReader(""), Stdout: pipe, Stderr: pipe, Signals: signals}
	code := make(chan int, 1)
	go func() { code <- start.Run(t.Context()) }()
	require.Eventually(t, func() bool { code, _ := status(t, address, "/"); return code != 0 }, time.Minute, 20*time.Millisecond)
	signals <- syscall.SIGTERM
	<-code
	close(pipe)
}

// TestProgramsOfHandlersAreEndedByBrokenPipes: only this process outlives them.
func TestProgramsOfHandlersAreEndedByBrokenPipes(t *testing.T) {
	durablecmd.OutliveBrokenPipes()
	err := exec.CommandContext(t.Context(), "sh", "-c", "kill -PIPE $$; exit 0").Run()
	require.EqualError(t, err, "signal: broken pipe")
	own, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, own.Signal(syscall.SIGPIPE))
}

// starving is a listener of a process that has no descriptor left for a while.
type starving struct {
	net.Listener

	fails int
	err   error
	ended chan struct{}
	once  sync.Once
}

func (s *starving) Accept() (net.Conn, error) {
	if s.fails--; s.fails >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", s.err)}
	}
	<-s.ended
	return nil, net.ErrClosed
}

func (s *starving) Close() error {
	s.once.Do(func() { close(s.ended) })
	return nil
}

func (*starving) Addr() net.Addr { return &net.TCPAddr{} }

// TestAListenerWaitsForDescriptors: it says so once a minute, and goes on.
func TestAListenerWaitsForDescriptors(t *testing.T) {
	t.Parallel()
	for _, lack := range []error{syscall.EMFILE, syscall.ENOMEM} {
		synctest.Test(t, func(t *testing.T) {
			var log buffer
			listener := durablecmd.Accepting(&starving{fails: 100, err: lack, ended: make(chan struct{})}, slog.New(slog.NewTextHandler(&log, nil)))
			server := &http.Server{ReadHeaderTimeout: time.Second}
			ended := make(chan error, 1)
			go func() { ended <- server.Serve(listener) }()
			synctest.Wait()
			require.Equal(t, 1, strings.Count(log.String(), "event=listener.accept_failed listener=health error=\"accept"), log.String())
			require.Contains(t, log.String(), lack.Error())
			time.Sleep(10 * time.Second) //nolint:forbidigo // virtual time of the bubble
			synctest.Wait()
			began := time.Now()
			require.NoError(t, listener.Close())
			require.ErrorIs(t, <-ended, net.ErrClosed)
			require.Zero(t, time.Since(began), "the pause ends with the listener")
			require.Equal(t, 1, strings.Count(log.String(), "\n"))
		})
	}
}
