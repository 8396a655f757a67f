package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/durable-worker/durable-worker/store"
)

// Run is one run inside its handler. It is valid until the handler returns; methods that
// write to the run return lease.ErrLost afterwards, such as in a goroutine that was left
// behind. Only a worker creates one: tests use durabletest.Perform. Its methods may be called
// from many goroutines.
type Run[A any] struct {
	RunInfo
	Args A

	execution *execution
}

// Valid reports whether the run may still be written to: its lease is held by the worker's
// monotonic clock, and ctx has not ended. Call it before an effect that cannot be undone. A
// pause of the process right after the call can make the answer obsolete; only the store, or
// a resource that checks the Fence, is sure to refuse a late writer.
func (r *Run[A]) Valid(ctx context.Context) bool {
	return r.execution.valid(ctx)
}

// IdempotencyKey is the same for every attempt of the run and for no other
// run. Pass it to services that recognise a repeated request.
func (r *Run[A]) IdempotencyKey() string { return r.ID.String() }

// Log returns the worker's logger with the run's id, job and attempt. Lines that you log
// through it at level Info and above are also kept with the attempt, and shown with the run:
// the latest store.MaxLogLines lines, store.MaxLogSize bytes in all, with a mark if there
// were more. An attempt that is handed back or snoozed, or that ends with the death of its
// worker, leaves no lines. CompleteIn keeps the lines logged before it.
func (r *Run[A]) Log() *slog.Logger { return r.execution.handlerLog() }

// SetResult stores a JSON value with the run when the handler returns nil. The last call
// counts. It refuses a value that cannot be stored: one that is larger than
// store.MaxArgsSize or contains invalid text.
func (r *Run[A]) SetResult(value any) error {
	if err := r.execution.over(); err != nil {
		return err
	}
	if err := r.execution.begunBook().Parked(); err != nil {
		return err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("%w: result: %w", ErrInvalid, err)
	}
	if text, err = r.execution.seal(ResultPart, text); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := store.CheckJSON(text); err != nil {
		return fmt.Errorf("%w: result%w", ErrInvalid, err)
	}
	r.execution.setResult(text)
	return nil
}
