package backend

import (
	"context"
	"net/url"
	"slices"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lease/redislease"
)

// RedisLocks are named locks that are kept in Redis.
type RedisLocks interface {
	lease.Locks
	// Close gives the connections up.
	Close() error
}

// OpenRedisLocks connects to the server that a URL names. The namespace, which
// is the schema of the database, begins every key, so that two applications
// share a server without meeting. It silences the client library's own logger.
func OpenRedisLocks(ctx context.Context, address, namespace string) (RedisLocks, error) {
	redislease.Quiet()
	locks, err := redislease.Open(ctx, address, redislease.Config{Prefix: namespace + ":lock:"})
	if err != nil {
		return nil, scrubbed(err, redisSecrets(address))
	}
	return locks, nil
}

// IsRedis tells whether a text is the address of a Redis server.
func IsRedis(address string) bool {
	u, err := url.Parse(address)
	return err == nil && slices.Contains([]string{"redis", "rediss", "unix"}, u.Scheme)
}

// RedactRedis is the address without its password, or "none".
func RedactRedis(address string) string {
	if address == "" {
		return "none"
	}
	u, err := url.Parse(address)
	if err != nil {
		return "(unreadable)"
	}
	return u.Redacted()
}

func redisSecrets(address string) []string {
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return nil
	}
	password, _ := u.User.Password()
	return []string{password, url.QueryEscape(password)}
}
