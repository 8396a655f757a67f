package conn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/store"
)

// Describe returns what the driver reads from a connection string, without what is secret.
func Describe(url string) (string, error) {
	config, err := read(url)
	if err != nil {
		return "", err
	}
	return address(&config.ConnConfig.Config), nil
}

// read reads a connection string. The parser's own errors quote it, with a
// password where the parser did not find one, and so they are not handed on.
func read(text string) (*pgxpool.Config, error) {
	if err := checkUserinfo(text); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(text)
	if err == nil {
		return config, nil
	}
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, fmt.Errorf("the database URL names a file that cannot be read: %w", file)
	}
	return nil, fmt.Errorf("%w: the database URL, or a service that it names, cannot be read: "+
		"want postgres://user:password@host:port/database?option=value, special characters in its parts written as %%XX", store.ErrInvalid)
}

// checkUserinfo refuses a URL in which a character of a password ends the
// password: the driver would take the rest for a host, and ask a resolver for
// it. It also refuses those that other programs read in another way.
func checkUserinfo(text string) error {
	scheme, rest, found := strings.Cut(text, "://")
	if !found || scheme != "postgres" && scheme != "postgresql" {
		return nil
	}
	if end := strings.IndexAny(rest, "@/"); end >= 0 && rest[end] == '@' {
		if strings.ContainsAny(rest[:end], "?#") {
			return errUserinfo
		}
		rest = rest[end+1:]
	}
	if strings.Contains(rest, "@") {
		return errUserinfo
	}
	return nil
}

var errUserinfo = fmt.Errorf("%w: the database URL is ambiguous: write @ # ? and / in its user, password and options as %%40 %%23 %%3F and %%2F",
	store.ErrInvalid)

// address writes what the driver has read, without what is secret.
func address(c *pgconn.Config) string {
	ends := []*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}
	ends = append(ends, c.Fallbacks...)
	var hosts []string
	for _, end := range ends {
		if host := hostPort(end); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	text := "postgres://" + escaped(c.User) + "@" + strings.Join(hosts, ",") + "/" + escaped(c.Database)
	if mode := sslMode(ends); mode != "" {
		text += "?sslmode=" + mode
	}
	return text
}

func hostPort(end *pgconn.FallbackConfig) string {
	port := strconv.Itoa(int(end.Port))
	if net.ParseIP(end.Host) != nil {
		return net.JoinHostPort(end.Host, port)
	}
	return escaped(end.Host) + ":" + port
}

func escaped(part string) string { return strings.ReplaceAll(url.QueryEscape(part), "+", "%20") }

// sslMode names what the driver does for the first host that is reached over a
// network; none is.
func sslMode(ends []*pgconn.FallbackConfig) string {
	first := slices.IndexFunc(ends, func(end *pgconn.FallbackConfig) bool {
		network, _ := pgconn.NetworkAddress(end.Host, end.Port)
		return network == "tcp"
	})
	if first < 0 {
		return ""
	}
	both := false // with and without TLS
	for _, end := range ends {
		both = both || hostPort(end) == hostPort(ends[first]) && (end.TLSConfig == nil) != (ends[first].TLSConfig == nil)
	}
	return sslModeOf(ends[first].TLSConfig, both)
}

func sslModeOf(first *tls.Config, both bool) string {
	switch {
	case first == nil && both:
		return "allow"
	case first == nil:
		return "disable"
	case both:
		return "prefer"
	case first.VerifyPeerCertificate != nil:
		return "verify-ca"
	case first.InsecureSkipVerify:
		return "require"
	default:
		return "verify-full"
	}
}
