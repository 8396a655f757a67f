package steps

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// round is one release: what was taken, what is known of it, and what is to be written.
type round struct {
	s  *Steps
	tx pgx.Tx

	places   map[uuid.UUID]place
	awaiting map[uuid.UUID]bool           // it has what it waits for, an input or its children
	edges    map[uuid.UUID][]rules.Judged // of dependents that were never executed

	back   noticed
	free   conn.UUIDs
	met    edgeColumns
	never  map[string]*placed // runs to be cancelled, by reason
	doomed map[uuid.UUID]bool // these: they are not made due, whatever else happened to them
	asked  conn.UUIDs         // running children of cancelled parents

	due       []released
	ended     int
	freed     []store.LineID // lines with turns for places that cancelled runs have freed
	requested bool           // a cancellation was
}

// place is a run as a release found it.
type place struct {
	state   store.State
	locked  bool
	lane    int32
	dueAt   time.Time
	limited bool
}

// placed are pending runs as the arrays of a statement, those of ready and those of waiting.
type placed struct{ ready, waiting placeColumns }

type placeColumns struct {
	lanes []int32
	dues  []time.Time
	ids   conn.UUIDs
}

type edgeColumns struct {
	waiters, sources conn.UUIDs
	wants            []int16
}

// do looks at the runs of notices, and writes what follows. It returns after which pause the first
// has to be looked at again; negative: none has.
func (r *round) do(ctx context.Context, taken []notice) (again time.Duration, err error) {
	looks, err := r.expand(ctx, taken)
	if err != nil {
		return -1, err
	}
	if err := r.lock(ctx, looks); err != nil {
		return -1, err
	}
	unseen, err := r.awaitEnds(ctx)
	if err != nil {
		return -1, err
	}
	for i := range looks {
		if looks[i].kind == rules.NoticeOrphan {
			r.orphaned(&looks[i])
		}
	}
	for i := range looks {
		if looks[i].kind != rules.NoticeOrphan && !r.doomed[looks[i].run] {
			r.decide(&looks[i], unseen)
		}
	}
	if err := r.write(ctx); err != nil {
		return -1, err
	}
	if len(r.back.pauses) == 0 {
		return -1, nil
	}
	return conn.FromMicro(slices.Min(r.back.pauses)), nil
}

// report says what the round has done, once it is committed.
func (r *round) report(ctx context.Context, result *store.ReleaseResult) {
	for _, lane := range r.due {
		result.Released += lane.runs
		r.s.wake.Released(lane.lane, lane.limited, lane.runs)
	}
	result.Ended += r.ended
	r.s.wake.Freed(r.freed)
	if r.requested {
		r.s.wake.CancelRequested(ctx)
	}
}

// expand replaces notices of ended runs by looks at those that wait for them. Where one has more
// waiters than a round looks at, its notice is put back with a cursor.
func (r *round) expand(ctx context.Context, taken []notice) (looks []notice, err error) {
	b := r.s.db.NewBatch()
	seen := map[uuid.UUID]bool{}
	for _, n := range taken {
		if n.kind != rules.NoticeEnded {
			looks = append(looks, n)
			continue
		}
		b.Add(queries.WaitersOf, n.run, n.cursor, rules.MostWaiters).Query(func(rows pgx.Rows) error {
			found := 0
			last := n
			err := conn.ScanIDs(rows, func(id uuid.UUID) {
				found++
				last.cursor = id
				if !seen[id] {
					seen[id] = true
					looks = append(looks, notice{named: named{run: id}, kind: rules.NoticeLook})
				}
			})
			if found == rules.MostWaiters {
				r.back.put(last, 0)
			}
			return err
		})
	}
	if b.Len() == 0 {
		return looks, nil
	}
	return looks, r.s.db.Send(ctx, r.tx, b)
}

// lock locks the pending ones of the runs, and reads in later statements what they wait for.
func (r *round) lock(ctx context.Context, looks []notice) error {
	var ids conn.UUIDs
	var names []string
	for i := range looks {
		ids, names = append(ids, looks[i].run), append(names, looks[i].name)
	}
	r.places, r.awaiting, r.edges = map[uuid.UUID]place{}, map[uuid.UUID]bool{}, map[uuid.UUID][]rules.Judged{}
	await := func(rows pgx.Rows) error { return conn.ScanIDs(rows, func(id uuid.UUID) { r.awaiting[id] = true }) }
	b := r.s.db.NewBatch()
	b.Add(queries.LockNoticed, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id uuid.UUID
			var p place
			if err := rows.Scan(&id, &p.state, &p.locked, &p.lane, &p.dueAt, &p.limited); err != nil {
				return err
			}
			r.places[id] = p
		}
		return rows.Err()
	})
	b.Add(queries.Awaiting, ids, names).Query(await)
	if slices.ContainsFunc(looks, func(n notice) bool { return n.kind == rules.NoticeLook }) {
		b.Add(queries.AwaitingChildren, ids).Query(await)
		b.Add(queries.EdgesOfWaiters, ids).Query(r.scanEdges)
	}
	return r.s.db.Send(ctx, r.tx, b)
}

func (r *round) scanEdges(rows pgx.Rows) error {
	for rows.Next() {
		var edge rules.Judged
		var anyOf, state int16
		if err := rows.Scan(&edge.Waiter, &edge.Source, &edge.Want, &anyOf, &edge.Met, &state, &edge.Noted); err != nil {
			return err
		}
		edge.AnyOf, edge.State, edge.Found = int(anyOf), store.State(state), state >= 0
		edge.Judge()
		r.edges[edge.Waiter] = append(r.edges[edge.Waiter], edge)
	}
	return rows.Err()
}

// awaitEnds marks the sources of dependents: their ends leave notices, and retention keeps them.
// It returns those whose ends are still to decide and may be missed, as another transaction has
// them or has just ended them.
func (r *round) awaitEnds(ctx context.Context) (unseen map[uuid.UUID]bool, err error) {
	unseen = map[uuid.UUID]bool{}
	var ids conn.UUIDs
	for waiter, edges := range r.edges {
		if !r.places[waiter].locked {
			continue
		}
		for i := range edges {
			if edge := &edges[i]; edge.Found && !edge.Noted {
				unseen[edge.Source] = unseen[edge.Source] || edge.Open()
				ids = append(ids, edge.Source)
			}
		}
	}
	if len(ids) == 0 {
		return unseen, nil
	}
	b := r.s.db.NewBatch()
	b.Add(queries.AwaitEnds, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id uuid.UUID
			var state store.State
			if err := rows.Scan(&id, &state); err != nil {
				return err
			}
			if state == store.Dead || !state.Terminal() { // its end, if one comes, leaves a notice
				delete(unseen, id)
			}
		}
		return rows.Err()
	})
	return unseen, r.s.db.Send(ctx, r.tx, b)
}

// orphaned says what becomes of a child whose parent was cancelled.
func (r *round) orphaned(n *notice) {
	p, found := r.places[n.run]
	switch {
	case !found || p.state.Terminal():
	case p.state == store.Running:
		r.asked = append(r.asked, n.run)
	case p.locked:
		r.cancel(n.run, rules.ParentCancelled)
	default:
		r.back.add(*n)
	}
}

// decide says what becomes of the run of another notice.
func (r *round) decide(n *notice, unseen map[uuid.UUID]bool) {
	p, found := r.places[n.run]
	switch {
	case !found || p.state.Terminal():
	case p.locked && r.awaiting[n.run]:
		r.free = append(r.free, n.run)
	case p.locked:
		r.judge(n, unseen)
	case !n.look:
		r.back.add(*n)
	}
}

// judge decides about a pending run by its conditions. One that has none of them reads what it
// waits for when it is executed next.
func (r *round) judge(n *notice, unseen map[uuid.UUID]bool) {
	edges := r.edges[n.run]
	if len(edges) == 0 || n.kind != rules.NoticeLook {
		return
	}
	for i := range edges {
		if edge := &edges[i]; edge.Fate == rules.Met && !edge.Met {
			r.met.waiters, r.met.sources = append(r.met.waiters, edge.Waiter), append(r.met.sources, edge.Source)
			r.met.wants = append(r.met.wants, int16(edge.Want))
		}
	}
	switch judgement := rules.JudgeDependent(edges); {
	case judgement.Never != "":
		r.cancel(n.run, judgement.Never)
	case judgement.Free:
		r.free = append(r.free, n.run)
	case slices.ContainsFunc(edges, func(edge rules.Judged) bool { return edge.Open() && unseen[edge.Source] }):
		r.back.add(*n)
	}
}

// cancel has a locked run cancelled.
func (r *round) cancel(id uuid.UUID, reason string) {
	if r.never == nil {
		r.never, r.doomed = map[string]*placed{}, map[uuid.UUID]bool{}
	}
	r.doomed[id] = true
	if r.never[reason] == nil {
		r.never[reason] = &placed{}
	}
	p := r.places[id]
	to := &r.never[reason].ready
	if p.limited {
		to = &r.never[reason].waiting
	}
	to.lanes, to.dues, to.ids = append(to.lanes, p.lane), append(to.dues, p.dueAt), append(to.ids, id)
}

// write writes what was decided.
func (r *round) write(ctx context.Context) error {
	b := r.s.db.NewBatch()
	if len(r.met.waiters) > 0 {
		b.Add(queries.MeetEdges, r.met.waiters, r.met.sources, r.met.wants)
	}
	if len(r.free) > 0 {
		b.Add(queries.ReleaseReady, r.free).Query(scanReleased(&r.due, false))
		b.Add(queries.ReleaseWaiting, r.free).Query(scanReleased(&r.due, true))
	}
	for reason, runs := range r.never {
		if c := &runs.ready; len(c.ids) > 0 {
			b.Add(queries.CancelPending, c.lanes, c.dues, c.ids, reason, "", "", false).Query(r.cancelled)
		}
		if c := &runs.waiting; len(c.ids) > 0 {
			b.Add(queries.CancelWaiting, c.lanes, c.dues, c.ids, reason, "", "", false).Query(r.cancelledWaiting)
		}
	}
	if len(r.asked) > 0 {
		b.Add(queries.RequestCancels, r.asked, rules.ParentCancelled, "", "", false).Query(r.cancelRequested)
	}
	if b.Len() > 0 {
		if err := r.s.db.Send(ctx, r.tx, b); err != nil {
			return err
		}
	}
	for _, id := range r.asked { // another transaction has it
		r.back.add(notice{named: named{run: id}, kind: rules.NoticeOrphan})
	}
	return r.putBack(ctx)
}

// putBack has notices looked at again.
func (r *round) putBack(ctx context.Context) error {
	if len(r.back.runs) == 0 {
		return nil
	}
	back := r.s.db.NewBatch()
	back.Add(queries.PutBackNotices, r.back.runs, r.back.kinds, r.back.tries, r.back.pauses, r.back.names, r.back.cursors)
	return r.s.db.Send(ctx, r.tx, back)
}

func (r *round) cancelled(rows pgx.Rows) error {
	return conn.ScanIDs(rows, func(uuid.UUID) { r.ended++ })
}

func (r *round) cancelledWaiting(rows pgx.Rows) error {
	for rows.Next() {
		var id uuid.UUID
		var freed []int32
		if err := rows.Scan(&id, &freed); err != nil {
			return err
		}
		r.ended++
		r.freed = append(r.freed, freed...)
	}
	return rows.Err()
}

func (r *round) cancelRequested(rows pgx.Rows) error {
	for rows.Next() {
		var id uuid.UUID
		var fresh bool
		if err := rows.Scan(&id, &fresh); err != nil {
			return err
		}
		r.asked = slices.DeleteFunc(r.asked, func(asked uuid.UUID) bool { return asked == id })
		if fresh {
			r.ended++
			r.requested = true
		}
	}
	return rows.Err()
}

func scanReleased(into *[]released, limited bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var lane int32
			var runs int64
			if err := rows.Scan(&lane, &runs); err != nil {
				return err
			}
			*into = append(*into, released{lane: lane, limited: limited, runs: int(runs)})
		}
		return rows.Err()
	}
}
