package deploy_test

import (
	"bytes"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// built is the program, built by the line of the Dockerfile.
var built = sync.OnceValues(func() ([]byte, error) {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		return nil, err
	}
	line := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 .* go build .*)$`).FindStringSubmatch(string(text))[1]
	dir, err := os.MkdirTemp("", "durable-image-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	line = strings.ReplaceAll(line, "/out/", dir+"/")
	line = strings.NewReplacer("${TARGETOS}", runtime.GOOS, "${TARGETARCH}", runtime.GOARCH).Replace(line)
	build := exec.Command("sh", "-c", line)
	build.Dir = ".."
	if output, err := build.CombinedOutput(); err != nil {
		return output, err
	}
	return os.ReadFile(filepath.Join(dir, "durable-worker"))
})

// image is a root that holds what the image does, owned by another user.
type image struct {
	root string
	env  []string
}

const unprivileged = 65532

func newImage(t *testing.T, certificates []byte) *image {
	t.Helper()
	program, err := built()
	require.NoError(t, err, "%s", program[:min(len(program), 4000)])
	root := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "data"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "etc/ssl/certs"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"), certificates, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(root, "durable-worker"), program, 0o755))
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(filepath.Join(root, "data"), unprivileged, unprivileged))
	}
	require.NoError(t, os.Chmod(root, 0o555)) //nolint:gosec // others must be able to look
	t.Cleanup(func() { _ = os.Chmod(root, 0o755) })
	for dir := filepath.Dir(root); dir != filepath.Dir(dir) && dir != os.TempDir(); dir = filepath.Dir(dir) {
		_ = os.Chmod(dir, 0o755)
	}
	return &image{root: root, env: []string{"DURABLE_DATABASE_URL=sqlite:/data/durable.db", "TMPDIR=/data"}}
}

// command is the program inside the root, as a user without rights. A user who is
// not root himself gets a namespace in which he may change the root.
func (i *image) command(args ...string) *exec.Cmd {
	command := &exec.Cmd{Path: "/durable-worker", Args: append([]string{"/durable-worker"}, args...), Env: i.env, Dir: "/data"}
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged, NoSetGroups: os.Getuid() != 0}}
	if os.Getuid() != 0 {
		command.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: unprivileged, HostID: os.Getuid(), Size: 1}}
		command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: unprivileged, HostID: os.Getgid(), Size: 1}}
	}
	return command
}

// run runs the program to its end.
func (i *image) run(args ...string) (string, error) {
	output, err := i.command(args...).CombinedOutput()
	return string(output), err
}

func (i *image) must(t *testing.T, args ...string) string {
	t.Helper()
	output, err := i.run(args...)
	require.NoError(t, err, output)
	return output
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}

func TestTheImageHoldsAllThatTheProgramNeeds(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"over":"tls"}`)
	}))
	t.Cleanup(receiver.Close)
	i := newImage(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw}))

	program, err := built()
	require.NoError(t, err)
	require.NotContains(t, string(program), "ld-linux", "the program is static")
	require.Contains(t, i.must(t, "demo", "--for", "3s"), "succeeded")
	i.must(t, "migrate", "up")
	i.must(t, "schedules", "create", "nightly", "log", "--cron", "0 3 * * *", "--zone", "Australia/Lord_Howe")

	i.env = append(i.env, "DURABLE_HTTP_ADDR=0.0.0.0:"+freePort(t), "DURABLE_HTTP_JOB_ALLOW="+receiver.URL)
	output, err := i.run("healthcheck")
	require.Error(t, err, output)
	worker := i.command()
	var log bytes.Buffer
	worker.Stdout, worker.Stderr = &log, &log
	require.NoError(t, worker.Start())
	t.Cleanup(func() { _ = worker.Process.Kill() })
	require.Eventually(t, func() bool { _, err := i.run("healthcheck", "--ready"); return err == nil }, 2*time.Minute, 100*time.Millisecond)
	i.must(t, "healthcheck")
	id := strings.TrimSpace(i.must(t, "enqueue", "http", "--args", `{"url":"`+receiver.URL+`"}`))
	require.Eventually(t, func() bool {
		output, err := i.run("runs", "show", id, "--json")
		return err == nil && strings.Contains(output, `"over": "tls"`)
	}, 2*time.Minute, 100*time.Millisecond)

	require.NoError(t, worker.Process.Signal(syscall.SIGTERM))
	require.NoError(t, worker.Wait(), log.String())
	entries, err := os.ReadDir(i.root)
	require.NoError(t, err)
	require.Len(t, entries, 3, "nothing was written beside /data")
}
