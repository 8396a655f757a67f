package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// An admission is one transaction of two round trips, or more for rates and for runs with
// several limits. It takes turns and locks their gates, reads in later statements what the
// gates admit, decides, and writes.

// divisionByZero is how LeaveLines reports that a waiter is gone since it was read.
const divisionByZero = "22012"

// admitRuns admits limited runs. It assumes that no other transaction holds their rows. If one
// does, it begins again, and for a while it checks the rows before it decides.
func (s *Store) admitRuns(ctx context.Context, request *store.ClaimRequest, worker int32, got *dealing) error {
	if !s.heldWaiters.Within(conn.HeldFor) {
		err := s.admitOnce(ctx, request, worker, got, false)
		if c := conn.Code(err); c != conn.LockNotAvailable && c != divisionByZero {
			return err
		}
		s.heldWaiters.Mark()
	}
	err := s.admitOnce(ctx, request, worker, got, true)
	if conn.Code(err) == conn.LockNotAvailable { // a gate that another admission makes; the turns are there again
		got.runs, got.dealt = got.runs[:0], 0
		return nil
	}
	return err
}

func (s *Store) admitOnce(ctx context.Context, request *store.ClaimRequest, worker int32, got *dealing, careful bool) error {
	s.db.Sparing.Enter(ctx, conn.HotWait)
	defer s.db.Sparing.Leave()
	session, err := s.db.Engine.Acquire(ctx)
	if err != nil {
		return err
	}
	defer session.Release()
	a := &admission{
		Store: s, session: session, request: request, worker: worker, careful: careful, got: got,
		limits: map[store.LimitID]*store.Limit{}, known: map[admit.GateID]bool{}, caps: map[store.LaneID]queueCap{},
		said: map[store.RunID][]store.LimitUse{}, names: map[admit.GateID]string{},
	}
	got.runs, got.dealt = got.runs[:0], 0
	if err = a.run(ctx); err != nil {
		_, _ = session.Exec(context.WithoutCancel(ctx), queries.Rollback) // one that fails here is closed when it is released
		if conn.Code(err) == conn.LockNotAvailable && len(a.others) > 0 {
			b := s.db.Guarded(ctx)
			b.Add(queries.MakeGates, a.others)
			_ = s.db.Send(ctx, session, b) // the admission has failed, and is repeated
		}
	}
	return err
}

// admission is an admission in progress.
type admission struct {
	*Store

	session *pgxpool.Conn
	request *store.ClaimRequest
	worker  int32
	careful bool
	got     *dealing

	input  admit.Input
	limits map[store.LimitID]*store.Limit
	known  map[admit.GateID]bool            // gates in input
	caps   map[store.LaneID]queueCap        // of lanes on capped queues
	others []int64                          // gates whose turns it did not take
	said   map[store.RunID][]store.LimitUse // of waiters that use more than their gate
	lapsed []int64                          // gates with permits of named owners whose time is over
	names  map[admit.GateID]string          // keys of gates that are not known yet

	freed []store.LineID // the lines of turns for places that refused runs had

	used markArgs      // by which lines were read
	took time.Duration // to take the turns and to read
	// entries are the lines in rounds that were read, which took so long.
	entries     []entryRead
	tookEntries time.Duration
}

func (a *admission) run(ctx context.Context) error {
	gates, err := a.take(ctx)
	if err != nil {
		return err
	}
	if len(gates) == 0 {
		_, err = a.session.Exec(ctx, queries.Commit)
		return err
	}
	a.input.Room = a.request.Limit
	if err := a.adopt(ctx); err != nil {
		return err
	}
	if err := a.readMore(ctx, gates); err != nil {
		return err
	}
	if a.careful {
		if err := a.hold(ctx); err != nil {
			return err
		}
	}
	decision := admit.Decide(&a.input)
	a.lookBelow(&decision)
	return a.write(ctx, &decision)
}

// spareTurns bounds the turns that go with one that is taken.
const spareTurns = 50

// asked are the lines that turns are taken from, and how many of each.
func asked(request *store.ClaimRequest) (lines, takes []int32) {
	lines, takes = make([]int32, len(request.Admissions)), make([]int32, len(request.Admissions))
	for i, one := range request.Admissions {
		lines[i], takes[i] = one.Line, conn.Small(one.Take)
	}
	return lines, takes
}

// take begins the transaction, takes turns, and returns the gates that are ours, of
// which it has read what they admit.
func (a *admission) take(ctx context.Context) (gates []int64, err error) {
	lines, takes := asked(a.request)
	b := a.db.NewBatch()
	b.Add(queries.Begin)
	if a.db.Unpinned {
		b.Add(queries.Pin)
	}
	if !a.db.GuardsFor(ctx) {
		lock, statement := conn.Limits(ctx, conn.HeldLimit)
		b.Add(queries.Guard, lock, statement)
		b.Add(queries.Idle)
	}
	var turns []time.Time
	b.Add(queries.TakeTurns, lines, takes, conn.Small(a.request.Limit), conn.Micro(admit.BusyAgain), int32(spareTurns)).QueryRow(func(row pgx.Row) error {
		return row.Scan(&gates, &turns)
	})
	var found []admit.Gate
	a.used = a.marks.of(a.request.Lanes)
	a.addReads(b, nil, readDepth{}, &found)
	began := lease.Elapsed()
	if err := a.db.Send(ctx, a.session, b); err != nil {
		return nil, err
	}
	a.took = lease.Elapsed() - began
	a.learn(gates, found, admit.Quantum(a.request.Limit, len(gates))+1)
	if a.shallow(gates, turns) {
		return gates, a.readBelow(ctx, gates)
	}
	return gates, nil
}

// exhausts reports whether the admission leaves no run of its lines that a worker could start,
// provided that no turn is left on them: all runs that waited in its gates start, and it
// leaves no turn. An admission without turns cannot know, since another one may have taken
// the turns and left others.
func (a *admission) exhausts(d *admit.Decision) bool {
	return a.request.Exhausted != nil && len(d.Admitted) == len(a.input.Waiters) && len(d.Turns)+len(d.Due) == 0
}

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

// keyOf is the key of a gate, as one of its runs spells it.
func (a *admission) keyOf(gate admit.GateID, uses []store.LimitUse) string {
	limit := a.limits[admit.LimitOf(gate)]
	if limit == nil {
		return ""
	}
	return admit.KeyOf(gate, limit.Secret, uses)
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
