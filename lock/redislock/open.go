package redislock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/durable-worker/durable-worker/internal/secret"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

// Config configures Locks. The zero value is usable.
type Config struct {
	// Prefix begins every key, so that applications and environments share a
	// server without meeting. Default "durable:lock:".
	Prefix string
	// Timeout bounds dialling, and each reading and writing. Default 1 s.
	// OpenClient does not use it.
	Timeout time.Duration
	// TLS adds to what a rediss URL says, such as a certificate authority of
	// one's own; with any other URL it is refused. OpenClient does not use it.
	TLS *tls.Config
}

// ErrEviction says that the server may drop keys, and with them locks.
var ErrEviction = errors.New("redislock: the server may evict locks")

// Locks are the named locks of one server, or of one cluster. Make them with
// Open; all methods may be called from many goroutines.
//
// Renew knows the claims that this value granted, and no others.
type Locks struct {
	client redis.UniversalClient
	prefix string
	owned  bool

	mu      sync.Mutex // guards the fields below
	granted map[lease.ClaimID]spot
	sweepAt int // size of granted at which those long expired are dropped
}

var _ lock.Locks = (*Locks)(nil)

// spot is the key of a claim.
type spot struct {
	name  string
	slot  int
	until time.Duration // monotonic time; the claim has expired by then
}

// Open connects to the server that a URL names and checks that it can hold
// locks: redis://user:password@host:port/db, rediss:// with TLS, unix:///path;
// with ?addr=host:port&addr=… it is a cluster. Close the locks.
func Open(ctx context.Context, url string, config Config) (*Locks, error) {
	server, err := read(url)
	if err != nil {
		return nil, fmt.Errorf("open redis: %w", err)
	}
	if config.TLS != nil && !server.tls() {
		return nil, fmt.Errorf("open redis: %w: Config.TLS is set, but the URL does not use TLS: want rediss://", lock.ErrInvalid)
	}
	if config.Timeout <= 0 {
		config.Timeout = time.Second
	}
	client := server.dial(config)
	l, err := OpenClient(ctx, client, config)
	if err != nil {
		return nil, secret.Scrub(errors.Join(err, client.Close()), server.String(), server.password())
	}
	l.owned = true
	return l, nil
}

// OpenClient is Open with the caller's client, who also closes it. The
// client should not retry by itself and should obey contexts.
func OpenClient(ctx context.Context, client redis.UniversalClient, config Config) (*Locks, error) {
	if config.Prefix == "" {
		config.Prefix = "durable:lock:"
	}
	if strings.ContainsAny(config.Prefix, "{}") {
		return nil, fmt.Errorf("open redis: %w: prefix %q: want no braces, which belong to the names", lock.ErrInvalid, config.Prefix)
	}
	if err := eachMaster(ctx, client, checkEviction); err != nil {
		return nil, fmt.Errorf("open redis: %w", err)
	}
	return &Locks{client: client, prefix: config.Prefix, granted: map[lease.ClaimID]spot{}, sweepAt: 64}, nil
}

// Close closes the connections that Open created. Locks that are held expire.
func (l *Locks) Close() error {
	if !l.owned {
		return nil
	}
	return l.client.Close()
}

// Quiet keeps the client library from writing to standard error by itself, for
// the whole process; what goes wrong comes back as an error anyway. It is for a
// program's start.
func Quiet() { redis.SetLogger(quiet{}) }

type quiet struct{}

// Printf writes nothing.
func (quiet) Printf(context.Context, string, ...any) {}

// secure puts the server's name of the URL into the caller's settings.
func secure(named, given *tls.Config) *tls.Config {
	if named == nil || given == nil {
		return named
	}
	merged := given.Clone()
	if merged.ServerName == "" {
		merged.ServerName = named.ServerName
	}
	return merged
}

// eachMaster calls a function with every node that holds locks.
func eachMaster(ctx context.Context, client redis.UniversalClient, do func(context.Context, redis.Cmdable) error) error {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return do(ctx, node) })
	}
	return do(ctx, client)
}

// checkEviction refuses a node that drops keys when its memory is full. It reads
// INFO, which servers allow that forbid CONFIG.
func checkEviction(ctx context.Context, node redis.Cmdable) error {
	info, err := node.Info(ctx, "memory").Result()
	if err != nil {
		return err
	}
	for line := range strings.Lines(info) {
		if policy, found := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:"); found && policy != "noeviction" {
			return fmt.Errorf("%w: its maxmemory-policy is %s: set it to noeviction", ErrEviction, policy)
		}
	}
	return nil
}
