// Package redistest starts throw-away Redis servers for tests, each in a
// temporary directory, on a socket there or on a port of the loopback device.
//
// A server program that cannot be found is a failed test with the line to type,
// never a skipped one.
package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Server is a server of one test.
type Server struct {
	program string
	dir     string
	args    []string
	network string
	address string

	pipe io.WriteCloser
	done chan struct{}
	pid  int
}

// watchdog runs the server and waits for a word: a signal's name, to stop it,
// or the end of the pipe, for whatever reason, to remove its directory too.
const watchdog = `"$@" >>log 2>&1 &
pid=$!
echo "$pid"
word=
read -r word || word=
kill -s "${word:-KILL}" "$pid" 2>/dev/null
wait "$pid"
[ -n "$word" ] || rm -rf "$PWD"`

// Socket starts a server on a socket. The settings are those of redis.conf,
// one string each, such as "maxmemory 1mb".
func Socket(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	s, err := newServer(settings)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.remove)
	return s
}

// highestPort leaves room for the port of a cluster's own traffic, which is
// ten thousand higher: a server in cluster mode refuses a higher one.
const highestPort = 55_535

// Port starts a server on a free port of the loopback device. A setting may
// say {port} and {dir}. A port that was free a moment ago may be another's when
// the server comes to it; then it is the next one.
func Port(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	var err error
	for range 20 {
		var s *Server
		if s, err = onPort(settings); err == nil {
			tb.Cleanup(s.remove)
			return s
		}
	}
	tb.Fatal(err)
	return nil
}

func onPort(settings []string) (*Server, error) {
	address, port, err := freePort()
	if err != nil {
		return nil, err
	}
	s, err := prepare()
	if err != nil {
		return nil, err
	}
	own := []string{"port " + port, "bind 127.0.0.1"}
	for _, setting := range settings {
		own = append(own, strings.ReplaceAll(setting, "{port}", port))
	}
	s.network, s.address = "tcp", address
	s.configure(own)
	if err := s.start(); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

// freePort finds a port that no process listens on.
func freePort() (address, port string, err error) {
	for range 1000 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", "", err
		}
		address = listener.Addr().String()
		if err := listener.Close(); err != nil {
			return "", "", err
		}
		if _, port, err = net.SplitHostPort(address); err != nil {
			return "", "", err
		}
		if n, err := strconv.Atoi(port); err == nil && n <= highestPort {
			return address, port, nil
		}
	}
	return "", "", fmt.Errorf("no port up to %d is free", highestPort)
}

// shared is the server of this test process. It ends with the process.
var shared = sync.OnceValues(func() (*Server, error) { return newServer(nil) }) //nolint:gochecknoglobals // one server for all tests of a process

// URL names the server that the tests of a process share. Each test needs a
// prefix of its own.
func URL(tb testing.TB) string {
	tb.Helper()
	s, err := shared()
	if err != nil {
		tb.Fatal(err)
	}
	return s.URL()
}

func newServer(settings []string) (*Server, error) {
	s, err := prepare()
	if err != nil {
		return nil, err
	}
	s.network, s.address = "unix", filepath.Join(s.dir, "socket")
	s.configure(append([]string{"port 0", "unixsocket " + s.address}, settings...))
	if err := s.start(); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

func prepare() (*Server, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("no Redis server is installed; the tests need one:\n\n\tsudo apt-get install -y redis-server")
	}
	parent := os.TempDir()
	if len(parent) > 60 { // the name of a socket has room for 107 bytes
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "durable-redis-")
	if err != nil {
		return nil, err
	}
	return &Server{program: program, dir: dir}, nil
}

func (s *Server) configure(settings []string) {
	s.args = []string{s.program}
	for _, setting := range append([]string{"save ''", "appendonly no", "daemonize no", "dir " + s.dir}, settings...) {
		name, value, _ := strings.Cut(strings.ReplaceAll(setting, "{dir}", s.dir), " ")
		s.args = append(s.args, "--"+name)
		s.args = append(s.args, strings.Fields(strings.ReplaceAll(value, "''", "\x00"))...)
	}
	for i, arg := range s.args {
		s.args[i] = strings.ReplaceAll(arg, "\x00", "")
	}
}

// URL names the server.
func (s *Server) URL() string {
	if s.network == "unix" {
		return "unix://" + s.address
	}
	return "redis://" + s.address
}

// Address is the host and port, or the path, of the server.
func (s *Server) Address() string { return s.address }

// Dir is the directory of the server.
func (s *Server) Dir() string { return s.dir }

// Stop kills the server: what it held in memory is gone.
func (s *Server) Stop() { s.end("KILL") }

// Signal sends a signal to the server, such as SIGSTOP.
func (s *Server) Signal(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	if err := syscall.Kill(s.pid, signal); err != nil {
		tb.Fatal(err)
	}
}

// Start starts a stopped server and waits until it answers.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	if err := s.start(); err != nil {
		tb.Fatal(err)
	}
}

func (s *Server) end(signal string) {
	if s.pipe == nil {
		return
	}
	_, _ = io.WriteString(s.pipe, signal+"\n")
	_ = s.pipe.Close()
	<-s.done
	s.pipe = nil
}

func (s *Server) remove() {
	s.end("KILL")
	_ = os.RemoveAll(s.dir)
}

func (s *Server) start() error {
	shell := exec.Command("/bin/sh", append([]string{"-c", watchdog, "sh"}, s.args...)...)
	shell.Dir = s.dir
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := shell.StdinPipe()
	if err != nil {
		return err
	}
	out, err := shell.StdoutPipe()
	if err != nil {
		return err
	}
	if err := shell.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(line, &s.pid); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() { // ends with the server; end waits for it
		_ = shell.Wait()
		close(done)
	}()
	s.pipe, s.done = pipe, done
	return s.answers()
}

// answers waits until the server takes connections.
func (s *Server) answers() error {
	for deadline := time.Now().Add(60 * time.Second); ; {
		conn, err := net.DialTimeout(s.network, s.address, time.Second)
		if err == nil {
			_ = conn.Close()
			if s.network == "unix" || s.listens() {
				return nil
			}
			err = errors.New("another process has the port")
		}
		if time.Now().After(deadline) || strings.Contains(s.log(), "Failed listening") {
			return fmt.Errorf("the server does not answer: %w: %s", err, s.log())
		}
		<-time.After(10 * time.Millisecond)
	}
}

// listens reports whether it is this server that answers: it says so in its log.
func (s *Server) listens() bool {
	return strings.Contains(s.log(), "Ready to accept connections")
}

func (s *Server) log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(text)
}
