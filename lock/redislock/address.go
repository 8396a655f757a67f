package redislock

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/durable-worker/durable-worker/lock"
)

// Describe returns what the client reads from a URL, fit for people and logs:
// scheme, hosts and database, and nothing else of it. The error is
// lock.ErrInvalid and repeats nothing.
func Describe(url string) (string, error) {
	a, err := read(url)
	if err != nil {
		return "", err
	}
	return a.String(), nil
}

// address is a URL as the client reads it.
//
// Invariant: one of node and cluster is set.
type address struct {
	scheme  string
	node    *redis.Options
	cluster *redis.ClusterOptions
}

// read reads a URL. The parser's own error may quote it, and with it a password.
func read(text string) (address, error) {
	u, err := url.Parse(text)
	if err != nil {
		return address{}, errURL
	}
	// A raw # ? or / in a password ends it, and what is left of the password is
	// taken for a host.
	if after := u.EscapedPath() + "?" + u.RawQuery; strings.Contains(text, "#") || strings.Contains(after, "@") {
		return address{}, fmt.Errorf("%w: the URL of Redis is ambiguous: write @ # ? and / in its user and password as %%40 %%23 %%3F and %%2F", lock.ErrInvalid)
	}
	a := address{scheme: u.Scheme}
	if u.Query().Has("addr") {
		a.cluster, err = redis.ParseClusterURL(text)
	} else {
		a.node, err = redis.ParseURL(text)
	}
	if err != nil {
		return address{}, errURL
	}
	return a, nil
}

var errURL = fmt.Errorf("%w: the URL of Redis cannot be read: want redis://user:password@host:port/db, rediss:// or unix://", lock.ErrInvalid)

// String is the address without what is secret.
func (a address) String() string {
	text := a.scheme + "://"
	switch {
	case a.cluster != nil:
		hosts := make([]string, len(a.cluster.Addrs))
		for i, host := range a.cluster.Addrs {
			hosts[i] = plain(host)
		}
		return text + strings.Join(hosts, ",")
	case a.node.Network == "unix":
		return text + (&url.URL{Path: a.node.Addr}).EscapedPath() + "?db=" + strconv.Itoa(a.node.DB)
	default:
		return text + plain(a.node.Addr) + "/" + strconv.Itoa(a.node.DB)
	}
}

// plain writes a host and its port as they stand in a URL.
func plain(hostport string) string { return (&url.URL{Host: hostport}).String()[len("//"):] }

func (a address) tls() bool {
	if a.cluster != nil {
		return a.cluster.TLSConfig != nil
	}
	return a.node.TLSConfig != nil
}

func (a address) password() string {
	if a.cluster != nil {
		return a.cluster.Password
	}
	return a.node.Password
}

// dial makes the client, which connects when it is used. It does not retry by
// itself.
func (a address) dial(config Config) redis.UniversalClient {
	silent := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if options := a.cluster; options != nil {
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = config.Timeout, config.Timeout, config.Timeout
		options.MaxRetries, options.DialerRetries, options.ContextTimeoutEnabled, options.DisableIdentity = -1, 1, true, true
		options.MaintNotificationsConfig = silent
		options.TLSConfig = secure(options.TLSConfig, config.TLS)
		return redis.NewClusterClient(options)
	}
	options := a.node
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = config.Timeout, config.Timeout, config.Timeout
	options.MaxRetries, options.DialerRetries, options.ContextTimeoutEnabled, options.DisableIdentity = -1, 1, true, true
	options.MaintNotificationsConfig = silent
	options.TLSConfig = secure(options.TLSConfig, config.TLS)
	return redis.NewClient(options)
}
