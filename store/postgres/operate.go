package postgres

import (
	"context"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

const (
	// operateFor is how long a command looks again at runs that others have in
	// hand.
	operateFor = 10 * time.Second
	// operatePause and operatePauseMost are the first pause between two looks
	// and the longest.
	operatePause, operatePauseMost = 5 * time.Millisecond, 250 * time.Millisecond
)

// Operate changes runs as an operator asks. Each try is one short transaction that waits for
// no other: it skips a run that a claim, a settle or a user's transaction has locked, and a
// later try examines it again.
func (s *Store) Operate(ctx context.Context, command store.RunCommand) ([]store.ChangedRun, error) {
	if err := command.Check(); err != nil {
		return nil, err
	}
	if err := s.schema.Usable(ctx); err != nil {
		return nil, s.db.Fail(string(command.Action)+" runs", err)
	}
	done := &changes{answers: make(map[uuid.UUID]store.ChangedRun, len(command.Runs))}
	err := s.changeAll(ctx, &command, done)
	s.wake.HintFreed(done.freed, done.freed)
	if err != nil {
		return nil, s.db.Fail(string(command.Action)+" runs", err)
	}
	wake := false
	changed := make([]store.ChangedRun, len(command.Runs))
	for i, id := range command.Runs {
		changed[i] = done.answers[id]
		if changed[i].Result == "" {
			changed[i] = store.ChangedRun{ID: id, Result: store.RunLocked, State: changed[i].State}
		}
		wake = wake || changed[i].Result == store.RunChanged && changed[i].State == store.Pending
	}
	if wake && (command.Action == store.RetryRuns || command.Action == store.ReleaseRuns) {
		s.wake.Hint()
	}
	return changed, nil
}

// changes are what a command has come to so far.
type changes struct {
	answers map[uuid.UUID]store.ChangedRun
	freed   []store.LineID // the lines of turns for places that were freed
}

// add adds what a try has done. It counts only if the transaction was committed. If not, the
// try is repeated or its error is returned, and a worker is woken needlessly at worst.
func (c *changes) add(o *operation) {
	maps.Copy(c.answers, o.answers)
	c.freed = append(c.freed, o.freed...)
}

// changeAll changes the runs, and tries again those that other transactions have locked.
func (s *Store) changeAll(ctx context.Context, command *store.RunCommand, done *changes) error {
	left := unanswered(command.Runs, done.answers)
	begun, pause := lease.Elapsed(), operatePause
	for len(left) > 0 {
		if err := s.changeFree(ctx, command, left, done); err != nil {
			return err
		}
		if left = unanswered(left, done.answers); len(left) == 0 {
			break
		}
		if lease.Elapsed()-begun > operateFor || !conn.Rest(ctx, pause) {
			break
		}
		pause = min(2*pause, operatePauseMost)
	}
	return nil
}

// unanswered returns each run once that has no answer yet.
func unanswered(runs []store.RunID, answers map[uuid.UUID]store.ChangedRun) conn.UUIDs {
	left := make(conn.UUIDs, 0, len(runs))
	seen := make(map[uuid.UUID]bool, len(runs))
	for _, id := range runs {
		if !seen[id] && answers[id].Result == "" {
			seen[id] = true
			left = append(left, id)
		}
	}
	return left
}

// changeFree does what is ordered with the runs that no other transaction has in hand, and
// notes their answers. Runs with a unique key whose row has to be locked first
// are changed one by one, each in a transaction of its own.
func (s *Store) changeFree(ctx context.Context, command *store.RunCommand, runs conn.UUIDs, done *changes) error {
	var keyed []queries.OperableRow
	err := s.db.Repeat(ctx, func() error {
		keyed = nil
		return conn.InTx(ctx, s.db.General, func(tx pgx.Tx) error {
			o := &operation{store: s, tx: tx, command: command, answers: map[uuid.UUID]store.ChangedRun{}}
			rows, err := o.read(ctx, runs)
			if err != nil {
				return err
			}
			plain := rows[:0]
			for _, row := range rows {
				if row.Keyed && movesKey(command.Action) && o.open(&row) {
					keyed = append(keyed, row)
				} else {
					plain = append(plain, row)
				}
			}
			if err := o.act(ctx, plain, false); err != nil {
				return err
			}
			done.add(o)
			return nil
		})
	})
	if conn.Code(err) == conn.LockNotAvailable {
		err = nil // a transaction has a schedule of theirs: they are examined again
	}
	for i := range keyed {
		if err != nil || ctx.Err() != nil {
			break
		}
		err = s.changeKeyed(ctx, command, &keyed[i], done)
	}
	return err
}

// movesKey reports whether an action gives or takes the unique key of a run.
func movesKey(action store.RunAction) bool {
	return action == store.RetryRuns || action == store.DeleteRuns
}

// operation is one look under way.
type operation struct {
	store   *Store
	tx      pgx.Tx
	command *store.RunCommand
	answers map[uuid.UUID]store.ChangedRun // without Did: what state it was last seen in
	written int                            // runs that were changed, for the audit of a bulk change
	freed   []store.LineID                 // the lines of turns for places that were freed
}

// read examines the runs, and answers for those that there are not.
func (o *operation) read(ctx context.Context, runs conn.UUIDs) ([]queries.OperableRow, error) {
	var rows []queries.OperableRow
	b := o.store.db.GuardedFor(ctx, conn.HeldLimit)
	b.Add(queries.Idle)
	b.Add(queries.Operable, runs).Query(func(found pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(found, pgx.RowToStructByPos[queries.OperableRow])
		return err
	})
	if err := o.store.db.Send(ctx, o.tx, b); err != nil {
		return nil, err
	}
	for _, id := range runs {
		o.answers[id] = store.ChangedRun{ID: id, Result: store.RunNotFound}
	}
	for _, row := range rows {
		o.answers[row.ID] = store.ChangedRun{ID: row.ID, State: store.State(row.State)}
	}
	return rows, nil
}

// open reports whether the action may change a run that is in the state it was
// seen in, and answers for it when not.
func (o *operation) open(row *queries.OperableRow) bool {
	effect := rules.Permit(o.command.Action, rules.Operable{State: store.State(row.State), Acknowledged: row.Acknowledged, Held: row.Held})
	if !effect.Writes {
		o.answers[row.ID] = store.ChangedRun{ID: row.ID, Result: effect.Result, State: effect.State}
	}
	return effect.Writes
}

// act changes the runs that the action may change, in the state they were seen
// in: pending ones through their rows of ready, the others by themselves.
func (o *operation) act(ctx context.Context, rows []queries.OperableRow, keyed bool) error {
	var ids, held conn.UUIDs
	var pending, limited placed
	for i := range rows {
		row := &rows[i]
		switch {
		case !o.open(row):
		case o.command.Action == store.ReleaseRuns:
			held = append(held, row.ID)
		case row.State == int16(store.Pending):
			to := &pending
			if row.Limited {
				to = &limited
			}
			to.lanes, to.dues, to.ids = append(to.lanes, row.Lane), append(to.dues, row.DueAt), append(to.ids, row.ID)
		default:
			ids = append(ids, row.ID)
		}
	}
	reason, by, detail, singly := o.command.CancelReason(), o.command.By, string(o.command.Detail()), o.command.Bulk == nil
	b := o.store.db.NewBatch()
	take := func(c *placed, done func(store.State) func(pgx.Rows) error, cancel, deletion string) {
		switch {
		case len(c.ids) == 0:
		case o.command.Action == store.CancelRuns:
			b.Add(cancel, c.lanes, c.dues, c.ids, reason, by, detail, singly).Query(done(store.Cancelled))
		default:
			b.Add(deletion, c.lanes, c.dues, c.ids, keyed, by, detail, singly).Query(done(store.Pending))
			b.Add(queries.SweepRests, c.ids)
		}
	}
	take(&pending, o.done, queries.CancelPending, queries.DeletePending)
	take(&limited, o.freeing, queries.CancelWaiting, queries.DeleteWaiting)
	if len(ids) > 0 {
		switch o.command.Action {
		case store.CancelRuns:
			b.Add(queries.RequestCancels, ids, reason, by, detail, singly).Query(o.requested)
		case store.RetryRuns:
			b.Add(queries.RetryRuns, ids, keyed, conn.Micro(store.MaxDelay), by, detail, singly).Query(o.done(store.Pending))
			b.Add(queries.LookAtRetried, ids)
			b.Add(queries.CountRetried, ids)
		case store.DeleteRuns:
			b.Add(queries.DeleteFinished, ids, keyed, by, detail, singly).Query(o.deleted)
			b.Add(queries.SweepRests, ids)
		case store.AcknowledgeRuns:
			b.Add(queries.AcknowledgeRuns, ids, by, detail, singly).Query(o.done(store.Dead))
		}
	}
	if b.Len() == 0 {
		return o.release(ctx, held)
	}
	if err := o.store.db.Send(ctx, o.tx, b); err != nil {
		return err
	}
	if err := o.forgetFailures(ctx, ids); err != nil {
		return err
	}
	return o.auditBulk(ctx)
}

// forgetFailures has those of the runs forget their failures that were retried: they are
// locked. Those that were skipped are another transaction's.
func (o *operation) forgetFailures(ctx context.Context, ids conn.UUIDs) error {
	if o.command.Action != store.RetryRuns {
		return nil
	}
	var retried conn.UUIDs
	for _, id := range ids {
		if o.answers[id].Result == store.RunChanged {
			retried = append(retried, id)
		}
	}
	if len(retried) == 0 {
		return nil
	}
	b := o.store.db.NewBatch()
	b.Add(queries.ForgetFailures, retried)
	return o.store.db.Send(ctx, o.tx, b)
}

// auditBulk adds the runs that were changed to the row of a bulk change.
func (o *operation) auditBulk(ctx context.Context) error {
	if o.command.Bulk == nil || o.written == 0 {
		return nil
	}
	return o.store.db.Queries(o.tx).AuditBulk(ctx, queries.AuditBulkParams{
		Actor: o.command.By, Bulk: o.command.Bulk.ID.String(), Action: string(o.command.Action), Detail: string(o.command.Detail()), Changed: int64(o.written),
	})
}

// requested answers for the running runs whose cancellation is requested, now or
// since before.
func (o *operation) requested(rows pgx.Rows) error {
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.RequestCancelsRow])
	for _, row := range found {
		o.answers[row.ID] = store.ChangedRun{ID: row.ID, Result: store.CancelRequested, State: store.Running}
		if row.Fresh {
			o.written++
		}
	}
	return err
}

// done answers for the runs that a statement has changed.
func (o *operation) done(state store.State) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(id uuid.UUID) { o.change(id, state) })
	}
}

// freeing is done for a statement that frees places.
func (o *operation) freeing(state store.State) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		return conn.ScanFreed(rows, &o.freed, func(id uuid.UUID) { o.change(id, state) })
	}
}

// change answers for a run that was changed.
func (o *operation) change(id uuid.UUID, state store.State) {
	o.answers[id] = store.ChangedRun{ID: id, Result: store.RunChanged, State: state}
	o.written++
}

// deleted answers for finished runs that are no more.
func (o *operation) deleted(rows pgx.Rows) error {
	return conn.ScanFreed(rows, &o.freed, func(id uuid.UUID) { o.change(id, o.answers[id].State) })
}

// placed are runs with their places in lines, as parameters.
type placed struct {
	lanes []int32
	dues  []time.Time
	ids   conn.UUIDs
}
