package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/durable-worker/durable-worker/heartbeat"
	"github.com/durable-worker/durable-worker/lease"
)

// Guard runs a function while it holds a slot of a named lock: it acquires the
// slot (waiting for terms.Wait), keeps it alive, runs, and releases it, also
// when the function panics.
//
// The context of the function ends with the cause lease.ErrLost when the slot
// is lost, and before the store would grant it to another; with
// context.DeadlineExceeded after terms.Timeout; and with ctx. A function that
// ignores its context cannot be stopped: Guard returns when the function has,
// and only then gives the slot back. The grant's fence is for resources that can
// refuse a smaller number than the largest they have seen.
//
// Without a grant the function is not run, and the error says why:
// ErrHeld when every slot was taken (under the policy [Skip] also when
// the store could not be asked), ErrUnavailable under [Fail]. When the
// slot was lost while the function ran, the error is a lease.ErrLost beside the
// function's own. A release that fails for another reason is no error: the slot
// is freed when its time has run out.
//
// The keeper must be one of this locker, as in heartbeat.New(locker, config), and its Run
// must be running: it is what notices the loss. A zero duration in the terms
// means the keeper's; another one than the keeper's is refused.
func Guard(
	ctx context.Context, keeper *heartbeat.Keeper, locker *Locker, name string, terms Terms,
	fn func(ctx context.Context, grant Grant) error,
) (err error) {
	kept := keeper.Terms()
	if terms.Duration == 0 {
		terms.Duration = kept.Duration
	}
	if terms.Heartbeat == 0 {
		terms.Heartbeat = kept.Heartbeat
	}
	if terms.Terms != kept {
		return fmt.Errorf("guard %q: %w: the terms are %+v, and the keeper's %+v", name, ErrInvalid, terms.Terms, kept)
	}
	grant, err := locker.Acquire(ctx, name, terms)
	if err != nil {
		return err
	}
	defer func() {
		if lost := locker.Release(ctx, grant); errors.Is(lost, lease.ErrLost) {
			err = errors.Join(err, lost)
		}
	}()
	if !grant.Local {
		var hold *heartbeat.Hold
		ctx, hold = keeper.Hold(ctx, grant.Lease)
		defer hold.Release()
	}
	if grant.Terms.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, grant.Terms.Timeout)
		defer cancel()
	}
	return fn(ctx, grant)
}
