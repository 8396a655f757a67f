package admission

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// write writes what was decided and ends the transaction.
func (a *admission) write(ctx context.Context, d *admit.Decision) error {
	b := a.db.NewBatch()
	a.addLeavers(b, d)
	a.addRefused(b, d)
	a.addAsked(b, d)
	if len(a.lapsed) > 0 {
		b.Add(queries.EndLapsed, a.lapsed)
	}
	gates := a.addPermits(b, d)
	a.addState(b, d)
	if n := len(d.Admitted); n > 0 {
		ids := make(conn.UUIDs, n)
		for i := range d.Admitted {
			ids[i] = d.Admitted[i].Run
		}
		b.Add(queries.StartAdmitted, uuid.UUID(a.request.Claim), a.worker, a.input.Now, ids, conn.Micro(a.request.Duration), a.request.Alone, gates, strictly(d)).Query(a.got.Scan)
	}
	exhausts, left := a.exhausts(d), false
	if exhausts {
		lines, _ := asked(a.request)
		b.Add(queries.TurnsLeft, lines, conn.Micro(store.WakeAhead)).QueryRow(func(row pgx.Row) error { return row.Scan(&left) })
	}
	b.Add(queries.Commit)
	if err := a.db.Send(ctx, a.session, b); err != nil {
		return err
	}
	if exhausts {
		*a.request.Exhausted = !left
	}
	a.Tally.Decided(d)
	a.expectHandOn(d)
	a.order(d)
	a.mark(d)
	if len(d.Cancel) > 0 {
		a.wake.Hint()
	}
	a.wake.HintFreed(a.freed, a.freed)
	return nil
}

// order sorts the runs as they were admitted.
func (a *admission) order(d *admit.Decision) {
	place := make(map[store.RunID]int, len(d.Admitted))
	for i := range d.Admitted {
		place[d.Admitted[i].Run] = i
	}
	slices.SortFunc(a.got.Runs, func(x, y store.ClaimedRun) int { return cmp.Compare(place[x.ID], place[y.ID]) })
}

// addLeavers takes waiters out of their lines, and puts those that move into others.
func (a *admission) addLeavers(b *conn.Batch, d *admit.Decision) {
	var left, moved candidates
	for i := range d.Admitted {
		left.add(&d.Admitted[i].Waiter)
	}
	for i := range d.Moved {
		left.add(&d.Moved[i].Waiter)
		moved.addAt(&d.Moved[i].Waiter, d.Moved[i].To, d.Moved[i].DueAt)
	}
	for i := range d.Refused {
		left.add(&d.Refused[i].Waiter)
	}
	if len(left.ids) == 0 {
		return
	}
	b.Add(queries.LeaveLines, left.ids, left.gates, left.lanes, left.dues)
	if len(moved.ids) > 0 {
		b.Add(queries.MoveWaiters, moved.gates, moved.lanes, moved.dues, moved.ids)
	}
}

// addRefused ends runs that may not wait, and puts others off.
func (a *admission) addRefused(b *conn.Batch, d *admit.Decision) {
	var later candidates
	var over conn.UUIDs
	dues, states, reasons := map[string]string{}, map[string]int{}, map[string]string{}
	for i := range d.Refused {
		r := &d.Refused[i]
		id := r.Run.String()
		if r.State == store.Pending {
			due := r.DueAt.UTC().Truncate(time.Microsecond)
			later.addAt(&r.Waiter, r.Gate, due)
			dues[id] = due.Format("2006-01-02T15:04:05.999999Z07:00")
			continue
		}
		over = append(over, r.Run)
		states[id], reasons[id] = int(r.State), r.Reason
	}
	if len(later.ids) > 0 {
		b.Add(queries.MoveWaiters, later.gates, later.lanes, later.dues, later.ids)
		b.Add(queries.PostponeRuns, conn.JSONText(dues), later.ids)
	}
	if len(over) > 0 {
		b.Add(queries.RefuseRuns, conn.JSONText(states), over, conn.JSONText(reasons)).Query(func(rows pgx.Rows) error {
			return conn.ScanFreed(rows, &a.freed, func(uuid.UUID) {})
		})
	}
}

// addAsked asks runs to end for newer ones.
func (a *admission) addAsked(b *conn.Batch, d *admit.Decision) {
	for _, id := range d.Cancel {
		name := ""
		for i := range a.input.Gates {
			for _, one := range a.input.Gates[i].Executing {
				if one.Run == id {
					name = a.input.Gates[i].Limit.Name
				}
			}
		}
		b.Add(queries.AskOldest, conn.UUIDs{id}, rules.Oldest(name))
	}
}

// addPermits writes permits, and returns the gates in which the claim has its own.
func (a *admission) addPermits(b *conn.Batch, d *admit.Decision) (own []int64) {
	own = []int64{}
	var p queries.InsertPermitsParams
	var owners conn.UUIDs
	var expiries []*time.Time
	sorted := slices.Clone(d.Permits)
	slices.SortStableFunc(sorted, func(x, y admit.Permit) int {
		return cmp.Or(cmp.Compare(x.Gate, y.Gate), bytes.Compare(x.Owner[:], y.Owner[:]))
	})
	for i := range sorted {
		one := &sorted[i]
		if one.Owner == (uuid.UUID{}) {
			one.Owner = uuid.UUID(a.request.Claim)
			own = append(own, int64(one.Gate))
		}
		p.Gates, owners, expiries = append(p.Gates, int64(one.Gate)), append(owners, one.Owner), append(expiries, conn.TimeOrNull(one.ExpiresAt))
		p.Places, p.Untils = append(p.Places, conn.Small(one.Weight)), append(p.Untils, string(rune(one.Until)))
		p.Runs = append(p.Runs, conn.IDArray(one.Runs))
	}
	if len(sorted) > 0 {
		b.Add(queries.InsertPermits, p.Gates, owners, expiries, p.Places, p.Untils, p.Runs)
	}
	return own
}

// strictly reports whether a run that was admitted has permits that outlast the
// claim, or gives back those of an owner.
func strictly(d *admit.Decision) bool {
	return slices.ContainsFunc(d.Admitted, func(one admit.Admitted) bool {
		return slices.ContainsFunc(one.Uses, func(use admit.Use) bool {
			return use.Until == store.UntilFinished || use.Until == store.UntilFinishedOrRevived || use.Mode == store.LimitRelease
		})
	})
}

// addState writes what the gates remember: turns, kept places, rates, keys.
func (a *admission) addState(b *conn.Batch, d *admit.Decision) {
	addRounds(b, d)
	addTurns(b, queries.InsertTurns, d.Turns)
	addTurns(b, queries.AddTurns, d.Due)
	if len(d.Keep) > 0 {
		var k queries.KeepParams
		for _, one := range d.Keep {
			k.Gates, k.Lanes, k.Expiries = append(k.Gates, int64(one.Gate)), append(k.Lanes, one.Lane), append(k.Expiries, one.ExpiresAt)
		}
		b.Add(queries.Keep, k.Gates, k.Lanes, k.Expiries)
	}
	if len(d.Unkeep) > 0 {
		var k queries.UnkeepParams
		for _, one := range d.Unkeep {
			k.Gates, k.Lanes = append(k.Gates, int64(one.Gate)), append(k.Lanes, one.Lane)
		}
		b.Add(queries.Unkeep, k.Gates, k.Lanes)
	}
	addRates(b, d.Rates)
	if len(a.names) > 0 {
		var n queries.NameGatesParams
		for gate, key := range a.names {
			n.Gates, n.Keys = append(n.Gates, int64(gate)), append(n.Keys, key)
		}
		b.Add(queries.NameGates, n.Gates, n.Keys)
	}
}

func addTurns(b *conn.Batch, statement string, turns []admit.Turn) {
	if len(turns) == 0 {
		return
	}
	var t queries.AddTurnsParams
	for _, one := range turns {
		t.Lines, t.Dues, t.Gates = append(t.Lines, one.Line), append(t.Dues, one.DueAt), append(t.Gates, int64(one.Gate))
	}
	b.Add(statement, t.Lines, t.Dues, t.Gates)
}

func addRates(b *conn.Batch, rates []admit.GateRate) {
	if len(rates) == 0 {
		return
	}
	var r queries.WriteRatesParams
	for i := range rates {
		one := &rates[i].Rate
		r.Gates, r.Tats = append(r.Gates, int64(rates[i].Gate)), append(r.Tats, one.TAT)
		r.BucketAts, r.BucketNs = append(r.BucketAts, conn.NumberArray(one.At)), append(r.BucketNs, conn.NumberArray(one.Count))
		r.Sinces, r.LastAts = append(r.Sinces, one.Since), append(r.LastAts, one.LastAt)
	}
	b.Add(queries.WriteRates, r.Gates, r.Tats, r.BucketAts, r.BucketNs, r.Sinces, r.LastAts)
}
