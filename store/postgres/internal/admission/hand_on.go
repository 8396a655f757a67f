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
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// HandOn sends the settles that wait for a claim of limited runs, and starts runs in the places
// that they free. Without runs and without an error the claim is still to be made.
func (m *Admitter) HandOn(ctx context.Context, request *store.ClaimRequest, worker int32, got *Dealing) error {
	got.Runs, got.Dealt = got.Runs[:0], 0
	if request.Alone || m.settler.SettlesThatWait() == 0 {
		return nil
	}
	taken := m.settler.TakeHandOns()
	if taken.None() {
		return nil
	}
	lines, takes := asked(request)
	own := slices.DeleteFunc(slices.Clone(request.Lanes), func(lane store.LaneID) bool { return lane <= 0 })
	marks := m.marks.of(own)
	var on handedOn
	b := m.db.Hot(ctx)
	taken.AddAll(b)
	b.Add(queries.LockFreed, lines, takes)
	b.Add(queries.HandOn, uuid.UUID(request.Claim), worker, marks.gates, marks.lanes, marks.dues, laneNumbers(own),
		conn.Small(request.Limit), lines, int32(spareTurns), conn.Micro(request.Duration)).Query(func(rows pgx.Rows) error { return on.scan(rows, got) })
	var left bool
	b.Add(queries.TurnsLeft, lines, conn.Micro(store.WakeAhead)).QueryRow(func(row pgx.Row) error { return row.Scan(&left) })
	began := lease.Elapsed()
	err := m.db.Send(ctx, m.db.Engine, b)
	var handed []store.LineID
	if len(got.Runs) < request.Limit && !left {
		handed = lines
	}
	taken.Answer(err, len(got.Runs), handed)
	switch conn.Code(err) {
	case "":
	case conn.UniqueViolation: // the claim was granted before
		return err
	default:
		got.Runs, got.Dealt = got.Runs[:0], 0
		return nil
	}
	if err != nil || len(got.Runs) == 0 {
		return err
	}
	if request.Exhausted != nil {
		*request.Exhausted = !left
	}
	m.handedOn(request, &on, own, &marks, lease.Elapsed()-began, got)
	return nil
}

// handedOn is what HandOn says of each run besides: in which gate it has started, and whether
// the line of that continues.
type handedOn struct {
	gates []int64
	deep  []bool
}

func (h *handedOn) scan(rows pgx.Rows, got *Dealing) error {
	h.gates, h.deep = h.gates[:0], h.deep[:0]
	var gate int64
	var deep bool
	return got.scanEach(rows, func() { h.gates, h.deep = append(h.gates, gate), append(h.deep, deep) }, &gate, &deep)
}

// handedOn counts the runs that have started, and remembers where their lines begin now.
func (m *Admitter) handedOn(request *store.ClaimRequest, on *handedOn, own []store.LaneID, used *markArgs, took time.Duration, got *Dealing) {
	examined, lines := map[int64]bool{}, map[lineAt]*lineRead{}
	var more []store.LineID
	for i := range got.Runs {
		run, gate := &got.Runs[i], on.gates[i]
		m.Tally.Admitted(admit.GateID(gate))
		at := lineAt{gate, run.Lane}
		if lines[at] == nil {
			lines[at] = &lineRead{deep: on.deep[i]}
			if on.deep[i] {
				more = append(more, admit.LimitLine(admit.LimitOf(admit.GateID(gate))))
			}
		}
		lines[at].add(run.DueAt, true)
		examined[gate] = true
	}
	if len(lines) <= markMost {
		m.marks.learn(examined, own, lines, used, took)
	}
	if len(more) > 0 {
		m.settler.ExpectHandOn(request.Claim, slices.Compact(slices.Sorted(slices.Values(more))))
	}
	slices.SortFunc(got.Runs, func(x, y store.ClaimedRun) int {
		return cmp.Or(x.DueAt.Compare(y.DueAt), bytes.Compare(x.ID[:], y.ID[:]))
	})
}

// expectHandOn remembers that places of the claim can be handed on: runs have stayed in line
// that say no more than their gate.
func (a *admission) expectHandOn(d *admit.Decision) {
	from, _ := asked(a.request)
	a.settler.DecidedOn(from)
	if len(d.Admitted) == 0 || len(d.Admitted) == len(a.input.Waiters) || len(a.said)+len(a.caps) > 0 {
		return
	}
	var lines []store.LineID
	for i := range d.Admitted {
		id := admit.LimitOf(d.Admitted[i].Gate)
		if limit := a.limits[id]; limit != nil && !limit.Rate() && limit.Action() == store.FullWait && !slices.Contains(lines, admit.LimitLine(id)) {
			lines = append(lines, admit.LimitLine(id))
		}
	}
	if len(lines) > 0 {
		a.settler.ExpectHandOn(a.request.Claim, lines)
	}
}
