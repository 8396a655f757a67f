package backend

import (
	"context"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/lock/redislock"
)

// RedisLocks are named locks that are kept in Redis.
type RedisLocks interface {
	lock.Locks
	// Close gives the connections up.
	Close() error
}

// OpenRedisLocks connects to the server that a URL names. The namespace, which
// is the schema of the database, begins every key, so that two applications
// share a server without meeting. It silences the client library's own logger.
func OpenRedisLocks(ctx context.Context, address, namespace string) (RedisLocks, error) {
	redislock.Quiet()
	locks, err := redislock.Open(ctx, address, redislock.Config{Prefix: namespace + ":lock:"})
	if err != nil {
		return nil, err
	}
	return locks, nil
}

// CheckRedis reports whether a text is the address of a Redis server, without
// connecting. The error does not repeat it.
func CheckRedis(address string) error {
	_, err := redislock.Describe(address)
	return err
}

// RedactRedis is the address's scheme, hosts and database, or "none".
func RedactRedis(address string) string {
	if address == "" {
		return "none"
	}
	shown, err := redislock.Describe(address)
	if err != nil {
		return "(unreadable)"
	}
	return shown
}
