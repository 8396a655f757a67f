package redislease_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/redistest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lease/leasetest"
	"github.com/durable-worker/durable-worker/lease/redislease"
)

// opened are locks with a connection of the test's own.
type opened struct {
	*redislease.Locks
	client redis.UniversalClient
	prefix string
}

func open(t *testing.T, url string) opened {
	t.Helper()
	config := redislease.Config{Prefix: "test-" + lease.NewClaimID().Short() + ":", Timeout: 20 * time.Second}
	locks, err := redislease.Open(t.Context(), url, config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	return opened{locks, connect(t, url), config.Prefix}
}

func connect(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	var client redis.UniversalClient
	if strings.Contains(url, "addr=") {
		options, err := redis.ParseClusterURL(url)
		require.NoError(t, err)
		client = redis.NewClusterClient(options)
	} else {
		options, err := redis.ParseURL(url)
		require.NoError(t, err)
		client = redis.NewClient(options)
	}
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// shift takes time off the life of every slot and note, as if it had passed.
func shift(t *testing.T, locks opened, d time.Duration) {
	t.Helper()
	ctx := context.Background()
	each := locks.client.Scan(ctx, 0, locks.prefix+"*}:[0-9w]*", 1000).Iterator()
	for each.Next(ctx) {
		left, err := locks.client.PTTL(ctx, each.Val()).Result()
		require.NoError(t, err)
		require.NoError(t, locks.client.PExpire(ctx, each.Val(), left-d).Err())
	}
	require.NoError(t, each.Err())
}

func backend(url string) leasetest.Backend {
	return leasetest.Backend{
		New:     func(t *testing.T) lease.Locks { return open(t, url) },
		Advance: func(t *testing.T, locks lease.Locks, d time.Duration) { shift(t, locks.(opened), d) },
	}
}

func TestLocks(t *testing.T) { leasetest.TestLocks(t, backend(redistest.URL(t))) }

func BenchmarkLocks(b *testing.B) {
	config := redislease.Config{Prefix: "bench-" + lease.NewClaimID().Short() + ":"}
	locks, err := redislease.Open(b.Context(), redistest.URL(b), config)
	require.NoError(b, err)
	defer func() { require.NoError(b, locks.Close()) }()
	leasetest.BenchmarkLocks(b, locks)
}
