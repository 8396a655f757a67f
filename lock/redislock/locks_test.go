package redislock_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/redistest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/lock/locktest"
	"github.com/durable-worker/durable-worker/lock/redislock"
)

// opened are locks with a connection of the test's own.
type opened struct {
	*redislock.Locks
	client redis.UniversalClient
	prefix string
}

func open(t *testing.T, url string) opened {
	t.Helper()
	config := redislock.Config{Prefix: "test-" + lease.NewClaimID().Short() + ":", Timeout: 20 * time.Second}
	locks, err := redislock.Open(t.Context(), url, config)
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

func backend(url string) locktest.Backend {
	return locktest.Backend{
		New:     func(t *testing.T) lock.Locks { return open(t, url) },
		Advance: func(t *testing.T, locks lock.Locks, d time.Duration) { shift(t, locks.(opened), d) },
	}
}

func TestLocks(t *testing.T) { locktest.TestLocks(t, backend(redistest.URL(t))) }

func BenchmarkLocks(b *testing.B) {
	config := redislock.Config{Prefix: "bench-" + lease.NewClaimID().Short() + ":"}
	locks, err := redislock.Open(b.Context(), redistest.URL(b), config)
	require.NoError(b, err)
	defer func() { require.NoError(b, locks.Close()) }()
	locktest.BenchmarkLocks(b, locks)
}

// away fails, of every pipeline, the commands on the keys of one lock, as a cluster
// does when one of its masters is away.
type away struct{ name string }

func (a away) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (a away) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (a away) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		err := next(ctx, commands)
		for _, command := range commands {
			if strings.Contains(command.String(), a.name) {
				err = net.ErrClosed
				command.SetErr(err)
			}
		}
		return err
	}
}

func TestRenew_AnswersForTheServersThatAnswered(t *testing.T) {
	client := connect(t, redistest.URL(t))
	locks, err := redislock.OpenClient(t.Context(), client, redislock.Config{Prefix: "test-" + lease.NewClaimID().Short() + ":"})
	require.NoError(t, err)
	take := func(name string) lease.ClaimID {
		request := lock.Request{Name: name, Slots: 1, Claim: lease.NewClaimID(), Duration: time.Minute}
		answer, err := locks.Acquire(t.Context(), request)
		require.NoError(t, err)
		require.True(t, answer.Granted)
		return request.Claim
	}
	here, there, gone := take("here"), take("there"), take("gone")
	released, err := locks.Release(t.Context(), "gone", gone)
	require.NoError(t, err)
	require.True(t, released)
	client.AddHook(away{"there"})
	renewed, err := locks.Renew(t.Context(), []lease.ClaimID{here, there, gone}, time.Minute)
	var unknown *lease.UnknownError
	require.ErrorAs(t, err, &unknown)
	require.ErrorIs(t, err, net.ErrClosed)
	require.Equal(t, []lease.ClaimID{there}, unknown.Claims)
	require.Equal(t, []lease.ClaimID{here}, renewed)
	renewed, err = locks.Renew(t.Context(), []lease.ClaimID{there}, time.Minute)
	require.Error(t, err)
	require.NotErrorAs(t, err, &unknown)
	require.Empty(t, renewed)

	locker := lock.NewLocker(locks, lock.LockerConfig{})
	renewed, err = locker.Renew(t.Context(), []lease.ClaimID{here, there}, time.Minute)
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.Equal(t, []lease.ClaimID{here}, renewed)
	require.Zero(t, locker.Degraded(), "other locks can be had")
}
