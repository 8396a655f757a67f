package settling

import (
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
)

// settling is a settlement under way.
type settling struct {
	*store.Settlement
	verdicts []store.Verdict // zero: the write did not touch the run
	opened   int64           // connections when the claim was sent; zero: it is not known
	general  bool            // plain successes are settled with the statement for the rest
	unheld   bool            // the lease is not as SettleWhole expects: the claim is settled by the other statements
	wanted   []store.LineID  // the lines of turns for whose gates, of which the settlement has freed places, runs wait
	blocked  []store.LineID  // those of them whose runs nothing else may let start
	wrote    bool            // the transaction has changed a row: its end has waited for all that was committed before
}

// forget drops what an earlier try has found.
func (w *settling) forget() {
	clear(w.verdicts)
	w.wanted, w.blocked, w.wrote = nil, nil, false
}

// accept reads the ids that a statement has touched. All says that it was asked for all of
// the settlement's.
func (w *settling) accept(asked int, all bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		ids := make([]uuid.UUID, 0, asked)
		if err := conn.ScanIDs(rows, func(id uuid.UUID) { ids = append(ids, id) }); err != nil {
			return err
		}
		w.applied(ids, all && len(ids) == asked)
		return nil
	}
}

// applied records which runs were settled. If all of them were, there is nothing to look up.
func (w *settling) applied(ids []uuid.UUID, all bool) {
	w.wrote = w.wrote || len(ids) > 0
	if !all {
		w.mark(ids, store.Applied)
		return
	}
	for i := range w.verdicts {
		w.verdicts[i] = store.Applied
	}
}

func (w *settling) mark(ids []uuid.UUID, verdict store.Verdict) {
	marked := make(map[uuid.UUID]struct{}, len(ids))
	for _, id := range ids {
		marked[id] = struct{}{}
	}
	for i := range w.Runs {
		if _, ok := marked[w.Runs[i].ID]; ok && w.verdicts[i] == 0 {
			w.verdicts[i] = verdict
		}
	}
}

// putBack adds the wake-ups for runs that were put back and are due before workers look by
// themselves.
func (w *settling) putBack(all []store.Due) []store.Due {
	for i := range w.Runs {
		run := &w.Runs[i]
		if w.verdicts[i] != store.Applied || run.Outcome.Kind.State() != store.Pending || run.Outcome.After > store.WakeAhead {
			continue
		}
		due := store.Due{Lane: run.Lane, Runs: 1, In: run.Outcome.After, Limited: w.Limited}
		if last := len(all) - 1; last >= 0 && all[last].Lane == due.Lane && all[last].In == due.In && all[last].Limited == due.Limited {
			all[last].Runs++
		} else {
			all = append(all, due)
		}
	}
	return all
}

func (w *settling) landed(rows pgx.Rows) error {
	var ids []uuid.UUID
	for rows.Next() {
		var id uuid.UUID
		var landed bool
		if err := rows.Scan(&id, &landed); err != nil {
			return err
		}
		if landed {
			ids = append(ids, id)
		}
	}
	w.mark(ids, store.AlreadyApplied)
	return rows.Err()
}

// ids are the runs of the settlement.
func (w *settling) ids() conn.UUIDs {
	ids := make(conn.UUIDs, len(w.Runs))
	for i := range w.Runs {
		ids[i] = w.Runs[i].ID
	}
	return ids
}

// allPlain reports whether all runs have plainly succeeded.
func allPlain(work []*settling) bool {
	return !slices.ContainsFunc(work, func(w *settling) bool {
		return w.general || slices.ContainsFunc(w.Runs, func(run store.Settled) bool { return !rules.Plain(&run.Outcome) })
	})
}

// deferred reports whether a run is still to be settled.
func (w *settling) deferred() bool { return slices.Contains(w.verdicts, store.Deferred) }

// undeferred returns the runs that need not be settled later, because none of them is
// running under the claim any more.
func (w *settling) undeferred() conn.UUIDs {
	ids := make(conn.UUIDs, 0, len(w.Runs))
	for i := range w.Runs {
		if w.verdicts[i] != store.Deferred {
			ids = append(ids, w.Runs[i].ID)
		}
	}
	return ids
}

// isUnheld reports that SettleWhole has touched nothing.
func (w *settling) isUnheld() bool { return w != nil && w.unheld }

// errUnheld has a settle sent again, by the statements that settle a part of a claim.
var errUnheld = errors.New("the lease is not that of a whole claim")

// isLastFew reports whether the runs are the last few of a claim and have plainly succeeded.
func (w *settling) isLastFew() bool {
	if w.general || w.Limited || !w.Last || len(w.Runs) == 0 || len(w.Runs) > lastFew {
		return false
	}
	for i := range w.Runs {
		if !rules.Plain(&w.Runs[i].Outcome) {
			return false
		}
	}
	return true
}

// lastFew is up to how many runs are settled, and their lease ended, in one statement.
const lastFew = 16

// frees adds the places that a part of the settlement has freed.
func (w *settling) frees(part *settling) {
	w.wanted, w.blocked = append(w.wanted, part.wanted...), append(w.blocked, part.blocked...)
}

// part is the settlement of one run alone.
func (w *settling) part(run store.Settled, verdict []store.Verdict) settling {
	return settling{
		Settlement: &store.Settlement{Claim: w.Claim, Worker: w.Worker, Limited: w.Limited, Runs: []store.Settled{run}},
		verdicts:   verdict,
		general:    w.general,
	}
}
