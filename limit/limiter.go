package limit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// ErrFull matches every FullError in errors.Is.
var ErrFull = errors.New("limit is full")

// FullError says that a key has no room, or will have none before the context's deadline.
// It is an ErrFull.
type FullError struct {
	Limit string
	Key   string
	// RetryIn is the time until there may be room. For a Mutex or Semaphore, it is the
	// time until a permit expires; one may be released earlier. Zero: as soon as one is
	// released.
	RetryIn time.Duration
}

// Error says which key of which limit is full, and when there may be room.
func (e *FullError) Error() string {
	text := fmt.Sprintf("limit %q", e.Limit)
	if e.Key != "" {
		text += fmt.Sprintf(", key %q", e.Key)
	}
	if e.RetryIn > 0 {
		return fmt.Sprintf("%s: %v: retry in %v", text, ErrFull, max(e.RetryIn.Round(time.Millisecond), time.Millisecond))
	}
	return fmt.Sprintf("%s: %v", text, ErrFull)
}

// Is reports that the error is an ErrFull.
func (e *FullError) Is(target error) bool { return target == ErrFull }

// Store is what a Limiter needs of a store. Every store implements it.
type Store interface {
	// UseLimit takes starts or places of a limit, or gives places back.
	UseLimit(ctx context.Context, request store.LimitRequest) (store.LimitGrant, error)
	// Declare stores a limit that no worker has declared.
	Declare(ctx context.Context, declaration store.Declaration) error
}

// Config configures a Limiter. The zero value is usable.
type Config struct {
	// Terms say how long a place stays taken after its process has died, and how often
	// Do renews it. Default 30 s and 10 s.
	Terms lease.Terms
	// CallTimeout is the time limit of one call to the store. Default 2 s.
	CallTimeout time.Duration
	// Logger gets what a person should know. Default: nothing is logged.
	Logger *slog.Logger
	// Elapsed is the process's monotonic clock. Default lease.Elapsed.
	Elapsed func() time.Duration
	// Random spreads retries; it returns a number in [0, 1). Default math/rand/v2.
	Random func() float64
}

// Limiter applies a limit to the code of one process. Create one for each limit with
// [New]. Its methods may be called concurrently. New starts nothing.
//
// If no worker has declared the limit yet, the first call declares it. A limit that an
// operator has deleted admits everything, as it does for runs.
type Limiter struct {
	store  Store
	limit  store.Limit
	config Config
	self   store.WorkerID // declares the limit, if no worker has

	mu       sync.Mutex
	lines    map[string]*line // of the keys for which calls wait
	restores time.Duration    // on Elapsed: when to declare a deleted limit again, in case it is lost instead
}

// deletedFor is how long a limit that a declaration has not brought back counts as deleted by
// an operator.
const deletedFor = time.Minute

// line is where the calls of one process wait for one key.
type line struct {
	first chan struct{} // holds a value while a call asks the store for the others
	calls int
}

// New returns a Limiter of a limit. It panics if the terms are not valid.
func New(db Store, limit durable.Limit, config Config) *Limiter {
	if config.Terms = config.Terms.WithDefaults(); config.Terms.Validate() != nil {
		panic(fmt.Sprintf("limit.New: %v", config.Terms.Validate()))
	}
	if config.CallTimeout <= 0 {
		config.CallTimeout = 2 * time.Second
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Elapsed == nil {
		config.Elapsed = lease.Elapsed
	}
	if config.Random == nil {
		config.Random = rand.Float64
	}
	host, _ := os.Hostname()
	return &Limiter{
		store: db, limit: limit.Spec(), config: config, lines: map[string]*line{},
		self: store.WorkerID{Name: fmt.Sprintf("limiter %s-%d", host, os.Getpid()), Instance: uuid.New()},
	}
}

// Take takes n starts of a key. If there is no room for all of them, it takes none and
// returns a FullError, which says when to try again. A dynamic window requires a key. If
// Take returns any other error, the starts may still have been charged.
func (l *Limiter) Take(ctx context.Context, key string, n int) error {
	return l.ask(ctx, store.LimitRequest{Usage: store.UsageTake, Key: key, Weight: n})
}

// Wait waits until it can take n starts of a key, and takes them. Within one process,
// calls that wait for the same key are served in order. If the context's deadline would
// pass first, Wait returns a FullError immediately; if the context ends, Wait returns its
// cause.
func (l *Limiter) Wait(ctx context.Context, key string, n int) error {
	return l.await(ctx, key, func() error { return l.Take(ctx, key, n) })
}

// Charge records n starts of a key that have already happened, even if there is no room
// for them. Later starts then wait longer, by one period at most. Use it where you know the
// cost only afterwards.
func (l *Limiter) Charge(ctx context.Context, key string, n int) error {
	return l.ask(ctx, store.LimitRequest{Usage: store.UsageCharge, Key: key, Weight: n})
}

// Penalize keeps everything of a key from starting for a time, runs as well as other code.
// Whatever is executing continues. Call it when the service that the limit protects asks
// for a pause. If a key is penalized twice, the penalty that ends later counts. A penalty
// of less than a millisecond is not recorded.
func (l *Limiter) Penalize(ctx context.Context, key string, d time.Duration) error {
	if d < time.Millisecond {
		return nil
	}
	return l.ask(ctx, store.LimitRequest{Usage: store.UsagePenalize, Key: key, For: d})
}

// ask makes one request. Not granted, the error is a FullError.
func (l *Limiter) ask(ctx context.Context, request store.LimitRequest) error {
	request.Limit = l.limit.Name
	counted := request.Usage == store.UsageTake || request.Usage == store.UsageCharge || request.Usage == store.UsageAcquire
	if counted && request.Weight < 1 { // of a store, zero is one
		return fmt.Errorf("%s: %w: limit %q: weight %d: want 1 or more", request.Usage, store.ErrInvalid, l.limit.Name, request.Weight)
	}
	grant, err := l.use(ctx, request)
	if errors.Is(err, store.ErrNotFound) {
		if l.isDeleted() {
			return nil
		}
		if err = l.declare(ctx); err == nil {
			grant, err = l.use(ctx, request)
		}
		if errors.Is(err, store.ErrNotFound) {
			l.noteDeleted()
			return nil
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", request.Usage, err)
	case !grant.Granted:
		return &FullError{Limit: l.limit.Name, Key: request.Key, RetryIn: grant.RetryIn}
	default:
		return nil
	}
}

func (l *Limiter) use(ctx context.Context, request store.LimitRequest) (store.LimitGrant, error) {
	ctx, cancel := context.WithTimeout(ctx, l.config.CallTimeout)
	defer cancel()
	return l.store.UseLimit(ctx, request)
}

// isDeleted reports whether an operator has deleted the limit, as a declaration a moment ago
// has shown.
func (l *Limiter) isDeleted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.config.Elapsed() < l.restores
}

func (l *Limiter) noteDeleted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.restores = l.config.Elapsed() + deletedFor
}

func (l *Limiter) declare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.config.CallTimeout)
	defer cancel()
	err := l.store.Declare(ctx, store.Declaration{Worker: l.self, Limits: []store.Limit{l.limit}})
	var refused *store.SetAsideError
	if errors.As(err, &refused) && len(refused.SetAside) > 0 {
		return refused.SetAside[0].Err
	}
	return err
}
