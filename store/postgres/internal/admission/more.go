package admission

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// moreRounds bounds how often further gates are read: those of the lines in rounds, those of
// waiters, and those that were not expected, such as the cap of a queue that is new.
const moreRounds = 3

// readMore reads what only some limits and runs need: the lines that wait in rounds and the
// other gates of runs, which are locked first, refunds, the keys of dynamic windows, owners,
// and who executes.
func (a *admission) readMore(ctx context.Context, taken []int64) error {
	entered := len(a.input.Rounds) > 0
	for range moreRounds {
		others, err := a.uses(ctx, taken)
		if err != nil {
			return err
		}
		if entered {
			others = append(others, a.entered(taken)...)
			slices.Sort(others)
			others = slices.Compact(others)
		}
		if len(others) == 0 && !entered {
			break
		}
		if err := a.readOthers(ctx, taken, others); err != nil {
			return err
		}
		entered = false
	}
	if _, err := a.uses(ctx, nil); err != nil { // of those that were read last
		return err
	}
	b := a.db.NewBatch()
	a.addRates(b)
	a.addOwners(b)
	a.addExecuting(b)
	if b.Len() == 0 {
		return nil
	}
	return a.db.Send(ctx, a.session, b)
}

// uses sets the uses of waiters that use more than their gate, and returns the gates that have
// not been read yet, of those that wait for the gates whose turns were taken. The further
// gates of others are left for another admission.
func (a *admission) uses(ctx context.Context, taken []int64) (others []int64, err error) {
	set := numbers.LimitSet{}
	for _, said := range a.said {
		for i := range said {
			set[store.LimitName(said[i].Limit)] = nil
		}
	}
	if len(set) == 0 {
		return nil, nil
	}
	if err := a.numbers.FindLimits(ctx, a.session, set, true); err != nil {
		return nil, err
	}
	find := func(name string) *store.Limit {
		if known := set[name]; known != nil {
			return &known.Limit
		}
		return nil
	}
	seen := map[admit.GateID]bool{}
	for i := range a.input.Waiters {
		w := &a.input.Waiters[i]
		said, more := a.said[w.Run]
		if !more || w.Uses != nil {
			continue
		}
		w.Uses = admit.StoredUses(said, find)
		e := a.entryAt(w.Gate, w.Lane)
		if !slices.Contains(taken, int64(w.Gate)) && (e == nil || e.Depth == 0) {
			continue
		}
		for j := range w.Uses {
			if gate := w.Uses[j].Gate; !a.known[gate] && !seen[gate] && w.Uses[j].Mode != store.LimitRelease {
				seen[gate] = true
				others = append(others, int64(gate))
			}
		}
	}
	slices.Sort(others)
	return others, nil
}

// addRates reads the refunds of limits of starts, and the live keys of dynamic windows.
func (a *admission) addRates(b *conn.Batch) {
	var rates []int64
	at := map[admit.GateID]int{}
	for i := range a.input.Gates {
		g := &a.input.Gates[i]
		if g.Busy || g.Limit == nil || !g.Limit.Rate() || g.Limit.Fault != "" {
			continue
		}
		rates, at[g.ID] = append(rates, int64(g.ID)), i
		if g.Limit.Kind == store.LimitDynamicWindow && admit.Parent(g.ID) == g.ID {
			first, last := numbers.GatesOf(g.Limit.ID)
			b.Add(queries.LiveKeys, first, last, a.input.Now.Add(-g.Limit.Period).UnixMicro(), conn.Small(store.MaxLimitKeys+1)).Query(func(rows pgx.Rows) error {
				live, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.LiveKeysRow])
				for _, one := range live {
					g.Live = append(g.Live, admit.LiveKey{Gate: admit.GateID(one.Gate), LastAt: one.LastAt})
				}
				return err
			})
			a.addWaits(b, g)
		}
	}
	if len(rates) == 0 {
		return
	}
	b.Add(queries.TakeRefunds, rates).Query(func(rows pgx.Rows) error {
		refunds, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.TakeRefundsRow])
		for _, one := range refunds {
			g := &a.input.Gates[at[admit.GateID(one.Gate)]]
			g.Refunds = append(g.Refunds, admit.Refund{Weight: int(one.K), ChargedAt: one.ChargedAt.UTC()})
		}
		return err
	})
}

// owned is a permit that a run, or a named owner, may have already.
type owned struct {
	gate  admit.GateID
	owner uuid.UUID
}

// addOwners reads the permits of runs and named owners that may already have some.
func (a *admission) addOwners(b *conn.Batch) {
	asked := map[owned][]*admit.Use{}
	var gates []int64
	var owners conn.UUIDs
	for i := range a.input.Waiters {
		w := &a.input.Waiters[i]
		for j := range w.Uses {
			use := &w.Uses[j]
			one := owned{use.Gate, use.Owner}
			switch {
			case use.Until == store.UntilFinished || use.Until == store.UntilFinishedOrRevived:
				one.owner = w.Run
			case use.Mode != store.LimitAcquire:
				continue
			}
			if asked[one] = append(asked[one], use); len(asked[one]) == 1 {
				gates, owners = append(gates, int64(one.gate)), append(owners, one.owner)
			}
		}
	}
	if len(gates) == 0 {
		return
	}
	b.Add(queries.Owners, gates, owners).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.OwnersRow])
		for _, one := range found {
			for _, use := range asked[owned{admit.GateID(one.Gate), one.Owner}] {
				use.Has = true
			}
		}
		return err
	})
}

// executingMost bounds the runs that are examined to be cancelled for newer ones.
const executingMost = 1000

// addExecuting reads the executing runs of limits whose newer runs cancel older ones.
func (a *admission) addExecuting(b *conn.Batch) {
	var gates []int64
	at := map[int64]int{}
	wanted := map[admit.GateID]bool{}
	for i := range a.input.Waiters {
		for _, use := range a.input.Waiters[i].Uses {
			wanted[use.Gate] = wanted[use.Gate] || use.WhenFull == store.FullCancelOldest
		}
	}
	for i := range a.input.Gates {
		g := &a.input.Gates[i]
		if !g.Busy && g.Limit != nil && !g.Limit.Rate() && (g.Limit.Action() == store.FullCancelOldest || wanted[g.ID]) {
			gates, at[int64(g.ID)] = append(gates, int64(g.ID)), i
		}
	}
	if len(gates) == 0 {
		return
	}
	b.Add(queries.Executing, gates, conn.Small(executingMost)).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.ExecutingRow])
		for _, one := range found {
			g := &a.input.Gates[at[one.Gate]]
			g.Executing = append(g.Executing, admit.Executing{Run: one.ID, Weight: int(one.Weight), Cancelled: one.Cancelled})
		}
		return err
	})
}

// hold locks the candidates that no other transaction holds.
func (a *admission) hold(ctx context.Context) error {
	var c candidates
	for i := range a.input.Waiters {
		if w := &a.input.Waiters[i]; slices.Contains(a.request.Lanes, w.Lane) {
			c.add(w)
		}
	}
	free := map[store.RunID]struct{}{}
	b := a.db.NewBatch()
	b.Add(queries.FreeWaiters, c.gates, c.lanes, c.dues, c.ids).Query(conn.ScanInto(free))
	if len(c.ids) == 0 {
		return nil
	}
	if err := a.db.Send(ctx, a.session, b); err != nil {
		return err
	}
	for i := range a.input.Waiters {
		w := &a.input.Waiters[i]
		_, isFree := free[w.Run]
		w.Held = w.Held || !isFree && slices.Contains(a.request.Lanes, w.Lane)
	}
	return nil
}
