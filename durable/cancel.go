package durable

import (
	"context"
	"errors"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// listenForCancels asks the store which runs in hand are to be cancelled,
// whenever it is told that there may be some: after each beat that has renewed
// a lease, and by whoever calls tellCancels. It does not hold up a beat.
func (w *Worker) listenForCancels(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.cancels:
			w.askCancels(ctx)
		}
	}
}

// tellCancels has the store asked soon which runs are to be cancelled. It never
// waits.
func (w *Worker) tellCancels() {
	select {
	case w.cancels <- struct{}{}:
	default:
	}
}

// askCancels asks the store which runs in hand are to be cancelled, and tells
// their handlers. What fails is asked again after the next beat.
func (w *Worker) askCancels(ctx context.Context) {
	held := w.active.held()
	if len(held) == 0 {
		return
	}
	ids := make([]lease.ClaimID, 0, len(held))
	for id := range held {
		ids = append(ids, id)
	}
	bounded, cancel := context.WithTimeout(ctx, w.callTimeout())
	defer cancel()
	requests, err := w.store.Cancels(bounded, ids)
	w.contact(err)
	if err != nil {
		w.warn(ctx, "asking for runs to cancel failed, will be tried again", err)
		return
	}
	for _, request := range requests {
		c := held[request.Claim]
		if c == nil {
			continue
		}
		for i := range c.runs {
			if c.runs[i].run.ID == request.Run {
				c.runs[i].cancelFor(request.Reason)
			}
		}
	}
}

// held returns the claims in hand.
func (r *roster) held() map[lease.ClaimID]*claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := make(map[lease.ClaimID]*claim, len(r.claims))
	for c := range r.claims {
		held[c.id] = c
	}
	return held
}

// cancelFor cancels the run for a reason. A handler that has been called is
// told by its context; one that has not will not be: whichever of the two
// stores, of begun here and of doomed in perform, comes second sees the other.
func (x *execution) cancelFor(reason string) {
	if !x.doomed.CompareAndSwap(nil, &reason) {
		return // told before
	}
	if x.begun.Load() {
		x.cancel(ErrCancelled)
	}
	x.logger().Info("run is to be cancelled", "reason", storable.Clip(reason, 200))
}

// outcomeCancelled is the outcome of a handler that returned an error although,
// or because, its run was to be cancelled. What the handler asked for stands
// where it ends the run.
func outcomeCancelled(err error, reason string) store.Outcome {
	if asked := askedFor(err); asked != nil && (asked.kind == store.Death || asked.kind == store.Cancellation) {
		return store.Outcome{Kind: asked.kind, Error: storable.Text(errorText(err), store.MaxErrorSize)}
	}
	return store.Outcome{Kind: store.Cancellation, Error: reason}
}

// lostOrDraining tells whether the handler's context ended for a reason that
// hands the run back; the store knows what becomes of it then.
func lostOrDraining(cause error) bool {
	return errors.Is(cause, lease.ErrLost) || errors.Is(cause, ErrDraining)
}
