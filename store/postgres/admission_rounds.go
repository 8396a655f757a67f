package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

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

// entryAt is the entry of a line that was read, or nil.
func (a *admission) entryAt(line admit.GateID, lane store.LaneID) *admit.Entry {
	for i := range a.input.Rounds {
		if e := &a.input.Rounds[i]; e.Line == line && e.Lane == lane {
			return e
		}
	}
	return nil
}

// entered are the lines that wait in the rounds of the gates whose turns the admission has
// taken, and the gates that their runs need, as far as they are not known.
func (a *admission) entered(taken []int64) (gates []int64) {
	for i := range a.input.Rounds {
		e := &a.input.Rounds[i]
		if e.Line == e.Gate || !slices.Contains(taken, int64(e.Gate)) {
			continue
		}
		for _, gate := range append([]admit.GateID{e.Line}, e.Gates...) {
			if !a.known[gate] && !slices.Contains(gates, int64(gate)) {
				gates = append(gates, int64(gate))
			}
		}
	}
	slices.Sort(gates)
	return gates
}

// addEntries reads the first waiters of the lines that wait in the rounds of the gates whose
// turns the admission has taken; free are the gates that it has locked since.
func (a *admission) addEntries(b *batch, taken, free []int64) {
	counts := map[admit.GateID]int{}
	for i := range a.input.Rounds {
		counts[a.input.Rounds[i].Gate]++
	}
	var p queries.ReadEntriesParams
	for i := range a.input.Rounds {
		e := &a.input.Rounds[i]
		locked := slices.Contains(free, int64(e.Line)) || slices.Contains(taken, int64(e.Line))
		if e.Line == e.Gate || !locked || !slices.Contains(taken, int64(e.Gate)) {
			continue
		}
		action := store.FullWait
		if limit := a.limits[admit.LimitOf(e.Gate)]; limit != nil {
			action = limit.Action()
		}
		e.Depth = admit.EntryDepth(a.request.Limit, len(taken), counts[e.Gate], action)
		p.Lines, p.Lanes, p.Depths = append(p.Lines, int64(e.Line)), append(p.Lanes, e.Lane), append(p.Depths, small(e.Depth))
	}
	if len(p.Lines) > 0 {
		b.add(queries.ReadEntries, p.Lines, p.Lanes, p.Depths).Query(a.scanWaiters)
	}
}

// addWaits reads the keys of a dynamic window that wait in the round of the gate that they share.
func (a *admission) addWaits(b *batch, g *admit.Gate) {
	if !slices.ContainsFunc(a.input.Rounds, func(e admit.Entry) bool { return e.Gate == g.ID }) {
		return
	}
	b.add(queries.KeysInRound, int64(g.ID), small(store.MaxLimitKeys+1)).Query(func(rows pgx.Rows) error {
		keys, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		for _, key := range keys {
			g.Waits = append(g.Waits, admit.GateID(key))
		}
		return err
	})
}

// addRounds writes where lines wait now.
func addRounds(b *batch, d *admit.Decision) {
	if len(d.Unpark) > 0 {
		var p queries.LeaveRoundsParams
		for i := range d.Unpark {
			p.Lines, p.Lanes = append(p.Lines, int64(d.Unpark[i].Line)), append(p.Lanes, d.Unpark[i].Lane)
		}
		b.add(queries.LeaveRounds, p.Lines, p.Lanes)
	}
	if len(d.Served) > 0 {
		var p queries.TakeTurnsInRoundsParams
		for _, one := range d.Served {
			p.Gates, p.Homes, p.Sinces = append(p.Gates, int64(one.Gate)), append(p.Homes, int64(one.Home)), append(p.Sinces, one.Since)
		}
		b.add(queries.TakeTurnsInRounds, p.Gates, p.Homes, p.Sinces)
	}
	if len(d.Park) == 0 {
		return
	}
	var p queries.EnterRoundsParams
	for i := range d.Park {
		e := &d.Park[i]
		p.Lines, p.Lanes, p.Gates = append(p.Lines, int64(e.Line)), append(p.Lanes, e.Lane), append(p.Gates, int64(e.Gate))
		p.Homes, p.Sinces = append(p.Homes, int64(e.Home)), append(p.Sinces, e.Since)
		needs := make([]int64, len(e.Gates))
		for j, gate := range e.Gates {
			needs[j] = int64(gate)
		}
		p.Needs = append(p.Needs, numberArray(needs))
	}
	b.add(queries.EnterRounds, p.Lines, p.Lanes, p.Gates, p.Homes, p.Sinces, p.Needs)
}

// readOthers locks further gates, and lines that wait in rounds, and reads those that are free.
func (a *admission) readOthers(ctx context.Context, taken, gates []int64) error {
	var free []int64
	if len(gates) > 0 {
		a.others = gates
		b := &batch{names: a.Store.names}
		b.add(queries.LockGates, gates).Query(func(rows pgx.Rows) (err error) {
			free, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
		if err := a.send(ctx, a.conn, b); err != nil {
			return err
		}
	}
	for _, gate := range gates {
		if a.known[admit.GateID(gate)] = true; !slices.Contains(free, gate) {
			a.input.Gates = append(a.input.Gates, admit.Gate{ID: admit.GateID(gate), Busy: true})
		}
	}
	b := &batch{names: a.Store.names}
	a.addEntries(b, taken, free)
	reads := slices.DeleteFunc(slices.Clone(free), func(gate int64) bool { return admit.IsSet(admit.GateID(gate)) })
	var found []admit.Gate
	if one := int32(1); len(reads) > 0 {
		a.addReads(b, reads, readDepth{lines: &one, entries: small(a.request.Limit + 1)}, &found)
	}
	if b.Len() == 0 {
		return nil
	}
	if err := a.send(ctx, a.conn, b); err != nil {
		return err
	}
	a.learn(reads, found, 0)
	return a.adopt(ctx)
}

// readDepth is how much to read of lines and rounds; the zero value: as much as each gate may
// admit.
type readDepth struct {
	lines   *int32
	entries int32
}

func (r readDepth) ofRounds() *int32 {
	if r.entries == 0 {
		return nil
	}
	return &r.entries
}
