package durablecmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/durable-worker/durable-worker/durablecmd"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/durable-worker/durable-worker/internal/pgtest.programs.start.func1"))
}

// buffer is a bytes.Buffer that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// stock is the setup of the stock program.
func stock(_ context.Context, app *durablecmd.App) error {
	durablecmd.RegisterJobs(app)
	return nil
}

// ended is what a program that has ended left behind.
type ended struct {
	code           int
	stdout, stderr string
}

// execute runs the program to its end.
func execute(t *testing.T, env []string, args ...string) ended {
	t.Helper()
	return executeWith(t, durablecmd.Start{Setup: stock, Env: env, Args: args})
}

func executeWith(t *testing.T, start durablecmd.Start) ended {
	t.Helper()
	var stdout, stderr buffer
	start.Stdout, start.Stderr = &stdout, &stderr
	if start.Stdin == nil {
		start.Stdin = strings.NewReader("")
	}
	code := start.Run(t.Context())
	return ended{code, stdout.String(), stderr.String()}
}

// file is an environment with a database file of the test's own.
func file(t *testing.T, more ...string) []string {
	t.Helper()
	path := filepath.ToSlash(filepath.Join(t.TempDir(), "durable.db"))
	return append([]string{"DURABLE_DATABASE_URL=sqlite:" + path, "DURABLE_HTTP_ADDR=127.0.0.1:0", "DURABLE_LOG_LEVEL=debug"}, more...)
}

// migrated is file with a schema in it.
func migrated(t *testing.T, more ...string) []string {
	t.Helper()
	env := file(t, more...)
	e := execute(t, env, "migrate", "up")
	require.Equal(t, 0, e.code, e.stderr)
	return env
}

// service is a program that goes on until it is stopped.
type service struct {
	t       *testing.T
	stderr  *buffer
	signals chan os.Signal
	code    chan int
	exited  chan int // by a third signal
}

func serve(t *testing.T, env []string, setup func(context.Context, *durablecmd.App) error) *service {
	t.Helper()
	return serveWith(t, durablecmd.Start{Env: env, Setup: setup})
}

func serveWith(t *testing.T, start durablecmd.Start) *service {
	t.Helper()
	s := &service{t: t, stderr: &buffer{}, signals: make(chan os.Signal, 3), code: make(chan int, 1), exited: make(chan int, 1)}
	start.Stdin, start.Stderr = strings.NewReader(""), s.stderr
	if start.Stdout == nil {
		start.Stdout = io.Discard
	}
	start.Signals, start.Exit = s.signals, func(code int) { s.exited <- code }
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.code <- start.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

func (s *service) signal() { s.signals <- syscall.SIGTERM }

// logs waits until a line of the log contains the text.
func (s *service) logs(text string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return strings.Contains(s.stderr.String(), text) },
		time.Minute, 5*time.Millisecond, "no log says %q", text)
}

// ends waits until the program has ended and returns its exit code.
func (s *service) ends() int {
	s.t.Helper()
	select {
	case code := <-s.code:
		return code
	case <-time.After(2 * time.Minute):
		s.t.Fatalf("the program goes on:\n%s", s.stderr)
		return 0
	}
}

// address is where the health listener answers.
func (s *service) address() string {
	s.t.Helper()
	s.logs("health listener ready")
	found := regexp.MustCompile(`"addr":"([^"]+)"`).FindStringSubmatch(s.stderr.String())
	require.NotNil(s.t, found)
	return found[1]
}

// decode reads JSON into a new value.
func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var value T
	require.NoError(t, json.Unmarshal([]byte(text), &value), text)
	return value
}

// eventually executes the program until what it prints contains the text.
func eventually(t *testing.T, env []string, text string, args ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		e := executeWith(t, durablecmd.Start{Setup: stock, Env: env, Args: args})
		return e.code == 0 && strings.Contains(e.stdout, text)
	}, time.Minute, 20*time.Millisecond)
}
