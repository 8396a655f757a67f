package pgtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options adjust a private server.
type Options struct {
	Fsync    bool              // write to disk for real; without it only a crash of the machine loses data
	Settings map[string]string // of postgresql.conf
	Under    []string          // a command that the server is started by, such as env with variables
}

// Mode says how a server is stopped.
type Mode string

// The ways to stop a server.
const (
	Fast      Mode = "INT"  // rolls transactions back and closes connections
	Immediate Mode = "QUIT" // like a crash: recovery at the next start
)

// Cluster is a server that listens on a socket in a directory of its own.
type Cluster struct {
	programs programs
	dir      string
	options  Options
	url      string

	mu      sync.Mutex
	running *process
}

// process is a server under a shell that outlives us: when our end of its pipe
// closes, for whatever reason, it stops the server and removes the directory.
type process struct {
	dir  string
	pipe io.WriteCloser
	done chan struct{}
}

// watchdog runs the server and waits for a word: a signal's name, to stop it,
// or the end of the pipe, to remove everything too.
const watchdog = `dir=$1 last=$2; shift 2
"$@" >>"$dir/log" 2>&1 &
pid=$!
word=
read -r word || word=
kill -s "${word:-$last}" "$pid" 2>/dev/null
wait "$pid"
[ -n "$word" ] || rm -rf "$dir"`

// StartPrivate starts a server for one test, which stops and removes it.
func StartPrivate(tb testing.TB, options Options) *Cluster {
	tb.Helper()
	c, err := newCluster(options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.remove)
	return c
}

func newCluster(options Options) (*Cluster, error) {
	found, err := findPrograms()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(shortTemp(), "durable-pg-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{programs: found, dir: dir, options: options}
	c.url = (&url.URL{Scheme: "postgres", User: url.User("durable"), Path: "/postgres",
		RawQuery: url.Values{"host": {dir}, "port": {"5432"}, "sslmode": {"disable"}}.Encode()}).String()
	if err := c.create(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	if err := c.start(); err != nil {
		c.remove()
		return nil, err
	}
	return c, nil
}

// shortTemp is a directory whose name leaves room for a socket's: at most 107
// bytes in all.
func shortTemp() string {
	if dir := os.TempDir(); len(dir) < 60 {
		return dir
	}
	return "/tmp"
}

func (c *Cluster) create() error {
	if err := c.programs.own(c.dir); err != nil {
		return err
	}
	initdb := c.programs.command("initdb", "-D", filepath.Join(c.dir, "data"), "-U", "durable", "-A", "trust",
		"-E", "UTF8", "--no-locale", "--no-sync")
	initdb.Dir = c.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	settings := map[string]string{
		"listen_addresses": "''", "unix_socket_directories": "'" + c.dir + "'", "port": "5432",
		"max_connections": "400", "shared_buffers": "128MB", "fsync": "off", "full_page_writes": "off",
		"log_min_messages": "warning", "max_wal_size": "2GB",
	}
	if c.options.Fsync {
		settings["fsync"], settings["full_page_writes"] = "on", "on"
	}
	for name, value := range c.options.Settings {
		settings[name] = value
	}
	var text strings.Builder
	for name, value := range settings {
		fmt.Fprintf(&text, "%s = %s\n", name, value)
	}
	file, err := os.OpenFile(filepath.Join(c.dir, "data", "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0) //nolint:gosec // our own directory
	if err != nil {
		return err
	}
	_, err = file.WriteString(text.String())
	return firstError(err, file.Close())
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// URL names the server's maintenance database. It stays the same over stops
// and starts.
func (c *Cluster) URL() string { return c.url }

// Dir is the directory that holds everything of the server.
func (c *Cluster) Dir() string { return c.dir }

// Stop stops the server and waits until it has stopped.
func (c *Cluster) Stop(tb testing.TB, mode Mode) {
	tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		return
	}
	if _, err := io.WriteString(c.running.pipe, string(mode)+"\n"); err != nil {
		tb.Fatal(err)
	}
	<-c.running.done
	_ = c.running.pipe.Close()
	c.running = nil
}

// Start starts a stopped server and waits until it answers.
func (c *Cluster) Start(tb testing.TB) {
	tb.Helper()
	if err := c.start(); err != nil {
		tb.Fatal(err)
	}
}

func (c *Cluster) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != nil {
		return nil
	}
	command := append(slices.Clone(c.options.Under), c.programs.path("postgres"), "-D", filepath.Join(c.dir, "data"))
	p, err := c.programs.start(c.dir, Immediate, command[0], command[1:]...)
	if err != nil {
		return err
	}
	c.running = p
	return p.answers(c.url, c.dir)
}

// start starts a program under a watchdog, in a directory that goes with it.
// last is the signal that ends it for good.
func (p programs) start(dir string, last Mode, program string, args ...string) (*process, error) {
	shell := p.asOwner("/bin/sh", append([]string{"-c", watchdog, "sh", dir, string(last), program}, args...)...)
	shell.Dir = dir
	pipe, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := shell.Start(); err != nil {
		return nil, err
	}
	running := &process{dir: dir, pipe: pipe, done: make(chan struct{})}
	go func() { // ends with the program; Stop and remove wait for it
		_ = shell.Wait()
		close(running.done)
	}()
	return running, nil
}

// answers waits until a server takes connections.
func (p *process) answers(url, dir string) error {
	deadline := time.Now().Add(3 * time.Minute)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		conn, err := pgx.Connect(ctx, url)
		if err == nil {
			err = conn.Close(ctx)
		}
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("the server has ended: %s", logOf(dir))
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server does not answer: %w: %s", err, logOf(dir))
		}
	}
}

// Log returns what the server has logged: warnings and worse.
func (c *Cluster) Log() []byte { return logOf(c.dir) }

func logOf(dir string) []byte {
	text, _ := os.ReadFile(filepath.Join(dir, "log"))
	return bytes.TrimSpace(text)
}

// remove stops the server and removes its directory.
func (c *Cluster) remove() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != nil {
		_ = c.running.pipe.Close()
		<-c.running.done
		c.running = nil
	}
	_ = os.RemoveAll(c.dir)
}
