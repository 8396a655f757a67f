package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// waiter is one call of Acquire in the line of a name. The first of a line asks
// the store; the others only wait to become the first.
type waiter struct {
	wake chan struct{} // a release, or the first place
	rest bool          // the slot has just been taken: an immediate request would be in vain
	// heard: the wake-up came from another process, whose own may be faster.
	heard bool
}

// await waits in line until there is a grant, the wait is over, or ctx ends.
func (l *Locker) await(ctx context.Context, a *attempt) (Grant, error) {
	limit := ctx
	if a.terms.Wait > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, a.terms.Wait)
		defer cancel()
	}
	name := a.request.Name
	me := l.join(name)
	single := false
	defer l.unnote(ctx, name)
	defer func() { l.leave(name, me, single) }()
	refused := a.held(nil)
	var pause pauses
	for {
		var timer <-chan time.Time
		if first, rest := l.first(name, me); first {
			var freeIn time.Duration
			if !rest {
				var grant Grant
				var err error
				grant, freeIn, err = l.try(ctx, a)
				if !waitsOn(err, a) {
					single = err == nil && !grant.Local && a.terms.Slots == 1
					return grant, err
				}
				refused = err
			}
			timer = time.After(pause.next(freeIn, l.config.Random()))
			if pause.last >= noteFrom && !errors.Is(refused, ErrUnavailable) {
				l.note(ctx, name)
			}
		}
		select {
		case <-me.wake:
			if !l.wasHeard(me) {
				pause = pauses{}
			}
		case <-timer:
		case <-limit.Done():
			if ctx.Err() != nil {
				return Grant{}, fmt.Errorf("acquire lock %q: %w", name, context.Cause(ctx))
			}
			return Grant{}, fmt.Errorf("waited %v: %w", a.terms.Wait, refused)
		}
	}
}

func (l *Locker) join(name string) *waiter {
	me := &waiter{wake: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines[name] = append(l.lines[name], me)
	return me
}

// leave lets the next in line be the first, at rest when the only slot has just
// been taken.
func (l *Locker) leave(name string, me *waiter, rest bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.lines[name]
	i := slices.Index(line, me)
	line = slices.Delete(line, i, i+1)
	if len(line) == 0 {
		delete(l.lines, name)
		return
	}
	l.lines[name] = line
	if i == 0 {
		line[0].rest = rest
		line[0].call()
	}
}

func (l *Locker) first(name string, me *waiter) (first, rest bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest, me.rest = me.rest, false
	return l.lines[name][0] == me, rest
}

// wasHeard reports once whether the last wake-up came from another process.
func (l *Locker) wasHeard(me *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	heard := me.heard
	me.heard = false
	return heard
}

// wake lets the first in line ask immediately, and forgets that the name was held.
func (l *Locker) wake(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.verdicts, name)
	if line := l.lines[name]; len(line) > 0 {
		line[0].rest = false
		line[0].call()
	}
}

func (w *waiter) call() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Waiting reports how many calls of this process wait for each name.
func (l *Locker) Waiting() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := make(map[string]int, len(l.lines))
	for name, line := range l.lines {
		waiting[name] = len(line)
	}
	return waiting
}

// The pauses between two questions of the first in line.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// pauses grow from one question to the next.
type pauses struct{ last time.Duration }

// next doubles the pause, up to a second, and spreads it by a quarter to either
// side. A slot that will expire sooner is asked for just after.
func (p *pauses) next(freeIn time.Duration, random float64) time.Duration {
	p.last = min(max(2*p.last, firstPause), lastPause)
	pause := time.Duration(float64(p.last) * (0.75 + 0.5*random))
	if freeIn > 0 && freeIn < pause {
		pause = freeIn + time.Duration(float64(firstPause)*random)
	}
	return pause
}

// verdict is a remembered answer that every slot of a name was taken.
type verdict struct {
	slots int
	until time.Duration
}

// mostVerdicts bounds the memory of answers.
const mostVerdicts = 10_000

// remember keeps a refusal for as long as the terms allow, and not beyond the
// expiry of a holder.
func (l *Locker) remember(a *attempt, freeIn time.Duration) {
	if a.terms.Recheck == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.verdicts) >= mostVerdicts {
		clear(l.verdicts)
	}
	l.verdicts[a.request.Name] = verdict{a.request.Slots, l.config.Elapsed() + min(a.terms.Recheck, freeIn)}
}

// knownHeld reports whether an attempt that does not wait need not call the store.
func (l *Locker) knownHeld(a *attempt) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines[a.request.Name]) > 0 {
		return true
	}
	known, ok := l.verdicts[a.request.Name]
	return ok && a.terms.Recheck > 0 && a.request.Slots <= known.slots && l.config.Elapsed() < known.until
}
