package durable

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// serveCancelRequests asks the store which of the worker's runs are to be cancelled, and
// cancels their contexts. It does so whenever there may be some, which cancelRequests
// says: after each beat that has renewed a lease, and after a signal. It delays no beat.
// After an error the next beat repeats it.
func (w *Worker) serveCancelRequests(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.cancelRequests:
		}
		held := w.inFlight.held()
		if len(held) == 0 {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, w.callTimeout())
		requests, err := w.store.CancelRequests(bounded, slices.Collect(maps.Keys(held)))
		cancel()
		w.observeCall(err)
		if err != nil {
			w.warn(ctx, "cancel.poll_failed", "asking for runs to cancel failed, will be retried", err)
			continue
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
}

// cancelFor cancels the run for a reason. A handler that has been called sees
// it by its context; one that has not is not called: of the two stores, begun
// here and cancelReason in perform, whichever comes second sees the other.
func (x *execution) cancelFor(reason string) {
	if !x.cancelReason.CompareAndSwap(nil, &reason) {
		return // already cancelled
	}
	if x.begun.Load() {
		x.cancel(ErrCancelled)
	}
	x.logger().Info("run cancellation requested", "event", "run.cancel_asked", "reason", storable.Clip(reason, 200))
}

// outcomeCancelled is the outcome of a handler that returned an error although,
// or because, its run was to be cancelled. What the handler asked for is kept
// where it ends the run.
func outcomeCancelled(err error, reason string) store.Outcome {
	if asked := askedFor(err); asked != nil && (asked.kind == store.Death || asked.kind == store.Cancellation) {
		return store.Outcome{Kind: asked.kind, Error: storable.Text(errorText(err), store.MaxErrorSize)}
	}
	return store.Outcome{Kind: store.Cancellation, Error: reason}
}

// lostOrDraining reports whether the handler's context ended for a reason that
// hands the run back; the store knows what happens to it then.
func lostOrDraining(cause error) bool {
	return errors.Is(cause, lease.ErrLost) || errors.Is(cause, ErrDraining)
}
