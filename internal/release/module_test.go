package main_test

import (
	"archive/zip"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	release "github.com/durable-worker/durable-worker/internal/release"
)

const (
	module  = "github.com/durable-worker/durable-worker"
	version = "v0.1.0"
)

// A module of a user's, on a machine that has nothing yet and takes durable from a
// proxy: `go mod tidy` works, and who uses PostgreSQL alone gets nothing of SQLite,
// Redis and the command line.
func TestAUsersModule(t *testing.T) {
	t.Parallel()
	proxy := proxyOf(t)

	u := newUser(t, proxy, `package main

import (
	"context"

	"`+module+`/durable"
	"`+module+`/store/postgres"
)

func main() {
	store, err := postgres.Open(context.Background(), "postgres://127.0.0.1/app", postgres.Config{})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	_ = durable.NewWorker(store, durable.WorkerConfig{}).Run(context.Background())
}
`)
	u.run("mod", "tidy")
	u.run("build", "-o", filepath.Join(u.dir, "program"), ".")
	required := u.read("go.mod")
	require.Contains(t, required, module+" "+version)
	downloaded := u.downloads()
	for _, other := range []string{"modernc.org/", "redis", "alecthomas/kong", "caarlos0/env", "oklog/run", "golang.org/x/term", "opentelemetry"} {
		require.NotContains(t, required, other)
		require.NotContains(t, downloaded, other)
	}
	t.Logf("go.mod has %d lines, go.sum %d, %d modules were downloaded", strings.Count(required, "\n"), strings.Count(u.read("go.sum"), "\n"), strings.Count(downloaded, "\n"))

	whole := newUser(t, proxy, `package main

import (
	"context"

	"`+module+`/durablecmd"
	_ "`+module+`/durable/durabletest"
	_ "`+module+`/store/storetest"
)

func main() { durablecmd.Main(func(context.Context, *durablecmd.App) error { return nil }) }
`)
	whole.run("mod", "tidy")
	whole.run("mod", "verify")
}

// The command is installed by its path and version, and knows the version.
func TestInstallTheCommand(t *testing.T) {
	t.Parallel()
	u := newUser(t, proxyOf(t), "package main\n")
	u.env = append(u.env, "GOBIN="+u.dir)
	u.run("install", module+"/cmd/durable-worker@"+version)
	said, err := exec.Command(filepath.Join(u.dir, "durable-worker"), "--version").Output() //nolint:gosec // built by this test
	require.NoError(t, err)
	require.Equal(t, version+"\n", string(said))
}

// proxyOf makes a module proxy of files that has this module in one version.
func proxyOf(t *testing.T) string {
	t.Helper()
	proxy := t.TempDir()
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	root := os.DirFS(filepath.Join("..", ".."))
	required, err := fs.ReadFile(root, "go.mod")
	require.NoError(t, err)
	for name, text := range map[string]string{
		"list": version + "\n", version + ".mod": string(required), version + ".info": `{"Version":"` + version + `","Time":"2026-11-22T20:00:00Z"}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	file, err := os.Create(filepath.Join(dir, version+".zip"))
	require.NoError(t, err)
	archive := zip.NewWriter(file)
	sources := release.Sources(root)
	require.NoError(t, fs.WalkDir(sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		to, err := archive.Create(module + "@" + version + "/" + name)
		if err != nil {
			return err
		}
		from, err := sources.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = from.Close() }()
		_, err = io.Copy(to, from)
		return err
	}))
	require.NoError(t, archive.Close())
	require.NoError(t, file.Close())
	return proxy
}

// user is a module of a user's, on a machine without a module cache.
type user struct {
	t   *testing.T
	dir string
	env []string
}

// newUser makes a module of one file. What is not in the proxy comes from the module
// cache of this machine, and only what that lacks from where Go takes modules.
func newUser(t *testing.T, proxy, text string) *user {
	t.Helper()
	u := &user{t: t, dir: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(u.dir, "go.mod"), []byte("module example.com/user\n\ngo 1.26.0\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(u.dir, "main.go"), []byte(text), 0o600))
	asked := func(name string) string {
		value, err := exec.Command("go", "env", name).Output() //nolint:gosec // a constant
		require.NoError(t, err)
		return strings.TrimSpace(string(value))
	}
	u.env = append(os.Environ(), "GOMODCACHE="+filepath.Join(u.dir, "cache"), "GOFLAGS=-modcacherw -trimpath", "CGO_ENABLED=0", "GOWORK=off", "GOSUMDB=off",
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(asked("GOMODCACHE"), "cache", "download")+","+asked("GOPROXY"))
	return u
}

func (u *user) run(args ...string) {
	u.t.Helper()
	command := exec.Command("go", args...) //nolint:gosec // with arguments from here
	command.Dir, command.Env = u.dir, u.env
	output, err := command.CombinedOutput()
	require.NoError(u.t, err, "go %v: %s", args, output)
}

func (u *user) read(name string) string {
	u.t.Helper()
	text, err := os.ReadFile(filepath.Join(u.dir, name))
	require.NoError(u.t, err)
	return string(text)
}

// downloads lists the modules whose sources are in the cache, a line for each.
func (u *user) downloads() string {
	u.t.Helper()
	var names strings.Builder
	cache := os.DirFS(filepath.Join(u.dir, "cache", "cache", "download"))
	require.NoError(u.t, fs.WalkDir(cache, ".", func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".zip") {
			names.WriteString(name + "\n")
		}
		return err
	}))
	return names.String()
}
