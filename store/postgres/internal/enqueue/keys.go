package enqueue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// keyName is a key of a job.
type keyName struct{ job, text string }

func keyOf(run *store.NewRun) keyName { return keyName{run.Job, run.Key.Text} }

func compareKeys(a, b keyName) int {
	return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.text, b.text))
}

// keyHolder is the run that holds a key, and what happens to it.
type keyHolder struct {
	store.KeyHolder
	id          store.RunID
	row         queries.KeyHoldersRow // as it is in the database
	replacement *store.NewRun         // what the pending run there gets; nil: nothing
	fresh       int                   // 1 + the index of the new run that has taken the key; 0: none has
	heldFor     int64                 // of that one, microseconds
}

// keyedInsert stores the runs of one enqueue, some of which have keys, in one transaction. It
// locks the keys, reads the runs that hold them, decides, takes the pending runs that will
// be replaced out of their lines, and writes.
type keyedInsert struct {
	enqueuer *Enqueuer
	to       conn.Sender
	set      numbers.Places
	runs     []store.NewRun

	names    []keyName  // sorted: all transactions lock in this order
	jobs     []string   // of the names
	texts    []string   // likewise
	firsts   conn.UUIDs // the first run with each
	heldFors []int64    // of that one
	asked    conn.UUIDs // the runs

	commits   bool // the transaction is ours, and
	committed bool // has ended with what was written

	stored  map[store.RunID]struct{} // by this enqueue, before it asked
	known   map[store.RunID]struct{} // stored, by any process
	taken   map[store.RunID]bool     // pending runs whose place in the line is ours
	freed   []store.LineID           // the lines of turns for places that these had, or kept from others
	holders map[keyName]*keyHolder

	receipts []store.Receipt
	fresh    []store.NewRun // to be stored, with keys
	places   []int          // their receipts
}

// insertKeyed is insert for runs some of which have keys. In a caller's
// transaction the keys stay locked until it ends, and its own limits and
// isolation hold. Freed is as in insertInto.
func (e *Enqueuer) insertKeyed(ctx context.Context, to conn.Sender, runs []store.NewRun, set numbers.Places) (answers []store.Receipt, freed []store.LineID, err error) {
	pool, own := to.(*pgxpool.Pool)
	if !own {
		k := e.newKeyedInsert(to, runs, set)
		if err := k.keep(ctx, e.db.NewBatch(), mayBeNew(runs)); err != nil {
			return nil, nil, err
		}
		return k.receipts, k.freed, nil
	}
	if len(runs) == 1 && len(runs[0].Limits) == 0 {
		if done, err := e.insertOneNew(ctx, runs[0], set); done || err != nil {
			return receipts(runs, nil), nil, err
		}
	}
	try := func(most time.Duration) (err error) {
		answers, freed, err = e.storeKeyedAlone(ctx, pool, runs, set, most)
		return err
	}
	err = try(conn.HeldLimit)
	if err != nil && pgconn.SafeToRetry(err) && ctx.Err() == nil { // as send does
		err = try(conn.HeldLimit)
	}
	if conn.Code(err) == conn.LockNotAvailable && ctx.Err() == nil {
		err = e.db.Patiently(ctx, func() error { return try(conn.LockLimit) })
	}
	if err != nil {
		return nil, nil, err
	}
	return answers, freed, nil
}

// holderTries bounds how often the holders are read again because one was claimed,
// or swept, between two looks.
const holderTries = 100

// storeKeyedAlone does it in a transaction of its own, begun and committed in
// the batches that do the work.
func (e *Enqueuer) storeKeyedAlone(
	ctx context.Context, pool *pgxpool.Pool, runs []store.NewRun, set numbers.Places, most time.Duration,
) (answers []store.Receipt, freed []store.LineID, err error) {
	session, err := pool.Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer session.Release()
	b := e.db.NewBatch()
	b.Add(queries.Begin)
	if e.db.Unpinned {
		b.Add(queries.Pin)
	}
	lock, statement := conn.Limits(ctx, most)
	b.Add(queries.Guard, lock, statement)
	b.Add(queries.Idle) // or a process that stops here would keep the keys locked
	k := e.newKeyedInsert(session, runs, set)
	k.commits = true
	if err = k.keep(ctx, b, len(runs) > 1 && mayBeNew(runs)); err == nil && !k.committed {
		_, err = session.Exec(ctx, queries.Commit)
	}
	if err != nil {
		_, _ = session.Exec(ctx, queries.Rollback) // one that fails here is closed when it is released
		return nil, nil, err
	}
	return k.receipts, k.freed, nil
}

func (e *Enqueuer) newKeyedInsert(to conn.Sender, runs []store.NewRun, set numbers.Places) *keyedInsert {
	k := &keyedInsert{enqueuer: e, to: to, set: set, runs: runs, taken: map[store.RunID]bool{}}
	k.index()
	return k
}

// keep does the work; what is in the batch already goes first. With asNew it
// first tries whether the keys are free.
func (k *keyedInsert) keep(ctx context.Context, b *conn.Batch, asNew bool) error {
	if asNew {
		stored, err := k.enqueuer.insertNewKeyed(ctx, k.to, k.runs, k.set, b)
		if err != nil || len(stored) == len(k.runs) {
			k.receipts = receipts(k.runs, nil)
			return err
		}
		b, k.stored = k.enqueuer.db.NewBatch(), stored
	}
	for try := 1; try <= holderTries; try++ {
		complete, err := k.examine(ctx, b)
		if err != nil {
			return err
		}
		b = k.enqueuer.db.NewBatch()
		if !complete {
			continue
		}
		if err := k.refuseChanged(ctx); err != nil {
			return err
		}
		k.decide()
		if complete, err = k.take(ctx); err != nil {
			return err
		}
		if complete {
			return k.write(ctx)
		}
	}
	return fmt.Errorf("the holders of %d keys changed %d times while they were read", len(k.names), holderTries)
}

// index lists the keys, each once, with the first run that has it.
func (k *keyedInsert) index() {
	firsts := map[keyName]*store.NewRun{}
	for i := range k.runs {
		name := keyOf(&k.runs[i])
		if _, again := firsts[name]; again || name.text == "" {
			continue
		}
		firsts[name] = &k.runs[i]
		k.names = append(k.names, name)
	}
	slices.SortFunc(k.names, compareKeys)
	for _, name := range k.names {
		first := firsts[name]
		k.jobs, k.texts = append(k.jobs, name.job), append(k.texts, name.text)
		k.firsts, k.heldFors = append(k.firsts, first.ID), append(k.heldFors, conn.Micro(first.Key.HeldFor))
	}
	for i := range k.runs {
		k.asked = append(k.asked, k.runs[i].ID)
	}
}

// examine locks the keys, and reads the runs that hold them and which runs are stored. It
// is not complete if the row of a key was deleted in between: a transaction that waited for
// the deletion has locked nothing, even if there is another row by now.
func (k *keyedInsert) examine(ctx context.Context, b *conn.Batch) (complete bool, err error) {
	k.holders = make(map[keyName]*keyHolder, len(k.names))
	k.known = map[store.RunID]struct{}{}
	b.Add(queries.InsertKeys, k.jobs, k.texts, k.firsts, k.heldFors)
	locked := 0
	b.Add(queries.LockKeys, k.jobs, k.texts).Query(func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(uuid.UUID) { locked++ })
	})
	b.Add(queries.KeyHolders, k.jobs, k.texts).Query(k.scanHolders)
	b.Add(queries.StoredRuns, k.asked).Query(func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(id uuid.UUID) { k.known[id] = struct{}{} })
	})
	err = k.enqueuer.db.Send(ctx, k.to, b)
	return locked == len(k.names) && len(k.holders) == len(k.names), err
}

func (k *keyedInsert) scanHolders(rows pgx.Rows) error {
	for rows.Next() {
		var row queries.KeyHoldersRow
		err := rows.Scan(&row.Job, &row.Key, &row.RunID, &row.Latest, &row.Held, &row.Stored, &row.State, &row.Lane, &row.DueAt, &row.Gates, &row.Frozen)
		if err != nil {
			return err
		}
		k.holders[keyName{row.Job, row.Key}] = &keyHolder{
			KeyHolder: store.KeyHolder{Stored: row.Stored, Latest: row.Latest, State: store.State(row.State), Held: row.Held},
			id:        row.RunID, row: row,
		}
	}
	return rows.Err()
}

// decide decides for each run, in order, what happens to it. It decides again if a holder
// turned out not to be pending any more.
func (k *keyedInsert) decide() {
	k.receipts = make([]store.Receipt, len(k.runs))
	k.fresh, k.places = nil, nil
	for i := range k.runs {
		run := &k.runs[i]
		_, stored := k.known[run.ID]
		_, ours := k.stored[run.ID]
		k.receipts[i] = store.Receipt{ID: run.ID, Existing: stored && !ours}
		if stored || run.Key.Text == "" {
			continue
		}
		holder := k.holders[keyOf(run)]
		switch run.Key.Judge(run.ID, holder.KeyHolder) {
		case store.LeavesHolder:
			k.receipts[i] = store.Receipt{ID: holder.id, Existing: true}
		case store.ReplacesHolder:
			k.receipts[i] = store.Receipt{ID: holder.id, Existing: true}
			k.replace(holder, run)
		default:
			k.fresh, k.places = append(k.fresh, *run), append(k.places, i)
			holder.id, holder.fresh, holder.heldFor = run.ID, len(k.fresh), conn.Micro(run.Key.HeldFor)
			holder.KeyHolder = store.KeyHolder{Stored: true, Latest: run.ID, State: store.Pending, Held: run.Key.HeldFor > 0}
		}
	}
}

// replace notes that a run replaces a pending one, which may be one that this
// same enqueue stores.
func (k *keyedInsert) replace(holder *keyHolder, run *store.NewRun) {
	holder.Latest = run.ID
	if holder.fresh == 0 {
		holder.replacement = run
		return
	}
	content := *run
	content.ID = holder.id
	k.fresh[holder.fresh-1] = content
}

// take takes the holders that will be replaced out of their lines. It is not complete if one
// of them had gone: it was claimed or changed.
func (k *keyedInsert) take(ctx context.Context) (complete bool, err error) {
	b := k.enqueuer.db.NewBatch()
	var wanted []store.RunID
	for _, name := range k.names {
		holder := k.holders[name]
		if holder.replacement == nil || k.taken[holder.id] {
			continue
		}
		wanted = append(wanted, holder.id)
		k.addTake(b, holder)
	}
	if len(wanted) == 0 {
		return true, nil
	}
	err = k.enqueuer.db.Send(ctx, k.to, b)
	return !slices.ContainsFunc(wanted, func(id store.RunID) bool { return !k.taken[id] }), err
}

// addTake takes a run out of its line.
func (k *keyedInsert) addTake(b *conn.Batch, holder *keyHolder) {
	took := func(id uuid.UUID) { k.taken[id] = true }
	if row := &holder.row; row.Gates == "" {
		b.Add(queries.TakeReady, row.Lane, row.DueAt, holder.id).Query(func(rows pgx.Rows) error { return conn.ScanIDs(rows, took) })
	} else {
		b.Add(queries.TakeWaiting, row.Gates, row.Lane, row.DueAt, holder.id).Query(func(rows pgx.Rows) error { return conn.ScanFreed(rows, &k.freed, took) })
	}
}

// write stores what was decided.
func (k *keyedInsert) write(ctx context.Context) error {
	stored := map[store.RunID]struct{}{}
	b := k.enqueuer.db.NewBatch()
	k.addReplacements(b, func(rows pgx.Rows) error {
		return conn.ScanFreed(rows, &k.freed, func(id uuid.UUID) { stored[id] = struct{}{} })
	})
	var plain []store.NewRun
	for i := range k.runs {
		run := &k.runs[i]
		if _, there := k.known[run.ID]; run.Key.Text == "" && !there {
			plain, k.places = append(plain, *run), append(k.places, i)
		}
	}
	addRuns(b, append(plain, k.fresh...), k.set, conn.ScanInto(stored)) // together: their due instants are one statement's
	k.addKeys(b)
	ends := k.commits && len(k.taken) == 0 // else what was taken is compared first
	if ends {
		b.Add(queries.Commit)
	}
	if err := k.enqueuer.db.Send(ctx, k.to, b); err != nil {
		return err
	}
	k.committed = ends
	for _, i := range k.places { // a repeat without the key may have been quicker
		_, isNew := stored[k.receipts[i].ID]
		k.receipts[i].Existing = !isNew
	}
	for id := range k.taken {
		if _, back := stored[id]; !back {
			return fmt.Errorf("run %s was changed by a writer that has not taken it out of its line", id)
		}
	}
	return nil
}

// addRuns adds an insert of runs some of which have keys.
func addRuns(b *conn.Batch, runs []store.NewRun, set numbers.Places, each func(pgx.Rows) error) {
	if len(runs) == 0 {
		return
	}
	plain, limited := apart(runs)
	if len(limited) > 0 {
		AddLimited(b, limited, set, nil, each)
	}
	if len(plain) == 0 {
		return
	}
	for _, part := range parts(plain) {
		args := append(ColumnsOf(part, set).Parameters(), keyTexts(part), traces(part))
		b.Add(queries.EnqueueKeyedRuns, args...).Query(each)
	}
}

func keyTexts(runs []store.NewRun) []string {
	texts := make([]string, len(runs))
	for i := range runs {
		texts[i] = runs[i].Key.Text
	}
	return texts
}

// addReplacements gives pending runs, taken out of their lines, what others
// have that were enqueued for them, and a new place.
func (k *keyedInsert) addReplacements(b *conn.Batch, note func(pgx.Rows) error) {
	for _, name := range k.names {
		holder := k.holders[name]
		run := holder.replacement
		if run == nil {
			continue
		}
		l, row, had := numbers.LaneOf(run), standingOf(run, k.set.Limits), cmp.Or(holder.row.Gates, "{}")
		ids, names, secrets := k.set.Limits.Only(run).Learnt()
		b.Add(queries.ReplaceRun, k.set.Lanes[l], l.Queue, l.Job, l.Priority, conn.NumberArray(ids), conn.Literal(names, conn.Quoted), conn.Literal(secrets, uuid.UUID.String), conn.TimeOrNull(run.At), conn.Micro(run.Delay()),
			conn.Micro(run.Key.AtMost), conn.Micro(run.Timeout), conn.TimeOrNull(run.ExpiresAt), conn.Small(run.MaxAttempts), int16(run.OnCrash),
			string(run.Args), conn.TextArray(run.Tags), run.Metadata.Text(), rules.TextOrNil(run.Trace),
			row.gates, row.limits, row.weights, row.strict, row.gives, holder.id, had).Query(note)
	}
}

// addKeys writes the new holders of the keys that have one.
func (k *keyedInsert) addKeys(b *conn.Batch) {
	for _, name := range k.names {
		holder := k.holders[name]
		if holder.id != holder.row.RunID || holder.Latest != holder.row.Latest {
			b.Add(queries.SetKey, holder.id, holder.heldFor, holder.Latest, name.job, name.text)
		}
	}
}
