package redislock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

// TestLocks_Cluster runs the suite on a node in cluster mode, which refuses
// every command whose keys belong to different slots.
func TestLocks_Cluster(t *testing.T) {
	server := redistest.Port(t, "cluster-enabled yes", "cluster-config-file {dir}/nodes.conf")
	url := server.URL() + "?addr=" + server.Address()
	node := redis.NewClient(&redis.Options{Addr: server.Address()})
	t.Cleanup(func() { _ = node.Close() })
	require.NoError(t, node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool {
		info, err := node.ClusterInfo(context.Background()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	}, 2*time.Minute, 20*time.Millisecond)
	locktest.TestLocks(t, backend(url))
}

func TestOpen_RefusesAServerThatMayEvict(t *testing.T) {
	for _, policy := range []string{"allkeys-lru", "volatile-ttl", "volatile-lfu"} {
		server := redistest.Socket(t, "maxmemory 1mb", "maxmemory-policy "+policy)
		_, err := redislock.Open(t.Context(), server.URL(), redislock.Config{})
		require.ErrorIs(t, err, redislock.ErrEviction)
		require.ErrorContains(t, err, policy)
	}
}

func TestOpen_KeepsSecretsAndRefusesNonsense(t *testing.T) {
	for _, url := range []string{"redis://user:hunter2@[bad", "http://user:hunter2@host", "redis://user:hunter2@host:6379/x", "redis://:1#hunter2@host", "redis://:1?hunter2@host"} {
		_, err := redislock.Open(t.Context(), url, redislock.Config{})
		require.ErrorIs(t, err, lock.ErrInvalid)
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err := redislock.Open(t.Context(), redistest.URL(t), redislock.Config{Prefix: "a{b}"})
	require.ErrorIs(t, err, lock.ErrInvalid)
}

func TestOpen_APasswordDecidesNothing(t *testing.T) {
	server := redistest.Port(t, "requirepass myaddr=x")
	url := "redis://:myaddr=x@" + server.Address()
	locks, err := redislock.Open(t.Context(), url, redislock.Config{Timeout: 20 * time.Second})
	require.NoError(t, err, "one server, not a cluster")
	require.NoError(t, locks.Close())
	_, err = redislock.Open(t.Context(), url, redislock.Config{TLS: &tls.Config{MinVersion: tls.VersionTLS12}})
	require.ErrorIs(t, err, lock.ErrInvalid, "the password would go in the clear")
	require.ErrorContains(t, err, "rediss://")
	require.NotContains(t, err.Error(), "myaddr")
}

// TestFullMemory: a server that may not evict refuses the lock; it does not
// lose one.
func TestFullMemory(t *testing.T) {
	server := redistest.Socket(t)
	locks := open(t, server.URL())
	held := lock.Request{Name: "nightly", Slots: 1, Claim: lease.NewClaimID(), Duration: time.Minute}
	_, err := locks.Acquire(t.Context(), held)
	require.NoError(t, err)
	require.NoError(t, locks.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	other := held
	other.Name, other.Claim = "other", lease.NewClaimID()
	_, err = locks.Acquire(t.Context(), other)
	require.ErrorContains(t, err, "OOM")
	released, err := locks.Release(t.Context(), held.Name, held.Claim)
	require.NoError(t, err)
	require.True(t, released)
}

// TestOutages stops, freezes, empties and restarts a server in the middle: each
// lock follows its policy, and returns to the store by itself.
func TestOutages(t *testing.T) {
	server := redistest.Socket(t)
	locks, err := redislock.Open(t.Context(), server.URL(), redislock.Config{Timeout: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close() })
	var counters lock.Counters
	l := lock.NewLocker(locks, lock.LockerConfig{CallTimeout: time.Second, Observer: &counters})
	try := func(name string, policy lock.Policy) (lock.Grant, error) {
		return l.TryAcquire(t.Context(), name, lock.Terms{Policy: policy})
	}
	heals := func(name string) lock.Grant {
		var grant lock.Grant
		require.Eventually(t, func() (ok bool) {
			grant, err = try(name, lock.Skip)
			return err == nil
		}, 2*time.Minute, 50*time.Millisecond)
		return grant
	}
	first := heals("nightly")
	for what, fault := range map[string]struct{ begin, end func() }{
		"down": {server.Stop, func() { server.Start(t) }},
		"slow": {func() { server.Signal(t, syscall.SIGSTOP) }, func() { server.Signal(t, syscall.SIGCONT) }},
	} {
		fault.begin()
		_, err = try("skip", lock.Skip)
		require.ErrorIs(t, err, lock.ErrHeld, what)
		_, err = try("fail", lock.Fail)
		require.ErrorIs(t, err, lock.ErrUnavailable, what)
		grant, err := try("local "+what, lock.RunLocal)
		require.NoError(t, err, what)
		require.True(t, grant.Local, what)
		_, err = try("local "+what, lock.RunLocal)
		require.ErrorIs(t, err, lock.ErrHeld, what)
		require.Positive(t, l.Degraded(), what)
		fault.end()
		heals("healed " + what)
		require.Zero(t, l.Degraded(), what)
	}
	client := connect(t, server.URL())
	require.NoError(t, client.FlushAll(t.Context()).Err())
	after := heals("nightly")
	require.Greater(t, after.Fence, first.Fence, "the fence rises though everything was lost")
	require.ErrorIs(t, l.Release(t.Context(), first), lease.ErrLost)
	renewed, err := l.Renew(t.Context(), []lease.ClaimID{first.Claim, after.Claim}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, []lease.ClaimID{after.Claim}, renewed)
	require.EqualValues(t, 2, counters.Counts().GrantedHere)
	require.Positive(t, counters.Counts().Degraded)
}

func TestKeysCanBeReadWithTheCommandLine(t *testing.T) {
	locks := open(t, redistest.URL(t))
	r := lock.Request{Name: "a{b}", Slots: 2, Claim: lease.NewClaimID(), Owner: "host-1", Duration: time.Minute}
	_, err := locks.Acquire(t.Context(), r)
	require.NoError(t, err)
	left, err := locks.client.PTTL(t.Context(), locks.prefix+"{a%7Bb%7D}:0").Result()
	require.NoError(t, err)
	require.InDelta(t, time.Minute, left, float64(10*time.Second))
	owner, err := locks.client.HGet(t.Context(), locks.prefix+"{a%7Bb%7D}", "owner:0").Result()
	require.NoError(t, err)
	require.Equal(t, "host-1", owner)
}

// TestPrefixesDoNotMeet: staging never blocks production.
func TestPrefixesDoNotMeet(t *testing.T) {
	for range 2 {
		locks := open(t, redistest.URL(t))
		answer, err := locks.Acquire(t.Context(), lock.Request{Name: "nightly", Slots: 1, Claim: lease.NewClaimID(), Duration: time.Minute})
		require.NoError(t, err)
		require.True(t, answer.Granted)
		records, err := locks.ListLocks(t.Context(), "", 10)
		require.NoError(t, err)
		require.Len(t, records, 1)
	}
}

// TestAnotherProcessMayReleaseByClaim: what a restarted process wrote down.
func TestAnotherProcessMayReleaseByClaim(t *testing.T) {
	config := redislock.Config{Prefix: "test-" + lease.NewClaimID().Short() + ":"}
	a, err := redislock.Open(t.Context(), redistest.URL(t), config)
	require.NoError(t, err)
	b, err := redislock.Open(t.Context(), redistest.URL(t), config)
	require.NoError(t, err)
	r := lock.Request{Name: "nightly", Slots: 3, Claim: lease.NewClaimID(), Duration: time.Minute}
	_, err = a.Acquire(t.Context(), r)
	require.NoError(t, err)
	for _, want := range []bool{true, false} {
		released, err := b.Release(t.Context(), r.Name, r.Claim)
		require.NoError(t, err)
		require.Equal(t, want, released)
	}
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

func TestOpen_TLSAndACL(t *testing.T) {
	dir := t.TempDir()
	pool := writeCertificate(t, dir)
	server := redistest.Port(t, "tls-port {port}", "port 0", "tls-auth-clients no",
		"tls-cert-file "+filepath.Join(dir, "cert.pem"), "tls-key-file "+filepath.Join(dir, "key.pem"),
		"tls-ca-cert-file "+filepath.Join(dir, "cert.pem"),
		"user locker on >secret ~app:* +@all -config", "user default off")
	config := redislock.Config{Prefix: "app:", Timeout: 20 * time.Second, TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	locks, err := redislock.Open(t.Context(), "rediss://locker:secret@"+server.Address(), config)
	require.NoError(t, err)
	defer func() { _ = locks.Close() }()
	answer, err := locks.Acquire(t.Context(), lock.Request{Name: "nightly", Slots: 2, Claim: lease.NewClaimID(), Duration: time.Minute})
	require.NoError(t, err)
	require.True(t, answer.Granted)
	_, err = redislock.Open(t.Context(), "rediss://locker:wrong@"+server.Address(), config)
	require.ErrorContains(t, err, "WRONGPASS")
	_, err = redislock.Open(t.Context(), "rediss://locker:secret@"+server.Address(), redislock.Config{Prefix: "app:", Timeout: 20 * time.Second})
	require.ErrorContains(t, err, "certificate")
	config.Prefix = "other:"
	foreign, err := redislock.Open(t.Context(), "rediss://locker:secret@"+server.Address(), config)
	require.NoError(t, err)
	defer func() { _ = foreign.Close() }()
	_, err = foreign.Acquire(t.Context(), lock.Request{Name: "nightly", Slots: 1, Claim: lease.NewClaimID(), Duration: time.Minute})
	require.ErrorContains(t, err, "NOPERM")
}

// writeCertificate makes a certificate for the loopback address.
func writeCertificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cert.pem"), cert, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(cert))
	return pool
}
