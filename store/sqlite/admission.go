package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// admitting is the claim of limited runs, in one write transaction.
type admitting struct {
	*change

	request *store.ClaimRequest
	known   *knownLimits
	input   admit.Input
	waiters map[store.RunID]queries.ListWaitingRow
	uses    map[store.RunID][]admit.Use
	lanes   map[store.LaneID]bool
	caps    map[store.LaneID]string   // the caps of lanes on capped queues
	oldest  map[store.RunID]executing // runs that may be cancelled
}

// executing is a run with a permit of a limit, under a claim.
type executing struct {
	limit string
	claim []byte
}

// admission takes turns, and admits runs where they say that there may be room.
func (c *change) admission(ctx context.Context, request *store.ClaimRequest) (runs []store.ClaimedRun, seqs []int64, d admit.Decision, err error) {
	gates, err := c.takeTurns(ctx, request.Admissions)
	if err != nil || len(gates) == 0 {
		return nil, nil, d, err
	}
	a := admitting{change: c, request: request, input: admit.Input{Now: instant(c.now), Room: request.Limit},
		waiters: map[store.RunID]queries.ListWaitingRow{}, uses: map[store.RunID][]admit.Use{}, lanes: map[store.LaneID]bool{},
		caps: map[store.LaneID]string{}, oldest: map[store.RunID]executing{}}
	if a.known, err = c.allLimits(ctx); err != nil {
		return nil, nil, d, err
	}
	if err := a.read(ctx, gates); err != nil {
		return nil, nil, d, err
	}
	d = admit.Decide(&a.input)
	runs, seqs, err = a.write(ctx, &d)
	return runs, seqs, d, err
}

// takeTurns takes turns and returns their gates, by the age of the turns.
func (c *change) takeTurns(ctx context.Context, admissions []store.Admission) (gates []admit.GateID, err error) {
	seen := map[int64]bool{}
	for _, one := range admissions {
		turns, err := c.ListTurns(ctx, queries.ListTurnsParams{Line: int64(one.Line), Now: c.now, Most: int64(one.Take)})
		if err != nil {
			return nil, err
		}
		if len(turns) == 0 {
			continue
		}
		last := turns[len(turns)-1]
		if err := c.DeleteTurns(ctx, queries.DeleteTurnsParams{Line: int64(one.Line), DueAt: last.DueAt, Gate: last.Gate}); err != nil {
			return nil, err
		}
		answered := make([]int64, len(turns))
		for i, turn := range turns {
			if answered[i] = turn.Gate; !seen[turn.Gate] {
				seen[turn.Gate] = true
				gates = append(gates, admit.GateID(turn.Gate))
			}
		}
		if len(turns) < one.Take {
			continue // no more are due
		}
		if _, err := c.spare.exec(ctx, answered, int64(one.Line), c.now); err != nil {
			return nil, err
		}
	}
	return gates, nil
}

// read reads the gates with the first waiters of their lines, and the other gates
// of those waiters.
func (a *admitting) read(ctx context.Context, gates []admit.GateID) error {
	turns := len(gates)
	if err := a.readRounds(ctx, gates); err != nil {
		return err
	}
	for _, gate := range gates {
		if err := a.readLines(ctx, gate, turns); err != nil {
			return err
		}
	}
	others, cancels := a.input.OtherGates(gates)
	for _, gate := range others {
		if err := a.readEntries(ctx, gate); err != nil {
			return err
		}
	}
	for i, gate := range append(gates, others...) {
		read, err := a.readGate(ctx, gate, cancels)
		if err != nil {
			return err
		}
		if i < turns {
			read.Depth = admit.Depth(a.request.Limit, turns, a.action(gate))
			read.Entries = admit.Entries(a.request.Limit, turns)
		}
		a.input.Gates = append(a.input.Gates, read)
	}
	return nil
}

// action is what happens to runs that the gate refuses, if they say nothing else.
func (a *admitting) action(gate admit.GateID) store.LimitAction {
	if limit := a.known.made[admit.LimitOf(gate)]; limit != nil && !admit.IsSet(gate) {
		return limit.Action()
	}
	return store.FullWait
}

// readLines reads the first due waiters of each lane of a gate.
func (a *admitting) readLines(ctx context.Context, gate admit.GateID, gates int) error {
	kept, err := a.ListKept(ctx, queries.ListKeptParams{Gate: int64(gate)})
	if err != nil {
		return err
	}
	for _, row := range kept {
		a.input.Kept = append(a.input.Kept, admit.Kept{Gate: gate, Lane: store.LaneID(row.Lane), ExpiresAt: instant(row.ExpiresAt)})
	}
	lanes, err := a.lanesOf(ctx, gate)
	if err != nil {
		return err
	}
	for _, lane := range lanes {
		if a.elsewhere(gate, lane) {
			continue
		}
		depth := admit.DepthOfOthers(a.request.Limit, a.request.Limit)
		if slices.Contains(a.request.Lanes, lane) {
			depth = admit.Depth(a.request.Limit, gates, a.action(gate))
		}
		if err := a.readLine(ctx, gate, lane, depth); err != nil {
			return err
		}
	}
	return nil
}

// readLine reads the first due waiters of a line.
func (a *admitting) readLine(ctx context.Context, gate admit.GateID, lane store.LaneID, depth int) error {
	rows, err := a.ListWaiting(ctx, queries.ListWaitingParams{Gate: int64(gate), Lane: int64(lane), Now: a.now, Most: int64(depth)})
	for i := 0; err == nil && i < len(rows); i++ {
		err = a.readWaiter(ctx, gate, lane, rows[i])
	}
	return err
}

// lanesOf are the lanes in whose lines of a gate runs may wait. Of runs that have
// all their permits those of the worker are enough: none is in another's way.
func (a *admitting) lanesOf(ctx context.Context, gate admit.GateID) (lanes []store.LaneID, err error) {
	add := func(lane store.LaneID, priority int64, paused bool, most int64, queue string) {
		lanes = append(lanes, lane)
		if !a.lanes[lane] {
			a.lanes[lane] = true
			one := admit.Lane{ID: lane, Priority: int(priority), Ours: slices.Contains(a.request.Lanes, lane), Paused: paused}
			if most != 0 {
				a.caps[lane] = store.QueueCap(queue)
				if limit := a.known.find(a.caps[lane]); limit != nil {
					one.Cap = admit.Unkeyed(limit.ID)
				}
			}
			a.input.Lanes = append(a.input.Lanes, one)
		}
	}
	if gate != admit.AllPermits {
		rows, err := a.ListLimitLanes(ctx, queries.ListLimitLanesParams{LimitID: int64(admit.LimitOf(gate))})
		for _, row := range rows {
			add(store.LaneID(row.Lane), row.Priority, row.Paused != 0, row.Cap, row.Queue)
		}
		return lanes, err
	}
	for _, lane := range a.request.Lanes {
		row, err := a.FindLaneOf(ctx, queries.FindLaneOfParams{Lane: int64(lane)})
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, err
		}
		add(lane, row.Priority, row.Paused != 0, row.Cap, row.Queue)
	}
	return lanes, nil
}

// readable reports whether a run's limits can be parsed, which a row written by hand may prevent.
func readable(text *string) bool {
	_, err := limitsOf(text)
	return err == nil
}

// readWaiter notes one that waits. A row that names no pending run, which only a
// change by hand can leave, goes.
func (a *admitting) readWaiter(ctx context.Context, gate admit.GateID, lane store.LaneID, row queries.ListWaitingRow) error {
	if store.State(row.State) != store.Pending || row.Limits == nil {
		a.undealt++
		_, err := a.DeleteWaiting(ctx, queries.DeleteWaitingParams{Gate: int64(gate), Lane: int64(lane), DueAt: row.DueAt, RunID: row.RunID})
		return err
	}
	id := store.RunID(row.RunID)
	if !readable(row.Limits) {
		a.input.Waiters = append(a.input.Waiters, admit.Waiter{Run: id, Gate: gate, Lane: lane, DueAt: instant(row.DueAt), Unread: true})
		return nil
	}
	if limit, capped := a.caps[lane]; capped && slices.Contains(a.request.Lanes, lane) {
		if err := a.adopt(ctx, lane, limit, &row); err != nil {
			return err
		}
	}
	uses, err := a.usesOf(ctx, row.RunID, row.Limits)
	if err != nil {
		return err
	}
	w := admit.Waiter{Run: id, Gate: gate, Lane: lane, DueAt: instant(row.DueAt)}
	if !admit.Simple(uses) || gate == admit.AllPermits || admit.IsSet(gate) {
		w.Uses = uses
	}
	a.waiters[id], a.uses[id] = row, uses
	a.input.Waiters = append(a.input.Waiters, w)
	return nil
}

// readGate reads what a gate admits.
func (a *admitting) readGate(ctx context.Context, gate admit.GateID, cancels bool) (admit.Gate, error) {
	read, err := a.gateNow(ctx, gate)
	if err != nil || read.Limit == nil {
		return read, err
	}
	if cancels || read.Limit.Action() == store.FullCancelOldest {
		rows, err := a.ListExecuting(ctx, queries.ListExecutingParams{Gate: int64(gate), Most: int64(read.Used)})
		if err != nil {
			return read, err
		}
		for _, row := range rows {
			id := store.RunID(row.RunID)
			read.Executing = append(read.Executing, admit.Executing{Run: id, Weight: int(row.Weight), Cancelled: row.Cancelled != 0})
			a.oldest[id] = executing{read.Limit.Name, row.ClaimID}
		}
	}
	return read, nil
}

// gateNow reads what a gate admits, and forgets permits that have expired. Of a
// limit of starts it takes the refunds: the caller saves the rate.
func (c *change) gateNow(ctx context.Context, gate admit.GateID) (admit.Gate, error) {
	read := admit.Gate{ID: gate}
	if gate == admit.AllPermits || admit.IsSet(gate) {
		return read, nil
	}
	known, err := c.allLimits(ctx)
	if err != nil {
		return read, err
	}
	read.Limit = known.made[admit.LimitOf(gate)]
	if read.Limit == nil {
		return read, fmt.Errorf("gate %d: there is no limit %d", gate, admit.LimitOf(gate))
	}
	row, err := c.FindGate(ctx, queries.FindGateParams{Gate: int64(gate)})
	if unlessNone(err) != nil {
		return read, err
	}
	if row.NotBefore > 0 {
		read.NotBefore = instant(row.NotBefore)
	}
	if !read.Limit.Rate() {
		if err := c.DeleteExpired(ctx, queries.DeleteExpiredParams{Gate: int64(gate), Now: c.now}); err != nil {
			return read, err
		}
		use, err := c.GateUse(ctx, queries.GateUseParams{Gate: int64(gate), Now: c.now})
		if read.Used = int(use.Used); use.FreesAt > 0 {
			read.FreesAt = instant(use.FreesAt)
		}
		return read, err
	}
	if read.Rate, err = rateOf(&row); err != nil {
		return read, err
	}
	refunds, err := c.TakeRefunds(ctx, queries.TakeRefundsParams{Gate: int64(gate)})
	for _, back := range refunds {
		read.Refunds = append(read.Refunds, admit.Refund{Weight: int(back.Weight), ChargedAt: instant(back.ChargedAt)})
	}
	if err != nil || read.Limit.Kind != store.LimitDynamicWindow || admit.Parent(gate) != gate {
		return read, err
	}
	first, last := admit.GateRange(read.Limit.ID)
	live, err := c.ListLiveKeys(ctx, queries.ListLiveKeysParams{First: int64(first), Last: int64(last), Parent: int64(gate),
		After: c.now - read.Limit.Period.Microseconds(), Most: store.MaxLimitKeys + 1})
	for _, key := range live {
		read.Live = append(read.Live, admit.LiveKey{Gate: admit.GateID(key.Gate), LastAt: key.LastAt})
	}
	if err == nil {
		read.Waits, err = c.keysInRound(ctx, gate)
	}
	return read, err
}

// rateOf reads what a gate has admitted. Parts of a window are pairs of an instant
// and a count.
func rateOf(row *queries.Gate) (admit.Rate, error) {
	rate := admit.Rate{TAT: row.Tat, Since: row.Since, LastAt: row.LastAt}
	if row.Parts == nil {
		return rate, nil
	}
	var parts [][2]int64
	err := json.Unmarshal([]byte(*row.Parts), &parts)
	for _, part := range parts {
		rate.At, rate.Count = append(rate.At, part[0]), append(rate.Count, int32(part[1])) //nolint:gosec // at most store.MaxLimit
	}
	return rate, err
}
