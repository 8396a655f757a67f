package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// LockerConfig configures a Locker. The zero value is usable.
type LockerConfig struct {
	// Owner names this process to people, in lists and logs. Default
	// <hostname>-<pid>. Ownership is never decided by it.
	Owner string
	// CallTimeout bounds one call of the store; a slower one counts as an
	// outage. A renewal may take a sixth of its duration. The context of one caller
	// bounds how long that caller waits, and not the call. Default 2 s.
	CallTimeout time.Duration
	// Logger gets what a person should see. Default: nothing is logged.
	Logger *slog.Logger
	// Waits notifies waiting calls of other processes' releases, and shows the
	// waiters to operators: the store's own. Default: neither; a release elsewhere
	// is found within 1.25 s.
	Waits Waits
	// Hooks are called when the Locker does something. Default: none.
	Hooks Hooks
	// Elapsed is the process's monotonic clock. Default [Elapsed].
	Elapsed func() time.Duration
	// Random spreads retries; it answers in [0, 1). Default math/rand/v2.
	Random func() float64
}

// Locker grants named locks of one store to the code of one process. It waits fairly,
// follows each lock's [Policy] while the store is unreachable, counts, and logs. Create
// one for each store with [NewLocker]. Its methods may be called concurrently.
//
// A call of the store does not end with the context of who asked for it: the caller
// returns, and a goroutine waits for the answer, for CallTimeout, and gives back what was
// granted. Another gives back what may have been granted by calls that failed, until the
// store answers, and one listens while calls wait that are notified of releases elsewhere.
// Close waits for all of them.
//
// A Locker is the heartbeat.Renewer of what it grants. lock.Guard does
// the whole of acquire, keep alive, run and release.
type Locker struct {
	store  Store
	config LockerConfig
	probe  string        // the name of this Locker's own probe lock
	waiter lease.ClaimID // names this Locker among those that wait

	calls   sync.WaitGroup // goroutines that outlive their callers
	closing chan struct{}  // closed by Close
	// who holds a value makes a call, see apart
	asking, renewing chan struct{}

	mu       sync.Mutex // guards the fields below
	closed   bool
	lines    map[string][]*waiter
	notes    map[string]time.Duration // names whose wait is noted in the store, and when
	hearing  *hearing                 // nil while nothing is noted
	verdicts map[string]verdict
	holdings map[lease.ClaimID]*holding
	sweepAt  int // size of holdings at which those long lost are dropped
	outage   outage
	orphans  []orphan // the oldest first
	giving   bool     // a goroutine gives the orphans back
}

// Grant is a slot of a lock, as its holder sees it.
type Grant struct {
	lease.Lease
	Name  string
	Slot  int
	Fence lease.Fence // for resources outside the store; 0 when Local
	// Local: the store was unreachable, and the policy is RunLocal. The cap
	// holds in this process alone.
	Local bool
	// TookOver: the last holder of the slot let it expire; it crashed, or
	// stalled and may still be at work.
	TookOver bool
	Terms    Terms
}

// holding is what the Locker knows of a grant until it is released or lost.
type holding struct {
	name    string
	since   time.Duration // monotonic time
	until   time.Duration // local deadline; means nothing when local
	longest time.Duration
	local   bool
	warned  bool
}

// NewLocker returns a Locker of a store.
func NewLocker(store Store, config LockerConfig) *Locker {
	if config.Owner == "" {
		host, _ := os.Hostname()
		config.Owner = fmt.Sprintf("%s-%d", host, os.Getpid())
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
	return &Locker{
		store: store, config: config, probe: probePrefix + lease.NewClaimID().Short(), waiter: lease.NewClaimID(), closing: make(chan struct{}),
		asking: make(chan struct{}, mostAsking), renewing: make(chan struct{}, mostRenewing),
		lines: map[string][]*waiter{}, notes: map[string]time.Duration{}, verdicts: map[string]verdict{}, holdings: map[lease.ClaimID]*holding{}, sweepAt: 64,
	}
}

// TryAcquire takes a free slot of a name, without waiting. The error is an
// ErrHeld when there is none, and also when a call in this process already
// waits for the name: a try never overtakes those that wait.
func (l *Locker) TryAcquire(ctx context.Context, name string, terms Terms) (Grant, error) {
	terms.Wait = 0
	return l.Acquire(ctx, name, terms)
}

// Acquire takes a free slot of a name, waiting for terms.Wait at most; then the
// error is an ErrHeld. The calls that wait in one process are served in the order in
// which they came, and one of them polls for all: it is woken by a release in
// this process, and otherwise polls after a random pause that grows to a
// second; with LockerConfig.Waits a release elsewhere wakes it too. Between
// processes no order is promised.
//
// When ctx ends the error is its cause, immediately. An Acquire that returned an error
// holds nothing, or no longer than it takes to reach the store.
func (l *Locker) Acquire(ctx context.Context, name string, terms Terms) (Grant, error) {
	terms = terms.WithDefaults()
	a := &attempt{terms: terms, began: l.config.Elapsed(), request: Request{
		Name: name, Slots: terms.Slots, Claim: lease.NewClaimID(), Owner: l.config.Owner, Duration: terms.Duration,
	}}
	if err := errors.Join(a.request.Validate(), terms.Validate()); err != nil {
		return Grant{}, fmt.Errorf("acquire lock: %w", err)
	}
	grant, err := l.acquire(ctx, a)
	l.decided(a, grant, err)
	return grant, err
}

// attempt is one call of Acquire.
type attempt struct {
	request Request
	terms   Terms
	began   time.Duration
}

func (l *Locker) acquire(ctx context.Context, a *attempt) (Grant, error) {
	if a.terms.Wait != 0 {
		return l.await(ctx, a)
	}
	if l.knownHeld(a) {
		return Grant{}, a.held(nil)
	}
	grant, _, err := l.try(ctx, a)
	return grant, err
}

// held is the error of an attempt that was not granted anything.
func (a *attempt) held(why error) error {
	if why != nil {
		return fmt.Errorf("lock %q: %w: %w", a.request.Name, ErrHeld, why)
	}
	return fmt.Errorf("lock %q: %w", a.request.Name, ErrHeld)
}

// try calls the store once, and the lock's policy when it is unreachable. The
// duration is the time until a slot may expire.
func (l *Locker) try(ctx context.Context, a *attempt) (Grant, time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return Grant{}, 0, fmt.Errorf("acquire lock %q: %w", a.request.Name, context.Cause(ctx))
	}
	got, err := l.ask(ctx, a)
	switch {
	case err == nil && got.answer.Granted:
		grant := Grant{
			Lease: lease.Lease{Claim: a.request.Claim, Asked: got.at}, Name: a.request.Name,
			Slot: got.answer.Slot, Fence: got.answer.Fence, TookOver: got.answer.TookOver, Terms: a.terms,
		}
		l.hold(grant)
		return grant, 0, nil
	case err == nil:
		l.remember(a, got.answer.FreeIn)
		return Grant{}, got.answer.FreeIn, a.held(nil)
	case !errors.Is(err, ErrUnavailable): // ctx has ended
		return Grant{}, 0, fmt.Errorf("lock %q: %w", a.request.Name, err)
	}
	grant, err := l.fallBack(a, err)
	return grant, 0, err
}

// Extend renews a grant for its own duration from now and returns it with its
// new deadline. The error is ErrLost when the store no longer has it. A grant
// that a heartbeat.Keeper holds needs no Extend.
func (l *Locker) Extend(ctx context.Context, grant Grant) (Grant, error) {
	asked := l.config.Elapsed()
	renewed, err := l.Renew(ctx, []lease.ClaimID{grant.Claim}, grant.Terms.Duration)
	if err != nil {
		return grant, fmt.Errorf("extend lock %q: %w", grant.Name, err)
	}
	if len(renewed) == 0 {
		return grant, fmt.Errorf("extend lock %q: %w", grant.Name, lease.ErrLost)
	}
	grant.Asked = asked
	return grant, nil
}

// Renew extends grants in one call of the store; see Store.Renew. Local
// grants are renewed by being there.
func (l *Locker) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	stored, local := l.split(claims)
	l.warnOld(l.config.Elapsed())
	if len(stored) == 0 {
		return local, nil
	}
	got, gone := apart(ctx, l, l.renewing, d/6, func(ctx context.Context) renewal { return l.renew(ctx, stored, d) }, func(renewal) {})
	switch {
	case gone != nil:
		return nil, fmt.Errorf("renew locks: %w", gone)
	case got.known:
		return append(local, got.claims...), got.err
	default:
		return nil, got.err
	}
}

// renewal is what the store answered to a renewal.
type renewal struct {
	claims []lease.ClaimID
	known  bool // what is not among the claims is lost, or named by the error
	err    error
}

// renew makes the call, and notes what it says about the grants and the store.
func (l *Locker) renew(ctx context.Context, stored []lease.ClaimID, d time.Duration) renewal {
	asked := l.config.Elapsed()
	claims, err := l.store.Renew(ctx, stored, d)
	l.called("renew", asked, err)
	if unknown := (*lease.UnknownError)(nil); errors.As(err, &unknown) { // no outage: a part of the store answers
		known := slices.DeleteFunc(slices.Clone(stored), func(c lease.ClaimID) bool { return slices.Contains(unknown.Claims, c) })
		l.renewed(known, claims, asked, d)
		return renewal{claims, true, fmt.Errorf("%w: %w", ErrUnavailable, err)}
	}
	if err == nil || !over(ctx) || d/6 >= l.config.CallTimeout { // else it had less time than other calls have
		l.answered(err)
	}
	if err != nil {
		return renewal{err: fmt.Errorf("%w: %w", ErrUnavailable, err)}
	}
	l.renewed(stored, claims, asked, d)
	return renewal{claims: claims, known: true}
}

// Release gives a grant back, and wakes a call that waits for it here. It uses a
// context that does not end with ctx, bounded by CallTimeout. The error is
// ErrLost when the store no longer had it, so that another may have been
// granted meanwhile, and ErrUnavailable when the store was unreachable: then
// the lock is freed as soon as the store is back, or when its time has run out.
func (l *Locker) Release(ctx context.Context, grant Grant) error {
	held := l.drop(grant)
	defer l.wake(grant.Name)
	if grant.Local {
		if held == nil {
			return fmt.Errorf("release lock %q: %w", grant.Name, lease.ErrLost)
		}
		l.ended(grant, held, nil)
		return nil
	}
	released, err := l.release(ctx, grant.Claim, grant.Name)
	switch {
	case err != nil:
		l.giveBack(grant.Claim, grant.Name, grant.Terms.Duration)
		err = fmt.Errorf("lock %q: %w: %w", grant.Name, ErrUnavailable, err)
	case !released:
		err = fmt.Errorf("release lock %q: %w", grant.Name, lease.ErrLost)
	}
	if held != nil {
		l.ended(grant, held, err)
	}
	return err
}

// release makes one bounded call that outlives ctx.
func (l *Locker) release(ctx context.Context, claim lease.ClaimID, name string) (bool, error) {
	asked := l.config.Elapsed()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.CallTimeout)
	defer cancel()
	released, err := l.store.Release(ctx, name, claim)
	l.called("release", asked, err)
	l.answered(err)
	return released, err
}

// Context returns a child of parent that ends with the cause ErrLost at the
// grant's local deadline, which comes before the store would grant the slot to
// another. It is for a grant that is neither extended nor kept by a
// heartbeat.Keeper. A local grant has no deadline.
func (g Grant) Context(parent context.Context) (context.Context, context.CancelFunc) {
	if g.Local {
		return context.WithCancel(parent)
	}
	return until(parent, g.Terms.Deadline(g.Asked), lease.Elapsed)
}
