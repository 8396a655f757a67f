package backend

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
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
	location string   // what the engine's own Open takes
	secrets  []string // parts that must not be shown
}

var (
	keyValue = regexp.MustCompile(`(?i)(^|\s)(host|hostaddr|port|dbname|user|password|service|sslmode)\s*=`)
	password = regexp.MustCompile(`(?i)((?:^|\s)(?:password|sslpassword)\s*=\s*)('(?:[^'\\]|\\.)*'?|\S+)`)
)

const want = "want postgres://…, sqlite:<path> or memory:"

// Check tells whether dsn names a store this package can open, without
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
		t := target{engine: enginePostgres, location: dsn}
		for _, match := range password.FindAllStringSubmatch(dsn, -1) {
			t.secrets = append(t.secrets, match[2], strings.Trim(match[2], "'"))
		}
		return t, nil
	case found && regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`).MatchString(scheme):
		return target{}, fmt.Errorf("the database scheme %q is not known: %s", scheme, want)
	default:
		return target{}, fmt.Errorf("no database scheme is recognised: %s", want)
	}
}

func parsePostgres(dsn string) (target, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return target{}, errors.New("the PostgreSQL URL cannot be read; special characters in its parts are written as %XX")
	}
	if !strings.Contains(dsn, "://") {
		return target{}, errors.New("a PostgreSQL URL begins with postgres://")
	}
	t := target{engine: enginePostgres, location: dsn}
	if text, set := u.User.Password(); set {
		t.secrets = append(t.secrets, text, url.QueryEscape(text), url.PathEscape(text))
	}
	for _, key := range []string{"password", "sslpassword"} {
		t.secrets = append(t.secrets, u.Query()[key]...)
	}
	return t, nil
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
	}
	return target{engine: engineSQLite, location: rest}, nil
}

// Redact returns dsn fit for people and logs: without passwords, and without
// anything that could not be read.
func Redact(dsn string) string {
	t, err := parse(dsn)
	switch {
	case err != nil:
		return "(unreadable)"
	case t.engine != enginePostgres:
		return dsn
	case strings.Contains(dsn, "://"):
		u, _ := url.Parse(dsn) // parse has read it
		if _, set := u.User.Password(); set {
			u.User = url.UserPassword(u.User.Username(), "xxxxx")
		}
		query := u.Query()
		for _, key := range []string{"password", "sslpassword"} {
			if query.Has(key) {
				query.Set(key, "xxxxx")
			}
		}
		u.RawQuery = query.Encode()
		return u.String()
	default:
		return password.ReplaceAllString(dsn, "${1}xxxxx")
	}
}
