package pgtest

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Killed ends a server as kill -9 does. Its connections end when their processes notice.
const Killed Mode = "KILL"

// Standby starts a server that follows this one by streaming replication, until the test ends
// or it is promoted. Synchronous says whether this one waits for it from then on.
func (c *Cluster) Standby(tb testing.TB, synchronous Synchrony) *Cluster {
	tb.Helper()
	s, err := c.newStandby()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.remove)
	await(tb, "the standby streams", func() bool {
		return Ask(tb, c.url, "SELECT count(*)::text FROM pg_stat_replication WHERE state = 'streaming'") != "0"
	})
	if synchronous == Synchronous {
		Execute(tb, c.url, "ALTER SYSTEM SET synchronous_standby_names = '*'")
		Execute(tb, c.url, "SELECT pg_reload_conf()")
		await(tb, "the standby is synchronous", func() bool {
			return Ask(tb, c.url, "SELECT count(*)::text FROM pg_stat_replication WHERE sync_state = 'sync'") != "0"
		})
	}
	return s
}

// Synchrony says whether a commit waits for the standby.
type Synchrony string

// The kinds of standby.
const (
	Asynchronous Synchrony = "asynchronous"
	Synchronous  Synchrony = "synchronous"
)

func (c *Cluster) newStandby() (*Cluster, error) {
	dir, err := os.MkdirTemp(shortTemp(), "durable-pg-")
	if err != nil {
		return nil, err
	}
	s := &Cluster{programs: c.programs, dir: dir, options: c.options, url: strings.ReplaceAll(c.url, url.QueryEscape(c.dir), url.QueryEscape(dir))}
	if err := s.copyOf(c); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	if err := s.start(); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

// copyOf fills the directory with a copy of another server that will follow it.
func (c *Cluster) copyOf(other *Cluster) error {
	if err := c.programs.own(c.dir); err != nil {
		return err
	}
	backup := c.programs.command("pg_basebackup", "-D", filepath.Join(c.dir, "data"), "-h", other.dir, "-p", "5432", "-U", "durable",
		"-c", "fast", "-X", "stream", "-R", "--no-sync")
	backup.Dir = c.dir
	if out, err := backup.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w\n%s", err, out)
	}
	file, err := os.OpenFile(filepath.Join(c.dir, "data", "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0) //nolint:gosec // our own directory
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "unix_socket_directories = '%s'\n", c.dir)
	return firstError(err, file.Close())
}

// Detach ends the replication to a standby: it receives nothing more.
func (c *Cluster) Detach(tb testing.TB) {
	tb.Helper()
	Execute(tb, c.url, "ALTER SYSTEM SET primary_conninfo = ''")
	Execute(tb, c.url, "SELECT pg_reload_conf()")
	await(tb, "the standby receives nothing", func() bool { return Ask(tb, c.url, "SELECT count(*)::text FROM pg_stat_wal_receiver") == "0" })
}

// Promote makes a standby the primary. It waits for no standby of its own.
func (c *Cluster) Promote(tb testing.TB) {
	tb.Helper()
	Execute(tb, c.url, "ALTER SYSTEM RESET synchronous_standby_names")
	Execute(tb, c.url, "SELECT pg_promote(true, 60)")
}

// Either is the URL of whichever of two servers accepts writes.
func (c *Cluster) Either(other *Cluster) string {
	return (&url.URL{Scheme: "postgres", User: url.User("durable"), Path: "/postgres", RawQuery: url.Values{
		"host": {c.dir + "," + other.dir}, "port": {"5432,5432"}, "sslmode": {"disable"}, "target_session_attrs": {"read-write"}}.Encode()}).String()
}

// await waits until something is so.
func await(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within a minute: %s", what)
		}
	}
}
