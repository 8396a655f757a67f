package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// errNoPooler says that there is nothing to measure behind.
var errNoPooler = errors.New("skipped: pgbouncer is not installed")

// pool starts a PgBouncer in transaction mode before the server and returns the
// address of a database behind it. That it keeps no prepared statements is so
// with the versions that distributions have.
func (s *server) pool(ctx context.Context, target string) (pooled string, stop func(), err error) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // not in the PATH of everybody
		if _, err := os.Stat(program); err != nil {
			return "", nil, errNoPooler
		}
	}
	address, err := url.Parse(target)
	if err != nil {
		return "", nil, err
	}
	file := filepath.Join(s.dir, "pgbouncer.ini")
	settings := fmt.Sprintf("[databases]\n* = host=%s user=%s\n\n[pgbouncer]\npool_mode = transaction\nauth_type = any\nlisten_addr =\nunix_socket_dir = %s\nlisten_port = 6432\n"+
		"max_client_conn = 1000\ndefault_pool_size = 20\nlogfile =\nignore_startup_parameters = extra_float_digits\n", s.dir, loadName, s.dir)
	if err := os.WriteFile(file, []byte(settings), 0o644); err != nil { //nolint:gosec // no secret in it; another user reads it
		return "", nil, err
	}
	process := exec.Command(program, "-q", file)
	process.Dir = s.dir
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.credential, Pdeathsig: syscall.SIGTERM}
	if err := process.Start(); err != nil {
		return "", nil, err
	}
	stop = sync.OnceFunc(func() { _ = process.Process.Signal(syscall.SIGTERM); _ = process.Wait() })
	address.RawQuery = url.Values{"host": {s.dir}, "port": {"6432"}, "sslmode": {"disable"}, "default_query_exec_mode": {"exec"}}.Encode()
	var fault error
	err = until(ctx, func() bool {
		conn, err := pgx.Connect(ctx, address.String())
		if fault = err; err == nil {
			_ = conn.Close(ctx)
		}
		return err == nil
	}, 10*time.Second)
	if err != nil {
		stop()
		return "", nil, errors.Join(err, fault)
	}
	return address.String(), stop, nil
}

func poolerRow(n int) row {
	s := tuned(ours)
	s.PollOnly = true // a notification does not reach who listens through a pooler
	return row{
		name: "pgbouncer", long: true,
		title: fmt.Sprintf("drain %d runs through PgBouncer in transaction mode, nothing prepared (share: of the same drain without)", n),
		figures: append([]figure{{key: "rate", title: "throughput", unit: "/s"}, {key: "share", title: "of direct", unit: "%"}, thrift()},
			unbounded(costs())...),
		sides: []side{compared(drain{worker: s, n: n, pooled: true}, drain{worker: s, n: n})},
	}
}
