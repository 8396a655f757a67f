package heartbeat

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/internal/protocol"
	"github.com/durable-worker/durable-worker/lease"
)

// Config configures a Keeper. Every field but Latency must be set.
type Config struct {
	Terms   lease.Terms
	Elapsed func() time.Duration // monotonic clock, see lease.Elapsed
	Random  func() float64       // in [0, 1)
	Logger  *slog.Logger
	// Latency is how long a goroutine that can continue waits for a CPU. Renewals are sent
	// sooner, and waited for longer, while that is long. Nil: no time.
	Latency func() time.Duration
}

// Keeper renews the leases it holds until they are released or lost.
type Keeper struct {
	renewer Renewer
	config  Config
	changed chan struct{} // something was held or released
	lag     atomic.Int64  // of the last heartbeat, nanoseconds
	failing atomic.Bool   // the last heartbeat failed

	mu    sync.Mutex
	beat  protocol.Beat
	holds map[lease.ClaimID]*Hold
}

// Hold is one lease in the care of a Keeper.
type Hold struct {
	keeper   *Keeper
	claim    lease.ClaimID
	cancel   context.CancelCauseFunc
	deadline atomic.Int64 // local deadline; zero once lost or released
}

// New returns a Keeper of a renewer's leases. It beats while Run runs.
func New(renewer Renewer, config Config) *Keeper {
	return &Keeper{
		renewer: renewer, config: config, changed: make(chan struct{}, 1),
		beat:  protocol.Beat{Terms: config.Terms},
		holds: map[lease.ClaimID]*Hold{},
	}
}

// Hold renews a granted lease from now on. The returned context is a child of ctx
// that ends with the cause lease.ErrLost when the lease is lost, immediately if it
// already is. The caller must Release the hold when its work has ended.
func (k *Keeper) Hold(ctx context.Context, granted lease.Lease) (context.Context, *Hold) {
	ctx, cancel := context.WithCancelCause(ctx)
	h := &Hold{keeper: k, claim: granted.Claim, cancel: cancel}
	h.deadline.Store(int64(k.config.Terms.Deadline(granted.Asked)))
	k.mu.Lock()
	k.holds[granted.Claim] = h
	k.mu.Unlock()
	lost := k.step(protocol.BeatEvent{Kind: protocol.BeatHeld, Claim: granted.Claim, Asked: granted.Asked}).Lost
	k.lose(lost, "not renewed in time")
	k.poke()
	return ctx, h
}

// Valid reports whether the lease is still known to be held, by the local clock.
func (h *Hold) Valid() bool {
	return h.keeper.config.Elapsed() < time.Duration(h.deadline.Load())
}

// Ending declares that the caller will ask the store to end the lease, because no work is
// left under it. A heartbeat that no longer finds the lease then reports no loss. Until
// Release the lease is still renewed, since the store may refuse to end it.
func (h *Hold) Ending() {
	k := h.keeper
	k.lose(k.step(protocol.BeatEvent{Kind: protocol.BeatEnding, Claim: h.claim}).Lost, "not renewed in time")
}

// Release ends the care for the lease: it is not renewed again. It does not
// write to the store. Releasing twice is harmless.
func (h *Hold) Release() {
	k := h.keeper
	k.mu.Lock()
	delete(k.holds, h.claim)
	k.mu.Unlock()
	h.deadline.Store(0)
	k.lose(k.step(protocol.BeatEvent{Kind: protocol.BeatDropped, Claim: h.claim}).Lost, "not renewed in time")
	h.cancel(context.Canceled)
}

// mostWait bounds how long Elapsed is not read while leases are held. Elapsed
// advances while the machine is suspended; the timers of package time do not.
const mostWait = time.Second

// Run beats until ctx ends. It returns when the renewal in flight has ended.
func (k *Keeper) Run(ctx context.Context) {
	var inFlight sync.WaitGroup
	defer inFlight.Wait()
	answers := make(chan protocol.BeatEvent, 1)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	event := protocol.BeatEvent{Kind: protocol.BeatTick}
	planned := time.Duration(-1)
	for {
		effects := k.step(event)
		why := "not renewed in time"
		if event.Kind == protocol.BeatAnswered {
			why = "the store no longer has it"
		}
		k.lose(effects.Lost, why)
		if len(effects.Renew) > 0 {
			began := k.config.Elapsed()
			if planned >= 0 {
				began = min(planned, began)
			}
			inFlight.Go(func() {
				answer := k.renew(ctx, effects.Renew)
				k.lag.Store(int64(k.config.Elapsed() - began))
				answers <- answer
			})
		}
		planned = effects.Wake
		wait := time.Hour
		if effects.Wake >= 0 {
			wait = min(max(effects.Wake-k.config.Elapsed(), 0), mostWait)
		}
		timer.Reset(wait)
		event = protocol.BeatEvent{Kind: protocol.BeatTick}
		select {
		case <-ctx.Done():
			return
		case event = <-answers:
		case <-timer.C:
		case <-k.changed:
		}
	}
}

// renewalSteps is how often the goroutines of one renewal wait for a CPU, about.
const renewalSteps = 4

// late is by how much a renewal is answered later because goroutines wait for a CPU.
func (k *Keeper) late() time.Duration {
	if k.config.Latency == nil {
		return 0
	}
	late := renewalSteps * k.config.Latency()
	if late < k.config.Terms.Duration/100 {
		return 0
	}
	return min(late, k.config.Terms.Duration/3)
}

// renew makes one call, bounded by a sixth of the lease's duration, or half of it while
// goroutines wait for a CPU.
func (k *Keeper) renew(ctx context.Context, claims []lease.ClaimID) protocol.BeatEvent {
	ctx, cancel := context.WithTimeout(ctx, k.config.Terms.Duration/6+k.late())
	defer cancel()
	renewed, err := k.renewer.Renew(ctx, claims, k.config.Terms.Duration)
	if err == nil {
		k.failing.Store(false)
		return protocol.BeatEvent{Kind: protocol.BeatAnswered, Claims: renewed}
	}
	var unknown *lease.UnknownError
	partly := errors.As(err, &unknown)
	k.failing.Store(!partly)
	failed := len(claims)
	if partly {
		failed = len(unknown.Claims)
	}
	if ctx.Err() != context.Canceled {
		k.config.Logger.Warn("heartbeat failed, will be retried", "event", "lease.renewal_failed", "leases", failed, "error", err)
	}
	if partly {
		return protocol.BeatEvent{Kind: protocol.BeatAnswered, Claims: renewed, Unknown: unknown.Claims}
	}
	return protocol.BeatEvent{Kind: protocol.BeatFailed}
}

// step stamps an event and lets the machine decide; deadlines that moved are
// copied to where Valid reads them.
func (k *Keeper) step(event protocol.BeatEvent) protocol.BeatEffects {
	late := k.late()
	k.mu.Lock()
	defer k.mu.Unlock()
	event.At, event.Random, event.Late = k.config.Elapsed(), k.config.Random(), late
	effects := k.beat.Step(event)
	if event.Kind == protocol.BeatAnswered {
		for _, claim := range event.Claims {
			deadline, held := k.beat.Deadline(claim)
			if h := k.holds[claim]; held && h != nil {
				h.deadline.Store(int64(deadline))
			}
		}
	}
	return effects
}

func (k *Keeper) lose(claims []lease.ClaimID, why string) {
	for _, claim := range claims {
		k.mu.Lock()
		h := k.holds[claim]
		delete(k.holds, claim)
		k.mu.Unlock()
		if h == nil {
			continue
		}
		h.deadline.Store(0)
		k.config.Logger.Warn("lease lost", "event", "lease.lost", "claim", claim.Short(), "why", why)
		h.cancel(lease.ErrLost)
	}
}

func (k *Keeper) poke() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// Terms are the terms on which the Keeper renews.
func (k *Keeper) Terms() lease.Terms { return k.config.Terms }

// Margin is how much is left of the lease that ends first, as a share of its duration; 1
// when none is held.
func (k *Keeper) Margin() float64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, least := k.config.Elapsed(), 1.0
	for _, h := range k.holds {
		least = min(least, float64(time.Duration(h.deadline.Load())-now)/float64(k.config.Terms.Duration))
	}
	return max(least, 0)
}

// Check reports whether heartbeats succeed. If the last one failed and no lease is held any
// more, Check sends one that renews nothing: otherwise no heartbeat would ever succeed again.
func (k *Keeper) Check(ctx context.Context) bool {
	if !k.failing.Load() {
		return true
	}
	k.mu.Lock()
	held := len(k.holds)
	k.mu.Unlock()
	if held > 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, k.config.Terms.Duration/6)
	defer cancel()
	_, err := k.renewer.Renew(ctx, []lease.ClaimID{lease.NewClaimID()}, k.config.Terms.Duration)
	if err == nil {
		k.failing.Store(false)
	}
	return err == nil
}

// Lag is by how much the last heartbeat was answered later than it was due.
func (k *Keeper) Lag() time.Duration { return time.Duration(k.lag.Load()) }
