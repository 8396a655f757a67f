package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// server is a PostgreSQL of our own on a socket in a directory of its own.
type server struct {
	dir        string
	bin        string
	credential *syscall.Credential // nil: our own user
	process    *exec.Cmd
	statements bool     // pg_stat_statements is there
	more       []string // settings
	planning   bool     // it counts plans, which costs a little
	sequence   int
}

// observerName is the superuser we look with; contenders connect as loadName, so
// that statements can be kept apart.
const (
	observerName = "observer"
	loadName     = "load"
)

// startServer makes a cluster that writes to disk for real and starts it.
func startServer(ctx context.Context, parent string, planning bool, more []string) (*server, error) {
	s := &server{planning: planning, more: more}
	if err := s.find(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "bench-")
	if err != nil {
		return nil, err
	}
	s.dir = dir
	if err := errors.Join(s.own(), s.create(), s.start(ctx)); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// find looks for the server's programs, and for the user they may run as.
func (s *server) find() error {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(dirs, func(a, b string) int { return versionOf(b) - versionOf(a) })
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append([]string{filepath.Dir(path)}, dirs...)
	}
	for _, dir := range dirs {
		_, errInit := os.Stat(filepath.Join(dir, "initdb"))
		_, errServer := os.Stat(filepath.Join(dir, "postgres"))
		if errInit == nil && errServer == nil {
			s.bin = dir
			break
		}
	}
	if s.bin == "" {
		return errors.New("no PostgreSQL server is installed: want initdb and postgres in PATH or /usr/lib/postgresql/*/bin")
	}
	if os.Geteuid() != 0 {
		return nil
	}
	owner, err := user.Lookup("postgres")
	if err != nil {
		return fmt.Errorf("the server does not run as root: %w", err)
	}
	uid, errUID := strconv.ParseUint(owner.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(owner.Gid, 10, 32)
	s.credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: true}
	return errors.Join(errUID, errGID)
}

func versionOf(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return n
}

func (s *server) own() error {
	if s.credential == nil {
		return nil
	}
	return os.Chown(s.dir, int(s.credential.Uid), int(s.credential.Gid))
}

func (s *server) command(name string, arguments ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), arguments...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.credential, Pdeathsig: syscall.SIGQUIT}
	return cmd
}

func (s *server) create() error {
	out, err := s.command("initdb", "-D", s.data(), "-U", observerName, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	libraries, _ := exec.Command(filepath.Join(s.bin, "pg_config"), "--pkglibdir").Output()
	own, _ := filepath.EvalSymlinks(filepath.Join(s.bin, "postgres"))
	for _, dir := range []string{strings.TrimSpace(string(libraries)), filepath.Join(filepath.Dir(own), "..", "lib")} {
		if _, err := os.Stat(filepath.Join(dir, "pg_stat_statements.so")); err == nil {
			s.statements = true
		}
	}
	return nil
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

// settings are what differs from the defaults of PostgreSQL.
func (s *server) settings() []string {
	list := []string{
		"listen_addresses=", "unix_socket_directories=" + s.dir, "max_connections=1000", "shared_buffers=1GB", "max_wal_size=2GB",
		"fsync=on", "synchronous_commit=on", "full_page_writes=on", "log_min_messages=warning",
	}
	if s.statements {
		list = append(list, "shared_preload_libraries=pg_stat_statements")
		if s.planning {
			list = append(list, "pg_stat_statements.track_planning=on")
		}
	}
	return append(list, s.more...)
}

func (s *server) start(ctx context.Context) error {
	arguments := []string{"-D", s.data()}
	for _, setting := range s.settings() {
		arguments = append(arguments, "-c", setting)
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	s.process = s.command("postgres", arguments...)
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		return err
	}
	if err := s.answers(ctx); err != nil {
		text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		return fmt.Errorf("the server does not start: %w\n%s", err, text)
	}
	sql := "CREATE ROLE " + loadName + " LOGIN"
	if s.statements {
		sql += "; CREATE EXTENSION pg_stat_statements"
	}
	return s.execute(ctx, sql)
}

func (s *server) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for {
		err := s.execute(ctx, "SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticks.C:
		}
	}
}

// url names a database for a user.
func (s *server) url(user, database string) string {
	return (&url.URL{Scheme: "postgres", User: url.User(user), Path: "/" + database,
		RawQuery: url.Values{"host": {s.dir}, "sslmode": {"disable"}}.Encode()}).String()
}

// execute runs SQL in the maintenance database.
func (s *server) execute(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.url(observerName, "postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}

// database makes an empty database. The checkpoint keeps the page images of
// what came before out of the next measurement.
func (s *server) database(ctx context.Context) (name string, err error) {
	s.sequence++
	name = fmt.Sprintf("bench_%d", s.sequence)
	for _, sql := range []string{"CREATE DATABASE " + name + " OWNER " + loadName, "CHECKPOINT"} {
		if err := s.execute(ctx, sql); err != nil {
			return "", fmt.Errorf("%s: %w", sql, err)
		}
	}
	return name, nil
}

func (s *server) drop(ctx context.Context, name string) {
	_ = s.execute(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

func (s *server) version(ctx context.Context) string {
	var version string
	conn, err := pgx.Connect(ctx, s.url(observerName, "postgres"))
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close(ctx) }()
	_ = conn.QueryRow(ctx, "SHOW server_version").Scan(&version)
	return version
}

// stop ends the server and removes its directory.
func (s *server) stop() {
	if s.process != nil && s.process.Process != nil {
		_ = s.process.Process.Signal(syscall.SIGINT)
		_ = s.process.Wait()
	}
	_ = os.RemoveAll(s.dir)
}

// redisServer is a Redis of our own, without persistence.
type redisServer struct {
	process *exec.Cmd
	dir     string
}

// errNoRedis says that there is nothing to compare asynq on.
var errNoRedis = errors.New("redis-server is not installed")

func startRedis(path string) (*redisServer, error) {
	if path == "" {
		found, err := exec.LookPath("redis-server")
		if err != nil {
			return nil, errNoRedis
		}
		path = found
	}
	dir, err := os.MkdirTemp("", "bench-redis-")
	if err != nil {
		return nil, err
	}
	r := &redisServer{dir: dir, process: exec.Command(path, "--port", "0", "--unixsocket", filepath.Join(dir, "s"), "--save", "", "--appendonly", "no", "--dir", dir)}
	r.process.Stdout = io.Discard
	r.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := r.process.Start(); err != nil {
		return nil, err
	}
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for range 250 {
		<-ticks.C
		if _, err := os.Stat(r.target()); err == nil {
			return r, nil
		}
	}
	r.stop()
	return nil, errors.New("redis-server does not start")
}

func (r *redisServer) target() string { return filepath.Join(r.dir, "s") }

func (r *redisServer) stop() {
	_ = r.process.Process.Signal(syscall.SIGTERM)
	_ = r.process.Wait()
	_ = os.RemoveAll(r.dir)
}
