package postgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

var _ store.Tx = (*Tx)(nil)

// Tx is the store bound to the caller's transaction. It lives as long as
// that transaction, and is for one goroutine at a time, as the transaction is.
//
// Its statements name the schema of every table, and of every function that
// another schema's could replace, whatever the search_path is. They leave no
// setting behind. What can be refused is refused before the
// transaction is touched; lanes that are new are made, and committed, on a
// connection of the store's own. In a transaction of isolation repeatable read
// or serializable an Enqueue into a lane that is newer than the transaction's
// snapshot fails, and so does one with a key whose run has changed since that
// snapshot (40001). Guard and Complete may fail where at read committed they
// would answer lease.ErrLost. Repeat the whole transaction, as one does there.
type Tx struct {
	store   *Store
	binding conn.Sender
}

// WithTx binds the store to a transaction of pgx, whatever pool, settings and
// query_exec_mode its connection has.
func (s *Store) WithTx(tx pgx.Tx) *Tx { return &Tx{store: s, binding: conn.BindPgx(tx)} }

// WithSQLTx binds the store to a transaction of database/sql. The driver may be
// pgx's stdlib or lib/pq; the database has to be the store's.
func (s *Store) WithSQLTx(tx *sql.Tx) *Tx {
	return &Tx{store: s, binding: conn.BindSQL(tx)}
}

// Enqueue stores the runs within the transaction; see store.Tx. Workers are
// woken when it is committed.
func (t *Tx) Enqueue(ctx context.Context, runs ...store.NewRun) ([]store.Receipt, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	if err := store.CheckRuns(runs); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	if err := t.store.schema.Usable(ctx); err != nil {
		return nil, t.store.db.Fail("enqueue", err)
	}
	receipts, err := t.store.enqueuer.In(ctx, t.binding, runs)
	if err != nil {
		return nil, t.fail("enqueue", err)
	}
	return receipts, nil
}

// Guard locks the run until the transaction ends; see store.Tx.
func (t *Tx) Guard(ctx context.Context, holder store.Holder) error {
	return t.claimed(ctx, fmt.Sprintf("guard run %s", holder.Run), queries.GuardRun, holder.Run.String(), uuid.UUID(holder.Claim).String())
}

// Complete ends the run as succeeded within the transaction; see store.Tx.
func (t *Tx) Complete(ctx context.Context, holder store.Holder, completion store.Completion) error {
	what := fmt.Sprintf("complete run %s", holder.Run)
	if err := completion.Check(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	var result, log any
	if completion.Result != nil {
		result = string(completion.Result)
	}
	if completion.Log != "" {
		log = completion.Log
	}
	return t.claimed(ctx, what, queries.CompleteRun, result, holder.Run.String(), uuid.UUID(holder.Claim).String(), log)
}

// claimed sends a statement that must find exactly one run.
func (t *Tx) claimed(ctx context.Context, what, statement string, args ...any) error {
	if err := t.store.schema.Usable(ctx); err != nil {
		return t.store.db.Fail(what, err)
	}
	found := 0
	b := t.store.db.NewBatch()
	b.Add(statement, args...).Query(func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(uuid.UUID) { found++ })
	})
	if err := t.store.db.Send(ctx, t.binding, b); err != nil {
		return t.fail(what, err)
	}
	if found != 1 {
		return fmt.Errorf("%s: %w", what, lease.ErrLost)
	}
	return nil
}

// Run returns one run as the transaction sees it.
func (t *Tx) Run(ctx context.Context, id store.RunID) (store.Record, error) {
	if err := t.store.schema.Usable(ctx); err != nil {
		return store.Record{}, t.store.db.Fail("run", err)
	}
	record, err := t.store.reader.RunFrom(ctx, t.binding, id)
	if err != nil {
		return store.Record{}, t.fail("run "+id.String(), err)
	}
	return record, nil
}

// Runs lists runs as the transaction sees them.
func (t *Tx) Runs(ctx context.Context, filter store.Filter) (store.Page, error) {
	if _, _, _, err := filter.Range(); err != nil {
		return store.Page{}, err
	}
	if err := t.store.schema.Usable(ctx); err != nil {
		return store.Page{}, t.store.db.Fail("runs", err)
	}
	page, err := t.store.reader.PageFrom(ctx, t.binding, filter)
	if err != nil {
		return store.Page{}, t.fail("runs", err)
	}
	return page, nil
}

// fail gives an error the call it belongs to. The connection is the caller's,
// so it says nothing about ours.
func (t *Tx) fail(what string, err error) error {
	switch conn.Code(err) {
	case conn.UndefinedTable, conn.UndefinedSchema:
		t.store.schema.Forget()
		t.store.numbers.ForgetLanes()
		return fmt.Errorf("%s: %w: a table of schema %q is missing in the transaction's database: %w", what, conn.ErrSchema, t.store.db.Names.Schema, err)
	case conn.NotNullViolation:
		t.store.numbers.ForgetLanes()
		return fmt.Errorf("%s: the transaction's snapshot is older than one of the runs' lanes: begin it again: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
