package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// shared is the server of this test process. It ends with the process.
var shared = sync.OnceValues(func() (string, error) { //nolint:gochecknoglobals // one server for all tests of a process
	if given := os.Getenv("DURABLE_TEST_DATABASE_URL"); given != "" {
		return given, nil
	}
	c, err := newCluster(Options{})
	if err != nil {
		return "", err
	}
	return c.URL(), nil
})

// Server returns the URL of the maintenance database of the server that the
// tests of a process share.
func Server(tb testing.TB) string {
	tb.Helper()
	server, err := shared()
	if err != nil {
		tb.Fatal(err)
	}
	return server
}

// Database makes an empty database on the shared server, which is dropped when
// the test ends, and returns its URL.
func Database(tb testing.TB) string {
	tb.Helper()
	return DatabaseOn(tb, Server(tb))
}

// DatabaseWith is Database with options of CREATE DATABASE.
func DatabaseWith(tb testing.TB, options string) string {
	tb.Helper()
	return databaseOn(tb, Server(tb), options)
}

// DatabaseOn is Database on another server.
func DatabaseOn(tb testing.TB, server string) string {
	tb.Helper()
	return databaseOn(tb, server, "")
}

func databaseOn(tb testing.TB, server, options string) string {
	tb.Helper()
	name := "test_" + strings.ToLower(rand.Text()[:16])
	Execute(tb, server, "CREATE DATABASE "+name+" TEMPLATE template0 "+options)
	tb.Cleanup(func() { // a connection that is being ended may still be there, on a slow machine for longer than the server waits
		for try := 0; try < 10 && send(server, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") != nil; try++ {
			<-time.After(time.Second)
		}
		Execute(tb, server, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	})
	u, err := url.Parse(server)
	if err != nil || u.Scheme == "" {
		tb.Fatal("DURABLE_TEST_DATABASE_URL: want postgres://user@host:port/database")
	}
	u.Path = "/" + name
	return u.String()
}

// Execute sends SQL to a server, as the owner of the database that the URL names.
func Execute(tb testing.TB, server, sql string) {
	tb.Helper()
	if err := send(server, sql); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// Load sends SQL that takes its time.
func Load(tb testing.TB, server, sql string) {
	tb.Helper()
	if err := sendFor(time.Hour, server, sql); err != nil {
		tb.Fatal(err)
	}
}

// Ask returns the one value that SQL selects, as text.
func Ask(tb testing.TB, server, sql string) string {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), server)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(context.Background())
	var text string
	if err := conn.QueryRow(tb.Context(), sql, pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return text
}

func send(server, sql string) error {
	return sendFor(2*time.Minute, server, sql)
}

func sendFor(within time.Duration, server, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("connect to the test server: %w", err)
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}
