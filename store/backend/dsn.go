package backend

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

type engine int8

const (
	enginePostgres engine = iota + 1
	engineSQLite
	engineMemory
)

// target is a connection string, understood.
type target struct {
	engine   engine
	location string // what the engine's own Open takes
}

// keyValue matches libpq's other form; it does not look into it.
var keyValue = regexp.MustCompile(`(?i)(^|\s)(host|hostaddr|port|dbname|user|password|service|sslmode)\s*=`)

// directory matches a path that can lead to no file, whatever is there: what
// cleans paths would take x.db/ for x.db, and what does not would refuse it.
var directory = regexp.MustCompile(`(^|/)(\.|\.\.)?$`)

const want = "want postgres://…, sqlite:<path> or memory:"

// Check reports whether dsn names a store this package can open, without
// connecting. The error does not repeat dsn.
func Check(dsn string) error {
	_, err := parse(dsn)
	return err
}

func parse(dsn string) (target, error) {
	scheme, rest, found := strings.Cut(dsn, ":")
	switch {
	case found && (scheme == "postgres" || scheme == "postgresql"):
		return parsePostgres(dsn)
	case found && scheme == "sqlite":
		return parseSQLite(rest)
	case found && scheme == "memory":
		if rest != "" {
			return target{}, errors.New("memory: takes nothing after the colon")
		}
		return target{engine: engineMemory}, nil
	case keyValue.MatchString(dsn):
		return parsePostgres(dsn)
	case found && (strings.HasPrefix(rest, "//") || !strings.Contains(rest, "@")) && regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`).MatchString(scheme):
		return target{}, fmt.Errorf("the database scheme %q is not known: %s", scheme, want)
	default:
		return target{}, fmt.Errorf("no database scheme is recognised: %s", want)
	}
}

// parsePostgres leaves the reading to the driver: a second parser would differ
// from it, and show what it takes for a password. A file that cannot be read
// now is for Open to complain of.
func parsePostgres(dsn string) (target, error) {
	if !keyValue.MatchString(dsn) && !strings.Contains(dsn, "://") {
		return target{}, errors.New("a PostgreSQL URL begins with postgres://")
	}
	if _, err := postgres.Describe(dsn); errors.Is(err, store.ErrInvalid) {
		return target{}, errors.New(strings.TrimPrefix(err.Error(), store.ErrInvalid.Error()+": "))
	}
	return target{engine: enginePostgres, location: dsn}, nil
}

// parseSQLite takes sqlite:path and sqlite:///absolute/path.
func parseSQLite(rest string) (target, error) {
	if host, isURL := strings.CutPrefix(rest, "//"); isURL {
		if !strings.HasPrefix(host, "/") {
			return target{}, errors.New("sqlite:// names no host: want sqlite:<path>, or sqlite:///<absolute path>")
		}
		rest = host
	}
	switch {
	case rest == "":
		return target{}, errors.New("sqlite: names no file: want sqlite:<path>")
	case rest == ":memory:":
		return target{}, errors.New(":memory: is not a file; write memory: for work that may be lost")
	case strings.ContainsAny(rest, "?#\x00"):
		return target{}, errors.New("sqlite: takes a path and nothing else (no ? and no #)")
	case directory.MatchString(rest):
		return target{}, errors.New("sqlite: names a directory: want sqlite:<path of a file>")
	}
	return target{engine: engineSQLite, location: rest}, nil
}

// Redact returns dsn fit for people and logs: of PostgreSQL, what the driver
// reads of user, hosts, database and sslmode, and nothing else.
func Redact(dsn string) string {
	t, err := parse(dsn)
	if err == nil && t.engine == enginePostgres {
		dsn, err = postgres.Describe(dsn)
	}
	if err != nil {
		return "(unreadable)"
	}
	return dsn
}
