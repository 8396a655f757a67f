package postgres

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// sweepFailures bounds the statements of one step that fail. What they have not
// come to is left to the next full pass: when all is refused, a step is not to
// take for ever.
const sweepFailures = 40

// part sends statements that can be taken back alone, and takes them back when
// the database refuses them.
func (w *sweeping) part(ctx context.Context, add func(*batch)) error {
	b := &batch{names: w.store.names}
	b.add(queries.BeginPart)
	add(b)
	b.add(queries.EndPart)
	err := w.store.send(ctx, w.tx, b)
	if refusesRows(err) {
		w.failed++
		if undone := w.queries.UndoPart(ctx); undone != nil {
			return undone
		}
	}
	return err
}

// goOn passes over what was refused; the next full pass comes to it again.
func (w *sweeping) goOn(err error, kind, name string) error {
	if !refusesRows(err) {
		return err
	}
	w.done.Passed = append(w.done.Passed, store.PassedOver{Kind: kind, Name: name, Again: store.SweepPassEvery, Err: err})
	return nil
}
