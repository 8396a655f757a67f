package admission

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// readBelow reads the lines again, from their beginnings.
func (a *admission) readBelow(ctx context.Context, gates []int64) error {
	a.input.Waiters, a.used = a.input.Waiters[:0], markArgs{}
	clear(a.said)
	b := a.db.NewBatch()
	a.addLines(b, gates, nil)
	began := lease.Elapsed()
	err := a.db.Send(ctx, a.session, b)
	a.took = lease.Elapsed() - began
	return err
}

// addReads reads what locked gates admit, and the first waiters of their lines, depth of each
// of the admission's own lanes. Without gates it reads those whose turns the transaction has
// taken; without a depth, as many waiters as each gate may admit.
func (a *admission) addReads(b *conn.Batch, gates []int64, depth readDepth, found *[]admit.Gate) {
	b.Add(queries.ReadLimits, gates).Query(a.scanLimits)
	b.Add(queries.ReadGates, gates).Query(func(rows pgx.Rows) error { return a.scanGates(rows, found) })
	a.addLines(b, gates, depth.lines)
	b.Add(queries.ReadLanes, laneNumbers(a.request.Lanes), gates).Query(a.scanLanes)
	b.Add(queries.ReadKept, gates, depth.ofRounds(), conn.Small(a.request.Limit)).Query(a.scanKept)
}

// addLines reads the lines alone, from the marks that are used unless the depth is given.
func (a *admission) addLines(b *conn.Batch, gates []int64, depth *int32) {
	var marks markArgs
	if depth == nil {
		marks = a.used
	}
	b.Add(queries.ReadLines, laneNumbers(a.request.Lanes), marks.gates, marks.lanes, marks.dues, conn.Small(a.request.Limit), depth, gates).Query(a.scanWaiters)
}

// learn adds gates that were read. depth is how many waiters of each line of the
// admission's own lanes were read at most; zero: not so many that more matter.
func (a *admission) learn(gates []int64, found []admit.Gate, depth int) {
	slices.SortFunc(found, func(x, y admit.Gate) int { // as they came
		return cmp.Compare(slices.Index(gates, int64(x.ID)), slices.Index(gates, int64(y.ID)))
	})
	for _, gate := range gates {
		a.known[admit.GateID(gate)] = true
	}
	for i := range found {
		g := &found[i]
		if !admit.IsSet(g.ID) {
			g.Limit = a.limits[admit.LimitOf(g.ID)]
		}
		if depth > 0 {
			g.Depth, g.Entries = depth, admit.Entries(a.request.Limit, len(gates))
			if g.Limit != nil && g.Limit.Action() > store.FullWait {
				g.Depth = a.request.Limit + 1
			}
		}
	}
	a.input.Gates = append(a.input.Gates, found...)
}

func (a *admission) scanLimits(rows pgx.Rows) error {
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.ReadLimitsRow])
	for i := range found {
		one := numbers.LimitOf(&found[i])
		a.limits[one.ID] = &one
	}
	return err
}

func (a *admission) scanGates(rows pgx.Rows, to *[]admit.Gate) error {
	for rows.Next() {
		var g admit.Gate
		var freesAt, notBefore *time.Time
		var lapsed, named bool
		var texts []string
		err := rows.Scan(&g.ID, &g.Used, &freesAt, &lapsed, &named, &g.Rate.TAT, &g.Rate.At, &g.Rate.Count, &notBefore,
			&g.Rate.Since, &g.Rate.LastAt, &texts, &a.input.Now)
		if err != nil {
			return err
		}
		if freesAt != nil {
			g.FreesAt = freesAt.UTC()
		}
		if notBefore != nil {
			g.NotBefore = notBefore.UTC()
		}
		if lapsed {
			a.lapsed = append(a.lapsed, int64(g.ID))
		}
		if !named && texts != nil {
			a.names[g.ID] = a.keyOf(g.ID, numbers.UsesOf(texts))
		}
		*to = append(*to, g)
	}
	a.input.Now = a.input.Now.UTC()
	return rows.Err()
}

func (a *admission) scanWaiters(rows pgx.Rows) error {
	for rows.Next() {
		var w admit.Waiter
		var texts []string
		if err := rows.Scan(&w.Gate, &w.Lane, &w.DueAt, (*conn.BinaryUUID)(&w.Run), &texts); err != nil {
			return err
		}
		if w.DueAt = w.DueAt.UTC(); texts != nil {
			said, err := store.ParseLimitTexts(texts)
			a.said[w.Run], w.Unread = said, err != nil
		}
		a.input.Waiters = append(a.input.Waiters, w)
	}
	return rows.Err()
}

func (a *admission) scanLanes(rows pgx.Rows) error {
	for rows.Next() {
		var l admit.Lane
		var c queueCap
		if err := rows.Scan(&l.ID, &l.Priority, &l.Paused, &c.gate, &c.queue); err != nil {
			return err
		}
		if c.gate != 0 {
			a.caps[l.ID], l.Cap = c, admit.GateID(c.gate)
		}
		l.Ours = slices.Contains(a.request.Lanes, l.ID)
		a.input.Lanes = append(a.input.Lanes, l)
	}
	return rows.Err()
}

// scanKept reads the places that are kept, and what waits in rounds.
func (a *admission) scanKept(rows pgx.Rows) error {
	for rows.Next() {
		var line *int64
		var e admit.Entry
		if err := rows.Scan(&e.Gate, &e.Lane, &e.Since, &line, &e.Home, &e.Gates); err != nil {
			return err
		}
		if e.Since = e.Since.UTC(); line == nil {
			a.input.Kept = append(a.input.Kept, admit.Kept{Gate: e.Gate, Lane: e.Lane, ExpiresAt: e.Since})
			continue
		}
		if e.Line = admit.GateID(*line); a.entryAt(e.Line, e.Lane) == nil {
			a.input.Rounds = append(a.input.Rounds, e)
		}
	}
	return rows.Err()
}
