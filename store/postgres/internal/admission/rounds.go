package admission

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

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
func (a *admission) addEntries(b *conn.Batch, taken, free []int64) {
	counts := map[admit.GateID]int{}
	for i := range a.input.Rounds {
		counts[a.input.Rounds[i].Gate]++
	}
	marks := a.marks.rounds.of(a.request.Lanes)
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
		a.entries = append(a.entries, entryRead{e: e, low: marks.low(lineAt{int64(e.Line), e.Lane})})
	}
	a.addReadEntries(b, a.entries)
}

func (a *admission) addReadEntries(b *conn.Batch, entries []entryRead) {
	var p queries.ReadEntriesParams
	for _, one := range entries {
		p.Lines, p.Lanes = append(p.Lines, int64(one.e.Line)), append(p.Lanes, one.e.Lane)
		p.Depths, p.Lows = append(p.Depths, conn.Small(one.e.Depth)), append(p.Lows, one.low)
	}
	if len(p.Lines) > 0 {
		b.Add(queries.ReadEntries, p.Lines, p.Lanes, p.Depths, p.Lows).Query(a.scanWaiters)
	}
}

// readShallow reads lines again, from their beginnings, in which fewer waiters were found from
// their marks on than asked for: nothing is concluded from a mark.
func (a *admission) readShallow(ctx context.Context) error {
	var shallow []entryRead
	for i := range a.entries {
		one := &a.entries[i]
		ofLine := func(w admit.Waiter) bool { return w.Gate == one.e.Line && w.Lane == one.e.Lane }
		found := 0
		for j := range a.input.Waiters {
			if ofLine(a.input.Waiters[j]) {
				found++
			}
		}
		if !one.low.IsZero() && found < one.e.Depth {
			a.input.Waiters = slices.DeleteFunc(a.input.Waiters, ofLine)
			one.low = time.Time{}
			shallow = append(shallow, *one)
		}
	}
	if len(shallow) == 0 {
		return nil
	}
	b := a.db.NewBatch()
	a.addReadEntries(b, shallow)
	return a.db.Send(ctx, a.session, b)
}

// markEntries remembers where the lines begin that were read as entries of rounds; gone are
// the waiters that have left them.
func (a *admission) markEntries(gone map[store.RunID]struct{}) {
	lines, used := map[lineAt]*lineRead{}, markArgs{}
	for _, one := range a.entries {
		at := lineAt{int64(one.e.Line), one.e.Lane}
		line := &lineRead{}
		for i := range a.input.Waiters {
			if w := &a.input.Waiters[i]; w.Gate == one.e.Line && w.Lane == one.e.Lane {
				_, left := gone[w.Run]
				line.add(w.DueAt, left)
			}
		}
		line.deep = line.read >= one.e.Depth
		lines[at] = line
		if !one.low.IsZero() {
			used.gates, used.lanes = append(used.gates, at.gate), append(used.lanes, at.lane)
		}
	}
	if len(lines) > 0 && len(lines) <= markMost {
		a.marks.rounds.learn(nil, a.request.Lanes, lines, &used, min(a.tookEntries, roundRest/belowRest))
	}
}

// roundRest is the longest time between two reads of a line in a round from its beginning. The
// turn of a waiter that enters below the mark reveals nothing there, as the line waits for the
// round, so it is shorter than belowMost.
const roundRest = 2 * time.Second

// addWaits reads the keys of a dynamic window that wait in the round of the gate that they share.
func (a *admission) addWaits(b *conn.Batch, g *admit.Gate) {
	if !slices.ContainsFunc(a.input.Rounds, func(e admit.Entry) bool { return e.Gate == g.ID }) {
		return
	}
	b.Add(queries.KeysInRound, int64(g.ID), conn.Small(store.MaxLimitKeys+1)).Query(func(rows pgx.Rows) error {
		keys, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		for _, key := range keys {
			g.Waits = append(g.Waits, admit.GateID(key))
		}
		return err
	})
}

// addRounds writes where lines wait now.
func addRounds(b *conn.Batch, d *admit.Decision) {
	if len(d.Unpark) > 0 {
		var p queries.LeaveRoundsParams
		for i := range d.Unpark {
			p.Lines, p.Lanes = append(p.Lines, int64(d.Unpark[i].Line)), append(p.Lanes, d.Unpark[i].Lane)
		}
		b.Add(queries.LeaveRounds, p.Lines, p.Lanes)
	}
	if len(d.Served) > 0 {
		var p queries.TakeTurnsInRoundsParams
		for _, one := range d.Served {
			p.Gates, p.Homes, p.Sinces = append(p.Gates, int64(one.Gate)), append(p.Homes, int64(one.Home)), append(p.Sinces, one.Since)
		}
		b.Add(queries.TakeTurnsInRounds, p.Gates, p.Homes, p.Sinces)
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
		p.Needs = append(p.Needs, conn.NumberArray(needs))
	}
	b.Add(queries.EnterRounds, p.Lines, p.Lanes, p.Gates, p.Homes, p.Sinces, p.Needs)
}

// readOthers locks further gates, and lines that wait in rounds, and reads those that are free.
func (a *admission) readOthers(ctx context.Context, taken, gates []int64) error {
	var free []int64
	if len(gates) > 0 {
		a.others = gates
		b := a.db.NewBatch()
		b.Add(queries.LockGates, gates).Query(func(rows pgx.Rows) (err error) {
			free, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
		if err := a.db.Send(ctx, a.session, b); err != nil {
			return err
		}
	}
	for _, gate := range gates {
		if a.known[admit.GateID(gate)] = true; !slices.Contains(free, gate) {
			a.input.Gates = append(a.input.Gates, admit.Gate{ID: admit.GateID(gate), Busy: true})
		}
	}
	b := a.db.NewBatch()
	a.addEntries(b, taken, free)
	reads := slices.DeleteFunc(slices.Clone(free), func(gate int64) bool { return admit.IsSet(admit.GateID(gate)) })
	var found []admit.Gate
	if one := int32(1); len(reads) > 0 {
		a.addReads(b, reads, readDepth{lines: &one, entries: conn.Small(a.request.Limit + 1)}, &found)
	}
	if b.Len() == 0 {
		return nil
	}
	began := lease.Elapsed()
	if err := a.db.Send(ctx, a.session, b); err != nil {
		return err
	}
	a.tookEntries = lease.Elapsed() - began
	if err := a.readShallow(ctx); err != nil {
		return err
	}
	a.learn(reads, found, 0)
	return a.adopt(ctx)
}
