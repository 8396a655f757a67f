package settling

import (
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
	"github.com/durable-worker/durable-worker/store/postgres/internal/witness"
)

// Bounds of the map of outcomes of one statement.
const (
	MapRuns  = 1000
	mapBytes = 4 << 20
)

// addSettles adds the statements that settle, in the order of their locks. It returns the
// settlement that one statement makes whole, if any: unless that was held, it is still to be made.
func addSettles(b *conn.Batch, work []*settling) (whole *settling) {
	if len(work) == 1 && work[0].isWhole() {
		work[0].addWhole(b)
		return work[0]
	}
	addHolds(b, work)
	for _, w := range work {
		w.forget()
		if w.addLast(b) {
			continue
		}
		w.addTo(b)
		if w.Last && !w.Limited {
			w.addUnlease(b)
		}
	}
	for _, w := range work {
		if w.Limited {
			w.addRelease(b, w.ids(), w.Last)
		}
	}
	addUnleases(b, work)
	return nil
}

// isWhole reports whether the runs are all those of a limited claim, and have plainly succeeded.
func (w *settling) isWhole() bool {
	return w.Limited && w.Last && !w.unheld && len(w.Runs) == w.Claimed && allPlain([]*settling{w})
}

// addWhole adds the one statement that settles a whole limited claim.
func (w *settling) addWhole(b *conn.Batch) {
	w.forget()
	b.Add(queries.SettleWhole, uuid.UUID(w.Claim), w.ids()).QueryRow(func(row pgx.Row) error {
		var held bool
		var settled conn.UUIDs
		if err := row.Scan(&held, &settled, &w.wanted, &w.blocked); err != nil {
			return err
		}
		w.unheld = !held
		w.applied(settled, len(settled) == len(w.Runs))
		return nil
	})
}

// addHolds locks the leases of limited claims, before any of their runs: see HoldLeases.
func addHolds(b *conn.Batch, work []*settling) {
	var claims conn.UUIDs
	for _, w := range work {
		if w.Limited {
			claims = append(claims, uuid.UUID(w.Claim))
		}
	}
	if len(claims) > 0 {
		b.Add(queries.HoldLeases, claims)
	}
}

// addRelease ends the part that the settled runs of a limited claim have in permits. It
// comes after the settles of all claims: a transaction that waits for a run while it holds
// permits may wait forever.
func (w *settling) addRelease(b *conn.Batch, ids conn.UUIDs, last bool) {
	w.addEnding(b, queries.Release, 2, ids, last, conn.Small(w.Claimed), uuid.UUID(w.Claim)).QueryRow(func(row pgx.Row) error {
		var wanted, blocked []store.LineID
		err := row.Scan(&wanted, &blocked)
		w.wanted, w.blocked = append(w.wanted, wanted...), append(w.blocked, blocked...)
		return err
	})
	b.Add(queries.ReleaseFinished, uuid.UUID(w.Claim), ids).QueryRow(func(row pgx.Row) error {
		var wanted []store.LineID
		err := row.Scan(&wanted)
		w.wanted, w.blocked = append(w.wanted, wanted...), append(w.blocked, wanted...)
		return err
	})
}

// addUnleases ends the leases of limited claims, which the releases have read.
func addUnleases(b *conn.Batch, work []*settling) {
	for _, w := range work {
		if w.Limited && w.Last && !w.deferred() {
			w.addUnlease(b)
		}
	}
}

// addEnding adds a statement that may end the lease of the claim. Its argument at a position
// is how many runs the claim was given, for connections that are witnesses of all that was
// settled since. The others are read. A settlement of all runs needs no witness: the
// statements before this one have settled each.
func (w *settling) addEnding(b *conn.Batch, sql string, at int, args ...any) *pgx.QueuedQuery {
	if !w.Last || w.Claimed == 0 || len(w.Runs) == w.Claimed {
		return b.Add(sql, args...)
	}
	b.Rewritten = true
	return b.Add(sql, slices.Concat([]any{witness.Argument{Opened: w.opened, At: at, Else: int32(OfNone)}}, args)...)
}

// addUnlease adds the statement that does nothing but end the lease.
func (w *settling) addUnlease(b *conn.Batch) {
	w.addEnding(b, queries.Unlease, 1, uuid.UUID(w.Claim), conn.Small(w.Claimed)).Exec(func(tag pgconn.CommandTag) error {
		w.wrote = w.wrote || tag.RowsAffected() > 0
		return nil
	})
}

// addTo adds the statements that settle the runs: one for all plain successes,
// one or more for the rest.
func (w *settling) addTo(b *conn.Batch) {
	var plain, rest, back conn.UUIDs // back: of rest, those whose handlers have not begun
	var outcomes []byte
	flush := func() {
		if len(rest) > 0 {
			outcomes[0] = '{'
			each, text := w.accept(len(rest), len(rest) == len(w.Runs)), string(append(outcomes, '}'))
			if w.Limited {
				b.Add(queries.SettleLimited, text, rest, uuid.UUID(w.Claim), conn.OrNoIDs(back), w.Worker.Name).Query(each)
			} else {
				b.Add(queries.SettleRuns, text, rest, uuid.UUID(w.Claim), w.Worker.Name).Query(each)
			}
		}
		rest, back, outcomes = nil, nil, nil
	}
	for i := range w.Runs {
		run := &w.Runs[i]
		if !w.general && rules.Plain(&run.Outcome) {
			plain = append(plain, run.ID)
			continue
		}
		outcomes = appendOutcome(outcomes, run)
		if run.Outcome.GivesBack() {
			back = append(back, run.ID)
		}
		if rest = append(rest, run.ID); len(rest) == MapRuns || len(outcomes) > mapBytes {
			flush()
		}
	}
	flush()
	if len(plain) > 0 {
		b.Add(queries.SettleSuccesses, plain, uuid.UUID(w.Claim)).Query(w.accept(len(plain), len(plain) == len(w.Runs)))
	}
}

// addLast adds the one statement that settles the last few runs of a claim, if they
// are that.
func (w *settling) addLast(b *conn.Batch) bool {
	if !w.isLastFew() {
		return false
	}
	w.addEnding(b, queries.SettleLast, 2, w.ids(), uuid.UUID(w.Claim), conn.Small(w.Claimed)).Query(w.accept(len(w.Runs), true))
	return true
}

// OfNone makes Unlease look at the runs of the lease.
const OfNone = -1
