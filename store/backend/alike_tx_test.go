package backend_test

import (
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
	"github.com/durable-worker/durable-worker/store/memory"
)

// callers is a transaction of the caller's own.
type callers struct {
	store.Tx

	commit   func() error
	rollback func()
	execute  func(statement string) error // nil: it has no statements, and no savepoints
}

// open opens the database of a store for transactions of the caller's.
func (h *history) open(s backend.Store, dsn string) {
	switch {
	case backend.Postgres(s) != nil:
		h.bases = append(h.bases, pgtest.Open(h.t, dsn))
	case backend.SQLite(s) != nil:
		db, err := sql.Open("sqlite", backend.SQLite(s).DSN())
		require.NoError(h.t, err)
		h.t.Cleanup(func() { _ = db.Close() })
		h.bases = append(h.bases, db)
	default:
		h.bases = append(h.bases, nil)
	}
}

func (h *history) begin(s backend.Store) callers {
	db := h.bases[slices.Index(h.stores, s)]
	if db == nil {
		tx := s.(*memory.Store).Begin()
		return callers{Tx: tx, commit: tx.Commit, rollback: tx.Rollback}
	}
	tx, err := db.BeginTx(h.t.Context(), nil)
	require.NoError(h.t, err)
	begun := callers{commit: tx.Commit, rollback: func() { _ = tx.Rollback() }, execute: func(statement string) error {
		_, err := tx.ExecContext(h.t.Context(), statement)
		return err
	}}
	if pg := backend.Postgres(s); pg != nil {
		begun.Tx = pg.WithSQLTx(tx)
	} else {
		begun.Tx = backend.SQLite(s).WithTx(tx)
	}
	return begun
}

// transaction does several things in one transaction of the caller's, which it commits
// or rolls back. A run that was completed is settled then, as its worker does, or its
// worker dies.
func (h *history) transaction() {
	what := ""
	var steps []func(backend.Store, callers) (any, error)
	add := func(text string, step func(backend.Store, callers) (any, error)) {
		what, steps = what+"; "+text, append(steps, step)
	}
	i, completed := h.random.IntN(max(len(h.held), 1)), false
	for range 1 + h.random.IntN(4) {
		switch h.random.IntN(6) {
		case 0, 1:
			runs := h.newRuns()
			add("enqueue "+h.ids(runs), func(_ backend.Store, tx callers) (any, error) { return tx.Enqueue(h.t.Context(), runs...) })
		case 2:
			runs := h.newRuns()
			add("undo enqueue "+h.ids(runs), func(_ backend.Store, tx callers) (any, error) { return nil, h.undone(tx, runs) })
		case 3:
			run := append(h.some(), store.NewRunID())[0]
			add("read "+run.String(), func(_ backend.Store, tx callers) (any, error) {
				page, err := tx.Runs(h.t.Context(), store.Filter{IDs: []store.RunID{run}})
				return []any{h.recordIn(h.t.Context(), tx, run), len(page.Runs)}, err
			})
		case 4:
			if id, holder, ok := h.holderOf(); ok && !completed {
				add("guard "+id.String(), func(s backend.Store, tx callers) (any, error) { return nil, tx.Guard(h.t.Context(), holder(s)) })
			}
		default:
			if len(h.held) > 0 && !completed {
				held := h.held[i]
				id := held.runs[0]
				completed = true
				add("complete "+id.String(), func(s backend.Store, tx callers) (any, error) {
					holder := store.Holder{Run: id, Claim: held.claims[slices.Index(h.stores, s)][id]}
					return nil, tx.Complete(h.t.Context(), holder, store.Completion{Result: []byte(`2`), Log: "done"})
				})
			}
		}
	}
	commit := h.random.IntN(3) > 0
	h.each(fmt.Sprint("transaction ", what, "; commit ", commit), func(s backend.Store) any {
		tx := h.begin(s)
		defer tx.rollback()
		var answer []any
		for _, step := range steps {
			done, err := step(s, tx)
			answer = append(answer, done, wordOf(err))
			if err != nil {
				return answer
			}
		}
		if commit {
			answer = append(answer, wordOf(tx.commit()))
		}
		return answer
	})
	switch {
	case !completed:
	case h.random.IntN(3) == 0 && h.held[i].together():
		h.crashOf(i, true)
	default:
		h.end(i, 1, []store.Settled{{ID: h.held[i].runs[0], Outcome: store.Outcome{Kind: store.Failure, Error: "e", After: time.Hour}}})
	}
}

// undone enqueues and rolls back to where it was before, if the transaction can.
func (h *history) undone(tx callers, runs []store.NewRun) error {
	if tx.execute == nil {
		return nil
	}
	require.NoError(h.t, tx.execute("SAVEPOINT before"))
	_, _ = tx.Enqueue(h.t.Context(), runs...) // it may be refused
	return tx.execute("ROLLBACK TO SAVEPOINT before")
}

// newRuns are a few runs, known from now on.
func (h *history) newRuns() (runs []store.NewRun) {
	for range 1 + h.random.IntN(3) {
		runs = append(runs, h.newRun())
	}
	h.known = append(h.known, runs...)
	return runs
}
