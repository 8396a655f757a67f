package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// An admission is one transaction of three round trips, of more where runs have
// several limits: it takes turns and locks their gates, reads in later statements what
// the gates admit, decides, and writes.

// divisionByZero is how LeaveLines says that a waiter has gone since it was read.
const divisionByZero = "22012"

// admitRuns admits limited runs. It expects that nobody has a row of theirs in hand; where
// somebody had, it begins again and for a while looks at the rows before it decides.
func (s *Store) admitRuns(ctx context.Context, request *store.ClaimRequest, worker int32, got *dealing) error {
	if !s.heldWaiters.within(heldFor) {
		err := s.admitOnce(ctx, request, worker, got, false)
		if c := code(err); c != lockNotAvailable && c != divisionByZero {
			return err
		}
		s.heldWaiters.mark()
	}
	return s.admitOnce(ctx, request, worker, got, true)
}

func (s *Store) admitOnce(ctx context.Context, request *store.ClaimRequest, worker int32, got *dealing, careful bool) error {
	conn, err := s.engine.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	a := &admission{
		Store: s, conn: conn, request: request, worker: worker, careful: careful, got: got,
		limits: map[store.LimitID]*store.Limit{}, known: map[admit.GateID]bool{},
	}
	got.runs, got.dealt = got.runs[:0], 0
	if err = a.run(ctx); err != nil {
		_, _ = conn.Exec(context.WithoutCancel(ctx), queries.Rollback) // one that fails here is closed when it is released
	}
	return err
}

// admission is one under way.
type admission struct {
	*Store

	conn    *pgxpool.Conn
	request *store.ClaimRequest
	worker  int32
	careful bool
	got     *dealing

	input  admit.Input
	limits map[store.LimitID]*store.Limit
	known  map[admit.GateID]bool            // gates in input
	said   map[store.RunID][]store.LimitUse // of waiters that say more than their gate
	lapsed []int64                          // gates with permits of named owners whose time is over
	names  map[admit.GateID]string          // keys of gates that are not known yet
}

func (a *admission) run(ctx context.Context) error {
	gates, err := a.take(ctx)
	if err != nil {
		return err
	}
	if len(gates) == 0 {
		_, err = a.conn.Exec(ctx, queries.Commit)
		return err
	}
	a.said, a.names = map[store.RunID][]store.LimitUse{}, map[admit.GateID]string{}
	a.input.Room = a.request.Limit
	if err := a.read(ctx, gates, admit.Quantum(a.request.Limit, len(gates))+1, true); err != nil {
		return err
	}
	if err := a.readMore(ctx); err != nil {
		return err
	}
	if a.careful {
		if err := a.hold(ctx); err != nil {
			return err
		}
	}
	decision := admit.Decide(&a.input)
	return a.write(ctx, &decision)
}

// take begins the transaction, takes turns, and returns the gates that are ours.
func (a *admission) take(ctx context.Context) (gates []int64, err error) {
	lines, takes := make([]int32, len(a.request.Admissions)), make([]int32, len(a.request.Admissions))
	for i, one := range a.request.Admissions {
		lines[i], takes[i] = one.Line, small(one.Take)
	}
	b := &batch{names: a.Store.names}
	b.add(queries.Begin)
	if a.unpinned {
		b.add(queries.Pin)
	}
	lock, statement := limits(ctx, heldLimit)
	b.add(queries.Guard, lock, statement)
	b.add(queries.Idle)
	b.add(queries.TakeTurns, lines, takes, small(a.request.Limit), micro(admit.BusyAgain)).Query(func(rows pgx.Rows) (err error) {
		gates, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	return gates, a.send(ctx, a.conn, b)
}

// read reads what gates that are locked admit, and the first waiters of their lines.
func (a *admission) read(ctx context.Context, gates []int64, depth int, turns bool) error {
	var ids []int32
	all := false
	for _, gate := range gates {
		a.known[admit.GateID(gate)] = true
		id := admit.LimitOf(admit.GateID(gate))
		if all = all || id == 0; id != 0 && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	lanes := laneNumbers(a.request.Lanes)
	var found []admit.Gate
	b := &batch{names: a.Store.names}
	b.add(queries.ReadLimits, orNone(ids)).Query(a.scanLimits)
	b.add(queries.ReadGates, gates).Query(func(rows pgx.Rows) error { return a.scanGates(rows, &found) })
	b.add(queries.ReadLines, lanes, gates, small(a.request.Limit), small(depth)).Query(a.scanWaiters)
	b.add(queries.ReadLanes, orNone(ids), lanes, all).Query(a.scanLanes)
	b.add(queries.ReadKept, gates).Query(a.scanKept)
	if err := a.send(ctx, a.conn, b); err != nil {
		return err
	}
	slices.SortFunc(found, func(x, y admit.Gate) int { // as they came
		return cmp.Compare(slices.Index(gates, int64(x.ID)), slices.Index(gates, int64(y.ID)))
	})
	for i := range found {
		g := &found[i]
		if g.Limit = a.limits[admit.LimitOf(g.ID)]; turns {
			g.Depth = depth
			if g.Limit != nil && g.Limit.Action() > store.FullWait {
				g.Depth = a.request.Limit + 1
			}
		}
	}
	a.input.Gates = append(a.input.Gates, found...)
	return nil
}

func (a *admission) scanLimits(rows pgx.Rows) error {
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.ReadLimitsRow])
	for i := range found {
		one := toLimit(&found[i])
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
			a.names[g.ID] = admit.KeyOf(g.ID, limitsOf(texts))
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
		if err := rows.Scan(&w.Gate, &w.Lane, &w.DueAt, (*binaryUUID)(&w.Run), &texts); err != nil {
			return err
		}
		if w.DueAt = w.DueAt.UTC(); texts != nil {
			a.said[w.Run] = limitsOf(texts)
		}
		a.input.Waiters = append(a.input.Waiters, w)
	}
	return rows.Err()
}

func (a *admission) scanLanes(rows pgx.Rows) error {
	for rows.Next() {
		var l admit.Lane
		if err := rows.Scan(&l.ID, &l.Priority, &l.Paused); err != nil {
			return err
		}
		l.Ours = slices.Contains(a.request.Lanes, l.ID)
		a.input.Lanes = append(a.input.Lanes, l)
	}
	return rows.Err()
}

func (a *admission) scanKept(rows pgx.Rows) error {
	for rows.Next() {
		var k admit.Kept
		if err := rows.Scan(&k.Gate, &k.Lane, &k.ExpiresAt); err != nil {
			return err
		}
		k.ExpiresAt = k.ExpiresAt.UTC()
		a.input.Kept = append(a.input.Kept, k)
	}
	return rows.Err()
}

// readMore reads what only some limits and runs need: the other gates of runs, which
// are locked first, refunds, the keys of dynamic windows, owners, and who executes.
func (a *admission) readMore(ctx context.Context) error {
	others, err := a.uses(ctx)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		if err := a.readOthers(ctx, others); err != nil {
			return err
		}
	}
	b := &batch{names: a.Store.names}
	a.addRates(b)
	a.addOwners(b)
	a.addExecuting(b)
	if b.Len() == 0 {
		return nil
	}
	return a.send(ctx, a.conn, b)
}

// uses gives the waiters that say more than their gate their uses, and returns the
// gates that are not read yet.
func (a *admission) uses(ctx context.Context) (others []int64, err error) {
	set := limitSet{}
	for _, said := range a.said {
		for i := range said {
			set[store.LimitName(said[i].Limit)] = nil
		}
	}
	if len(set) == 0 {
		return nil, nil
	}
	if err := a.findLimits(ctx, a.conn, set, true); err != nil {
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

// readOthers locks further gates, and reads those that are free.
func (a *admission) readOthers(ctx context.Context, gates []int64) error {
	var free []int64
	b := &batch{names: a.Store.names}
	b.add(queries.LockGates, gates).Query(func(rows pgx.Rows) (err error) {
		free, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err := a.send(ctx, a.conn, b); err != nil {
		return err
	}
	for _, gate := range gates {
		if !slices.Contains(free, gate) {
			a.known[admit.GateID(gate)] = true
			a.input.Gates = append(a.input.Gates, admit.Gate{ID: admit.GateID(gate), Busy: true})
		}
	}
	if len(free) == 0 {
		return nil
	}
	if err := a.read(ctx, free, 1, false); err != nil {
		return err
	}
	_, err := a.uses(ctx) // of those that wait there; their further gates are left for another admission
	return err
}

// addRates reads the refunds of limits of starts, and the live keys of dynamic windows.
func (a *admission) addRates(b *batch) {
	var rates []int64
	at := map[admit.GateID]int{}
	for i := range a.input.Gates {
		g := &a.input.Gates[i]
		if g.Busy || g.Limit == nil || !g.Limit.Rate() {
			continue
		}
		rates, at[g.ID] = append(rates, int64(g.ID)), i
		if g.Limit.Kind == store.LimitDynamicWindow && admit.Parent(g.ID) == g.ID {
			first, last := gatesOf(g.Limit.ID)
			b.add(queries.LiveKeys, first, last, a.input.Now.Add(-g.Limit.Period).UnixMicro(), small(store.MaxLimitKeys+1)).Query(func(rows pgx.Rows) error {
				live, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.LiveKeysRow])
				for _, one := range live {
					g.Live = append(g.Live, admit.LiveKey{Gate: admit.GateID(one.Gate), LastAt: one.LastAt})
				}
				return err
			})
		}
	}
	if len(rates) == 0 {
		return
	}
	b.add(queries.TakeRefunds, rates).Query(func(rows pgx.Rows) error {
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

// addOwners asks which permits those have that may have some already.
func (a *admission) addOwners(b *batch) {
	asked := map[owned][]*admit.Use{}
	var gates []int64
	var owners uuidArray
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
	b.add(queries.Owners, gates, owners).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.OwnersRow])
		for _, one := range found {
			for _, use := range asked[owned{admit.GateID(one.Gate), one.Owner}] {
				use.Has = true
			}
		}
		return err
	})
}

// executingMost bounds the runs that are looked at to be cancelled for newer ones.
const executingMost = 1000

// addExecuting reads who executes, where newer runs may have older ones cancelled.
func (a *admission) addExecuting(b *batch) {
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
	b.add(queries.Executing, gates, small(executingMost)).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.ExecutingRow])
		for _, one := range found {
			g := &a.input.Gates[at[one.Gate]]
			g.Executing = append(g.Executing, admit.Executing{Run: one.ID, Weight: int(one.Weight), Cancelled: one.Cancelled})
		}
		return err
	})
}

// hold locks the candidates that others do not have in hand.
func (a *admission) hold(ctx context.Context) error {
	var c candidates
	for i := range a.input.Waiters {
		if w := &a.input.Waiters[i]; slices.Contains(a.request.Lanes, w.Lane) {
			c.add(w)
		}
	}
	free := map[store.RunID]struct{}{}
	b := &batch{names: a.Store.names}
	b.add(queries.FreeWaiters, c.gates, c.lanes, c.dues, c.ids).Query(scanInto(free))
	if len(c.ids) == 0 {
		return nil
	}
	if err := a.send(ctx, a.conn, b); err != nil {
		return err
	}
	for i := range a.input.Waiters {
		w := &a.input.Waiters[i]
		_, isFree := free[w.Run]
		w.Held = !isFree && slices.Contains(a.request.Lanes, w.Lane)
	}
	return nil
}

// candidates are rows of waiting as parameters.
type candidates struct {
	gates []int64
	lanes []int32
	dues  []time.Time
	ids   uuidArray
}

func (c *candidates) add(w *admit.Waiter) { c.addAt(w, w.Gate, w.DueAt) }

func (c *candidates) addAt(w *admit.Waiter, gate admit.GateID, due time.Time) {
	c.gates, c.lanes = append(c.gates, int64(gate)), append(c.lanes, w.Lane)
	c.dues, c.ids = append(c.dues, due), append(c.ids, w.Run)
}

// write writes what was decided and ends the transaction.
func (a *admission) write(ctx context.Context, d *admit.Decision) error {
	b := &batch{names: a.Store.names}
	a.addLeavers(b, d)
	a.addRefused(b, d)
	a.addAsked(b, d)
	if len(a.lapsed) > 0 {
		b.add(queries.EndLapsed, a.lapsed)
	}
	gates := a.addPermits(b, d)
	a.addState(b, d)
	if n := len(d.Admitted); n > 0 {
		ids := make(uuidArray, n)
		for i := range d.Admitted {
			ids[i] = d.Admitted[i].Run
		}
		b.add(queries.StartAdmitted, uuid.UUID(a.request.Claim), a.worker, a.input.Now, ids, micro(a.request.Duration), a.request.Alone, gates, strictly(d)).Query(a.got.scan)
	}
	b.add(queries.Commit)
	if err := a.send(ctx, a.conn, b); err != nil {
		return err
	}
	a.order(d)
	if len(d.Cancel) > 0 {
		a.hint()
	}
	return nil
}

// order sorts the runs as they were admitted.
func (a *admission) order(d *admit.Decision) {
	place := make(map[store.RunID]int, len(d.Admitted))
	for i := range d.Admitted {
		place[d.Admitted[i].Run] = i
	}
	slices.SortFunc(a.got.runs, func(x, y store.ClaimedRun) int { return cmp.Compare(place[x.ID], place[y.ID]) })
}

// addLeavers takes waiters out of their lines, and puts those that move into others.
func (a *admission) addLeavers(b *batch, d *admit.Decision) {
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
	b.add(queries.LeaveLines, left.ids, left.gates, left.lanes, left.dues)
	if len(moved.ids) > 0 {
		b.add(queries.MoveWaiters, moved.gates, moved.lanes, moved.dues, moved.ids)
	}
}

// addRefused ends runs that may not wait, and puts others off.
func (a *admission) addRefused(b *batch, d *admit.Decision) {
	var later candidates
	var over uuidArray
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
		b.add(queries.MoveWaiters, later.gates, later.lanes, later.dues, later.ids)
		b.add(queries.PostponeRuns, jsonText(dues), later.ids)
	}
	if len(over) > 0 {
		b.add(queries.RefuseRuns, jsonText(reasons), jsonText(states), over)
	}
}

// jsonText writes texts and numbers.
func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil { // cannot happen
		return "{}"
	}
	return string(text)
}

// addAsked asks runs to end for newer ones.
func (a *admission) addAsked(b *batch, d *admit.Decision) {
	for _, id := range d.Cancel {
		name := ""
		for i := range a.input.Gates {
			for _, one := range a.input.Gates[i].Executing {
				if one.Run == id {
					name = a.input.Gates[i].Limit.Name
				}
			}
		}
		b.add(queries.AskOldest, uuidArray{id}, rules.Oldest(name))
	}
}

// addPermits writes permits, and returns the gates in which the claim has its own.
func (a *admission) addPermits(b *batch, d *admit.Decision) (own []int64) {
	own = []int64{}
	var p queries.InsertPermitsParams
	var owners uuidArray
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
		p.Gates, owners, expiries = append(p.Gates, int64(one.Gate)), append(owners, one.Owner), append(expiries, timeOrNull(one.ExpiresAt))
		p.Places, p.Untils = append(p.Places, small(one.Weight)), append(p.Untils, string(rune(one.Until)))
		p.Runs = append(p.Runs, idArray(one.Runs))
	}
	if len(sorted) > 0 {
		b.add(queries.InsertPermits, p.Gates, owners, expiries, p.Places, p.Untils, p.Runs)
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
func (a *admission) addState(b *batch, d *admit.Decision) {
	addTurns(b, queries.InsertTurns, d.Turns)
	addTurns(b, queries.AddTurns, d.Due)
	if len(d.Keep) > 0 {
		var k queries.KeepParams
		for _, one := range d.Keep {
			k.Gates, k.Lanes, k.Expiries = append(k.Gates, int64(one.Gate)), append(k.Lanes, one.Lane), append(k.Expiries, one.ExpiresAt)
		}
		b.add(queries.Keep, k.Gates, k.Lanes, k.Expiries)
	}
	if len(d.Unkeep) > 0 {
		var k queries.UnkeepParams
		for _, one := range d.Unkeep {
			k.Gates, k.Lanes = append(k.Gates, int64(one.Gate)), append(k.Lanes, one.Lane)
		}
		b.add(queries.Unkeep, k.Gates, k.Lanes)
	}
	addRates(b, d.Rates)
	if len(a.names) > 0 {
		var n queries.NameGatesParams
		for gate, key := range a.names {
			n.Gates, n.Keys = append(n.Gates, int64(gate)), append(n.Keys, key)
		}
		b.add(queries.NameGates, n.Gates, n.Keys)
	}
}

func addTurns(b *batch, statement string, turns []admit.Turn) {
	if len(turns) == 0 {
		return
	}
	var t queries.AddTurnsParams
	for _, one := range turns {
		t.Lines, t.Dues, t.Gates = append(t.Lines, one.Line), append(t.Dues, one.DueAt), append(t.Gates, int64(one.Gate))
	}
	b.add(statement, t.Lines, t.Dues, t.Gates)
}

func addRates(b *batch, rates []admit.GateRate) {
	if len(rates) == 0 {
		return
	}
	var r queries.WriteRatesParams
	for i := range rates {
		one := &rates[i].Rate
		r.Gates, r.Tats = append(r.Gates, int64(rates[i].Gate)), append(r.Tats, one.TAT)
		r.BucketAts, r.BucketNs = append(r.BucketAts, numberArray(one.At)), append(r.BucketNs, numberArray(one.Count))
		r.Sinces, r.LastAts = append(r.Sinces, one.Since), append(r.LastAts, one.LastAt)
	}
	b.add(queries.WriteRates, r.Gates, r.Tats, r.BucketAts, r.BucketNs, r.Sinces, r.LastAts)
}

// numberArray writes an array of numbers as PostgreSQL reads it from text.
func numberArray[N int32 | int64](numbers []N) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, n := range numbers {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(int64(n), 10))
	}
	b.WriteByte('}')
	return b.String()
}

// gatesOf is the range of the gates of a limit.
func gatesOf(id store.LimitID) (first, last int64) {
	f, l := admit.GateRange(id)
	return int64(f), int64(l)
}

func laneNumbers(lanes []store.LaneID) []int32 { return orNone(lanes) }

// orNone makes a list that is never nil.
func orNone(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}
