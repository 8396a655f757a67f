package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Pooler starts a PgBouncer in transaction mode before the server that the
// tests of a process share, and returns the URL of the server through it. Its
// version may know no prepared statements: add default_query_exec_mode=exec.
// Requests to cancel a statement do not reach it: see [front].
func Pooler(tb testing.TB) string {
	tb.Helper()
	behind, err := url.Parse(Server(tb))
	if err != nil {
		tb.Fatal(err)
	}
	found, err := findPrograms()
	if err != nil {
		tb.Fatal(err)
	}
	running, err := startPooler(found, behind)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if log := logOf(running.dir); tb.Failed() && len(bytes.TrimSpace(log)) > 0 {
			tb.Logf("the pooler has logged:\n%s", log)
		}
		_ = running.pipe.Close()
		<-running.done
	})
	fronted, err := front(running.dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = fronted.Close() })
	return at(behind, running.dir, frontPort)
}

// at is a server's URL at a socket in a directory.
func at(server *url.URL, dir, port string) string {
	moved := *server
	moved.Host = ""
	moved.RawQuery = url.Values{"host": {dir}, "port": {port}, "sslmode": {"disable"}}.Encode()
	return moved.String()
}

func startPooler(owner programs, behind *url.URL) (*process, error) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // not in the PATH of everybody
		if _, err := os.Stat(program); err != nil {
			return nil, errors.New("no PgBouncer is installed; the tests need one:\n\n\tsudo apt-get install -y pgbouncer")
		}
	}
	dir, err := os.MkdirTemp(shortTemp(), "durable-pooler-")
	if err != nil {
		return nil, err
	}
	settings := fmt.Sprintf(`[databases]
* = %s

[pgbouncer]
pool_mode = transaction
auth_type = any
listen_addr =
unix_socket_dir = %s
listen_port = `+poolerPort+`
max_client_conn = 1000
default_pool_size = 20
ignore_startup_parameters = extra_float_digits
`, target(behind), dir)
	file := filepath.Join(dir, "pgbouncer.ini")
	err = firstError(owner.own(dir), os.WriteFile(file, []byte(settings), 0o644)) //nolint:gosec // no secret in it; another user reads it
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	running, err := owner.start(dir, "TERM", program, file)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return running, running.answers(at(behind, dir, poolerPort), dir)
}

// target is a server as a PgBouncer's connection string.
func target(behind *url.URL) string {
	query := behind.Query()
	host, port := behind.Hostname(), behind.Port()
	if host == "" {
		host, port = query.Get("host"), query.Get("port")
	}
	if port == "" {
		port = "5432"
	}
	text := fmt.Sprintf("host=%s port=%s user=%s", host, port, behind.User.Username())
	if password, ok := behind.User.Password(); ok {
		text += " password=" + password
	}
	return text
}
