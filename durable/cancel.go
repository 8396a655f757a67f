package durable

import (
	"context"
	"errors"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// serveCancelRequests asks the store which runs in hand are to be cancelled when
// there may be some: after each beat that has renewed a lease, and after each
// call of expectCancelRequests. It does not delay a beat.
func (w *Worker) serveCancelRequests(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.cancelRequests:
			w.fetchCancelRequests(ctx)
		}
	}
}

// expectCancelRequests requests a check for runs to be cancelled. It never blocks.
func (w *Worker) expectCancelRequests() {
	select {
	case w.cancelRequests <- struct{}{}:
	default:
	}
}

// fetchCancelRequests asks the store which runs in hand are to be cancelled and cancels
// their contexts. After an error the next beat repeats it.
func (w *Worker) fetchCancelRequests(ctx context.Context) {
	held := w.inFlight.held()
	if len(held) == 0 {
		return
	}
	ids := make([]lease.ClaimID, 0, len(held))
	for id := range held {
		ids = append(ids, id)
	}
	bounded, cancel := context.WithTimeout(ctx, w.callTimeout())
	defer cancel()
	requests, err := w.store.CancelRequests(bounded, ids)
	w.observeCall(err)
	if err != nil {
		w.warn(ctx, "cancel.poll_failed", "asking for runs to cancel failed, will be retried", err)
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
// hands the run back; the store knows what becomes of it then.
func lostOrDraining(cause error) bool {
	return errors.Is(cause, lease.ErrLost) || errors.Is(cause, ErrDraining)
}
