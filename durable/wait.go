package durable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// nearly is how far an instant may be away for a wait to stay in the handler: putting the run back
// would take about as long.
const nearly = 20 * time.Millisecond

// Sleep puts the run back for d, without a slot and without a lease, and spends no attempt. The
// instant is stored at the first call; a restart, a deploy or a retry in between changes nothing.
// Until then Sleep returns an error, the park: return it, and the handler is executed again from
// its beginning when the time is over; Sleep then returns nil. After a park nothing more happens
// in the handler: every later step, sleep, enqueue or send returns the same error and has no
// effect. Zero and less is no sleep.
func (r *Run[A]) Sleep(ctx context.Context, name string, d time.Duration) error {
	return r.execution.stepping().sleep(ctx, store.NewWait{Name: name, Kind: store.StepSleep, For: max(d, 0)})
}

// SleepUntil is Sleep until an instant on the store's clock.
func (r *Run[A]) SleepUntil(ctx context.Context, name string, t time.Time) error {
	return r.execution.stepping().sleep(ctx, store.NewWait{Name: name, Kind: store.StepSleep, Until: t})
}

func (s *stepping) sleep(ctx context.Context, wait store.NewWait) error {
	known, err := s.begin(ctx, wait.Name, nil)
	if err != nil || known == nil && wait.For == 0 && wait.Until.IsZero() {
		return err
	}
	if known == nil {
		if known, _, err = s.beginWait(ctx, wait); err != nil {
			return err
		}
	}
	if known.Kind != store.StepSleep {
		return s.otherKind(wait.Name, known.Kind, store.StepSleep)
	}
	left := s.left(known.Until)
	if left <= nearly {
		s.x.w.sleep(ctx, left)
		return context.Cause(ctx)
	}
	return s.park(ctx, &parkError{name: wait.Name, until: s.x.w.config.Elapsed() + left})
}

// left is how long it is until an instant on the store's clock.
func (s *stepping) left(until time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(until.Sub(s.storeNow()), 0)
}

func (s *stepping) otherKind(name string, is, want store.StepKind) error {
	return fmt.Errorf("%w: step %q is stored as %q, not as %q: give it another name", ErrInvalid, name, is, want)
}

// beginWait records a wait, and returns what is recorded, with the input if it is there.
func (s *stepping) beginWait(ctx context.Context, wait store.NewWait) (*store.StepRecord, *store.Input, error) {
	wait.Holder = s.x.holder()
	if err := wait.Check(); err != nil {
		return nil, nil, err
	}
	var found store.RunSteps
	err := s.underClaim(ctx, "run.wait_not_recorded", "recording a wait failed, will be retried", func(ctx context.Context) (err error) {
		found, err = s.x.w.store.BeginWait(ctx, wait)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("wait %q: %w", wait.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readAt, s.now, s.stretch = s.x.w.config.Elapsed(), found.Now, true
	step := found.Steps[0]
	s.keep(step)
	if len(found.Inputs) == 0 {
		return &step, nil, nil
	}
	s.inputs[wait.Name] = found.Inputs[0]
	return &step, &found.Inputs[0], nil
}

// underClaim makes a call that the store answers with lease.ErrLost when the run is no longer the
// claim's, and again while another transaction keeps the run locked, for about two seconds.
func (s *stepping) underClaim(ctx context.Context, event, failed string, call func(context.Context) error) error {
	r := s.x.reporting()
	ctx, cancel := r.bounded(ctx, max(r.w.config.Terms.Duration, r.w.callTimeout()))
	defer cancel()
	pause := lockedPause
	for try := 1; ; try++ {
		err := r.sendAgain(ctx, event, failed, func(ctx context.Context) error {
			if s.x.over() != nil || r.leaseGone(ctx) {
				return lease.ErrLost
			}
			bounded, cancel := r.bounded(ctx, r.w.callTimeout())
			defer cancel()
			return call(bounded)
		})
		if !errors.Is(err, ErrConflict) || try == lockedTries {
			return err
		}
		r.w.sleep(ctx, r.w.jittered(pause))
		pause = min(2*pause, lockedLongest)
	}
}

// parkedOutcome makes the outcome of an execution that has ended with a park: the run is due when
// the first of its waits is over.
func (x *execution) parkedOutcome() store.Outcome {
	s := x.stepping()
	s.mu.Lock()
	defer s.mu.Unlock()
	after := store.MaxDelay
	for _, p := range s.parks {
		if p.until >= 0 {
			after = min(after, max(p.until-x.w.config.Elapsed(), 0))
		}
	}
	return store.Outcome{Kind: store.Snoozed, After: after}
}

// looks are the inputs that the run waits for, after an execution that has ended with a park.
func (x *execution) looks() (looks []store.Look) {
	x.mu.Lock()
	s := x.steps
	x.mu.Unlock()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parks {
		if p.input {
			looks = append(looks, store.Look{Run: x.run.ID, Name: p.name})
		}
	}
	return looks
}

// ignoredPark is the error of a handler that has parked and does not return the park.
func ignoredPark(park, err error) error {
	if err == nil {
		return fmt.Errorf("handler ignored that it was %w: it must return the error of the step, the sleep or the wait", park)
	}
	return fmt.Errorf("handler ignored that it was %s: %w", park.Error(), err)
}

// charged is the run with the attempts that its stretch of life has been charged with: a wait that
// this execution has recorded began a new one.
func (x *execution) charged() *store.ClaimedRun {
	x.mu.Lock()
	s := x.steps
	x.mu.Unlock()
	if s == nil {
		return x.run
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stretch {
		return x.run
	}
	run := *x.run
	run.Attempt = 1
	return &run
}
