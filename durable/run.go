package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/durable-worker/durable-worker/store"
)

// Run is one run inside its handler. It is valid until the handler returns; what
// would write to the run afterwards, from a goroutine that was left behind,
// answers lease.ErrLost. Only a worker makes one: tests have
// durabletest.Perform. Its methods may be called from many goroutines.
type Run[A any] struct {
	RunInfo
	Args A

	execution *execution
}

// Valid tells whether the run may still be written to: its lease is held by
// the worker's own clock, and ctx has not ended. Ask before an effect that
// cannot be taken back. The answer can be overtaken by a pause of the process
// right after it; only the store, or a resource that checks the Fence, refuses
// for certain.
func (r *Run[A]) Valid(ctx context.Context) bool {
	return ctx.Err() == nil && r.execution.over() == nil && r.execution.claim.hold.Valid()
}

// IdempotencyKey is the same for every attempt of the run and for no other
// run. Hand it to services that recognise a repeated request.
func (r *Run[A]) IdempotencyKey() string { return r.ID.String() }

// Log returns the worker's logger with the run's id, job and attempt. What is
// logged through it at level Info and above is also kept with the attempt, and
// shown with the run: the latest MaxLogLines lines of at most MaxLogSize bytes,
// with a mark when there were more. An attempt that is handed back, snoozed,
// ended by CompleteIn or by the death of its worker leaves no lines.
func (r *Run[A]) Log() *slog.Logger { return r.execution.handlerLog() }

// SetResult stores a JSON value with the run when the handler returns nil. The
// last call counts. It refuses a value that cannot be stored: larger than
// MaxArgsSize, or with text that is not valid.
func (r *Run[A]) SetResult(value any) error {
	if err := r.execution.over(); err != nil {
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
