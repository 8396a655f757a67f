package admission

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// An admission is one transaction of two round trips, or more for rates and for runs with
// several limits. It takes turns and locks their gates, reads in later statements what the
// gates admit, decides, and writes.

// divisionByZero is how LeaveLines reports that a waiter is gone since it was read.
const divisionByZero = "22012"

// AdmitRuns admits limited runs. It assumes that no other transaction holds their rows. If one
// does, it begins again, and for a while it checks the rows before it decides.
func (m *Admitter) AdmitRuns(ctx context.Context, request *store.ClaimRequest, worker int32, got *Dealing) error {
	if !m.heldWaiters.Within(conn.HeldFor) {
		err := m.admitOnce(ctx, request, worker, got, false)
		if c := conn.Code(err); c != conn.LockNotAvailable && c != divisionByZero {
			return err
		}
		m.heldWaiters.Mark()
	}
	err := m.admitOnce(ctx, request, worker, got, true)
	if conn.Code(err) == conn.LockNotAvailable { // a gate that another admission makes; the turns are there again
		got.Runs, got.Dealt = got.Runs[:0], 0
		return nil
	}
	return err
}

func (m *Admitter) admitOnce(ctx context.Context, request *store.ClaimRequest, worker int32, got *Dealing, careful bool) error {
	m.db.Sparing.Enter(ctx, conn.HotWait)
	defer m.db.Sparing.Leave()
	session, err := m.db.Engine.Acquire(ctx)
	if err != nil {
		return err
	}
	defer session.Release()
	a := &admission{
		Admitter: m, session: session, request: request, worker: worker, careful: careful, got: got,
		limits: map[store.LimitID]*store.Limit{}, known: map[admit.GateID]bool{}, caps: map[store.LaneID]queueCap{},
		said: map[store.RunID][]store.LimitUse{}, names: map[admit.GateID]string{},
	}
	got.Runs, got.Dealt = got.Runs[:0], 0
	if err = a.run(ctx); err != nil {
		_, _ = session.Exec(context.WithoutCancel(ctx), queries.Rollback) // one that fails here is closed when it is released
		if conn.Code(err) == conn.LockNotAvailable && len(a.others) > 0 {
			b := m.db.Guarded(ctx)
			b.Add(queries.MakeGates, a.others)
			_ = m.db.Send(ctx, session, b) // the admission has failed, and is repeated
		}
	}
	return err
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
