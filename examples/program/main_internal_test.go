package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain turns the test binary into the program when asked to.
func TestMain(m *testing.M) {
	if os.Getenv("EXAMPLE_PROGRAM") == "" {
		os.Exit(m.Run())
	}
	main()
}

// output may be read while the program writes it.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// program is the program as a user types it.
func program(ctx context.Context, file string, args ...string) (*exec.Cmd, *output) {
	out := &output{}
	cmd := exec.CommandContext(ctx, os.Args[0], args...) //nolint:gosec // the test binary itself
	cmd.Env = append(os.Environ(), "EXAMPLE_PROGRAM=1", "GORACE=atexit_sleep_ms=0", "DURABLE_DATABASE_URL=sqlite:"+file,
		"DURABLE_HTTP_ADDR=127.0.0.1:0", "DURABLE_LOG_FORMAT=text")
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

func TestTheProgramHasFlagsCommandsAndPages(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program.db")
	for _, args := range [][]string{{"migrate", "up"}, {"invite-all", "ada@example.com", "bob@example.com"}} {
		cmd, out := program(t.Context(), file, args...)
		require.NoError(t, cmd.Run(), out.String())
		if args[0] == "invite-all" {
			require.Contains(t, out.String(), "2 invitations enqueued in durable")
		}
	}
	cmd, out := program(t.Context(), file, "--mail-server", "mail.example.com:25")
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	address := regexp.MustCompile(`health listener ready.* addr=(\S+)`)
	sent := func() string {
		found := address.FindStringSubmatch(out.String())
		if found == nil {
			return ""
		}
		response, err := http.Get("http://" + found[1] + "/metrics.json") //nolint:noctx // the test has a limit
		if err != nil {
			return ""
		}
		defer func() { _ = response.Body.Close() }()
		body, _ := io.ReadAll(response.Body)
		return string(body)
	}
	require.Eventually(t, func() bool { return regexp.MustCompile(`"invitations_sent": 2`).MatchString(sent()) }, time.Minute, 20*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, <-ended, out.String())
	require.Contains(t, out.String(), `msg=invited to=ada@example.com through=mail.example.com:25`)
	require.Contains(t, out.String(), `msg=handled job=invite attempt=1 error=<nil>`)
}
