package enqueue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
	"github.com/durable-worker/durable-worker/store/postgres/internal/wake"
)

// Bounds of one statement of an enqueue; more runs are several statements of
// one transaction.
const (
	chunkRuns  = 5000
	chunkBytes = 16 << 20
)

// Enqueue stores runs. It creates new lanes first, in their own transactions.
func (e *Enqueuer) Enqueue(ctx context.Context, runs ...store.NewRun) ([]store.Receipt, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	if err := store.CheckRuns(runs); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	if err := e.schema.Usable(ctx); err != nil {
		return nil, e.db.Fail("enqueue", err)
	}
	if store.AnyLinked(runs) {
		return e.enqueueLinked(ctx, runs)
	}
	var receipts []store.Receipt
	var dues []store.Due
	var freed []store.LineID
	insert := func() (err error) { // in one transaction, with the wake-ups where they fit in
		set := numbers.PlacesOf(runs)
		if err := e.numbers.PlaceIDs(ctx, set, runs); err != nil {
			return err
		}
		dues = duesOf(runs, set.Lanes)
		e.wake.Enqueued()
		if rules.AnyKeyed(runs) {
			receipts, freed, err = e.insertKeyed(ctx, e.db.General, runs, set)
			return err
		}
		r := e.wake.Ride(dues)
		if receipts, err = e.insertUnkeyed(ctx, e.db.General, runs, set, freshly, r); conn.Code(err) == conn.UniqueViolation {
			receipts, err = e.insertUnkeyed(ctx, e.db.General, runs, set, perhapsAgain, r)
		}
		if err == nil && r != nil {
			dues = e.wake.Arrived(r)
		}
		return err
	}
	err := e.db.Repeat(ctx, insert)
	if conn.Code(err) == conn.NotNullViolation { // the number of a lane in the cache was wrong
		e.numbers.ForgetLanes()
		err = e.db.Repeat(ctx, insert)
	}
	if err != nil {
		return nil, e.db.Fail("enqueue", err)
	}
	e.wake.HintDue(dues)
	e.wake.HintFreed(freed, freed)
	return receipts, nil
}

// In stores runs in a transaction of the caller. Workers are woken when it is committed.
func (e *Enqueuer) In(ctx context.Context, to conn.Sender, runs []store.NewRun) (receipts []store.Receipt, err error) {
	linked := store.AnyLinked(runs)
	insert := e.insertInto
	if linked {
		runs, insert = rules.Held(runs), e.linkedFor(nil)
	}
	set := numbers.PlacesOf(runs)
	err = e.numbers.PlaceIDs(ctx, set, runs)
	var freed []store.LineID
	if err == nil {
		receipts, freed, err = insert(ctx, to, runs, set)
	}
	if err == nil && linked {
		err = e.wake.NoticeAtCommit(ctx, to, runs[0].ID)
	}
	dues := append(duesOf(runs, set.Lanes), e.wake.DuesForOthers(freed)...)
	if err == nil && len(dues) > 0 {
		err = e.wake.HintAtCommit(ctx, to, dues)
	}
	if err != nil {
		return nil, err
	}
	return receipts, nil
}

// insertInto stores runs, with or without keys, in a transaction of the caller. Freed are the
// lines of turns for the places of runs that were replaced.
func (e *Enqueuer) insertInto(ctx context.Context, to conn.Sender, runs []store.NewRun, set numbers.Places) (answers []store.Receipt, freed []store.LineID, err error) {
	if rules.AnyKeyed(runs) {
		return e.insertKeyed(ctx, to, runs, set)
	}
	answers, err = e.insertUnkeyed(ctx, to, runs, set, perhapsAgain, nil) // a refused statement would end the transaction
	return answers, nil, err
}

// freshness says whether runs may be stored already.
type freshness int8

const (
	freshly      freshness = iota // most likely not: the call fails when one is
	perhapsAgain                  // those that are stored are skipped
)

func (e *Enqueuer) insertUnkeyed(ctx context.Context, to conn.Sender, runs []store.NewRun, set numbers.Places, fresh freshness, with *wake.Ride) ([]store.Receipt, error) {
	existing := map[store.RunID]struct{}{}
	b := e.db.NewBatch()
	plain, limited := apart(runs)
	for _, part := range parts(plain) {
		if !alike(part) {
			c := ColumnsOf(part, set)
			b.Add(queries.EnqueueRuns, slices.Concat([]any{c.ids}, c.served(), c.each(), []any{traces(part)})...).Query(conn.ScanInto(existing))
			continue
		}
		same := alikeOf(part, set)
		if fresh == freshly {
			b.Add(queries.EnqueueNew, slices.Concat(same.lane, same.shared, []any{same.ids, same.args})...)
		} else {
			b.Add(queries.EnqueueAlike, slices.Concat([]any{same.ids}, same.lane, same.shared, []any{same.args})...).Query(conn.ScanInto(existing))
		}
	}
	stored := map[store.RunID]struct{}{}
	if len(limited) > 0 {
		AddLimited(b, limited, set, nil, conn.ScanInto(stored))
	}
	e.wake.AddRide(b, with)
	if err := e.db.Send(ctx, to, b); err != nil {
		return nil, err
	}
	for i := range limited {
		if _, isNew := stored[limited[i].ID]; !isNew {
			existing[limited[i].ID] = struct{}{}
		}
	}
	if err := e.seal(ctx, to, len(existing) == len(runs)); err != nil {
		return nil, err
	}
	return receipts(runs, existing), nil
}

// seal makes durable that runs are stored, where a transaction of this store has found all of
// them and so has written nothing. What a transaction of the caller's writes is the caller's to say.
func (e *Enqueuer) seal(ctx context.Context, to conn.Sender, found bool) error {
	if _, own := to.(*pgxpool.Pool); !own || !found {
		return nil
	}
	b := e.db.NewBatch()
	b.Add(queries.Seal)
	return e.db.Send(ctx, to, b)
}

func receipts(runs []store.NewRun, existing map[store.RunID]struct{}) []store.Receipt {
	answers := make([]store.Receipt, len(runs))
	for i := range runs {
		answers[i].ID = runs[i].ID
		if len(existing) > 0 {
			_, answers[i].Existing = existing[runs[i].ID]
		}
	}
	return answers
}

// parts cuts the runs into what fits one statement.
func parts(runs []store.NewRun) [][]store.NewRun {
	var cut [][]store.NewRun
	start, size := 0, 0
	for i := range runs {
		if i > start && (i-start == chunkRuns || size+len(runs[i].Args) > chunkBytes) {
			cut = append(cut, runs[start:i])
			start, size = i, 0
		}
		size += len(runs[i].Args)
	}
	if start < len(runs) {
		cut = append(cut, runs[start:])
	}
	return cut
}

// Columns are runs as the parameters of EnqueueRuns.
type Columns struct {
	known      []int32 // the lanes, and what they stand for
	queues     []string
	jobs       []string
	priorities []int16

	ids         conn.UUIDs
	lanes       []int32
	ats         []*time.Time
	afters      []int64
	expiries    []*time.Time
	timeouts    []int64
	maxAttempts []int32
	onCrashes   []int16
	args        []string
	tags        []*string
	metadata    []*string // nil when no run has any, which is the common case
}

// ColumnsOf returns runs as parameters.
func ColumnsOf(runs []store.NewRun, set numbers.Places) *Columns {
	n := len(runs)
	c := &Columns{
		ids: make(conn.UUIDs, n), lanes: make([]int32, n), ats: make([]*time.Time, n), afters: make([]int64, n),
		expiries: make([]*time.Time, n), timeouts: make([]int64, n), maxAttempts: make([]int32, n),
		onCrashes: make([]int16, n), args: make([]string, n), tags: make([]*string, n),
	}
	for l, id := range set.Lanes {
		c.known, c.queues = append(c.known, id), append(c.queues, l.Queue)
		c.jobs, c.priorities = append(c.jobs, l.Job), append(c.priorities, l.Priority)
	}
	for i := range runs {
		run := &runs[i]
		c.ids[i], c.lanes[i] = run.ID, set.Lanes[numbers.LaneOf(run)]
		c.ats[i], c.afters[i], c.expiries[i] = conn.TimeOrNull(run.At), conn.Micro(run.Delay()), conn.TimeOrNull(run.ExpiresAt)
		c.timeouts[i], c.maxAttempts[i] = conn.Micro(run.Timeout), int32(run.MaxAttempts) //nolint:gosec // checked
		c.onCrashes[i], c.args[i], c.tags[i] = int16(run.OnCrash), string(run.Args), conn.TextArray(run.Tags)
		if len(run.Metadata) > 0 {
			if c.metadata == nil {
				c.metadata = make([]*string, n)
			}
			c.metadata[i] = run.Metadata.Text()
		}
	}
	return c
}

// Parameters are in the order of EnqueueKeyedRunsParams, without the keys and traces,
// and of MaterializeRunsParams.
func (c *Columns) Parameters() []any { return slices.Concat(c.served(), []any{c.ids}, c.each()) }

// served are the lanes that the runs are for.
func (c *Columns) served() []any { return []any{c.known, c.queues, c.jobs, c.priorities} }

// each are the columns of the runs, without their ids.
func (c *Columns) each() []any {
	return []any{c.lanes, c.ats, c.afters, c.expiries, c.timeouts, c.maxAttempts, c.onCrashes, c.args, c.tags, c.metadata}
}

// traces are null when no run has one, which is the common case.
func traces(runs []store.NewRun) []*string {
	var all []*string
	for i := range runs {
		if runs[i].Trace == "" {
			continue
		}
		if all == nil {
			all = make([]*string, len(runs))
		}
		all[i] = &runs[i].Trace
	}
	return all
}

// alike reports whether the runs differ in nothing but their ids and args.
func alike(runs []store.NewRun) bool {
	first := &runs[0]
	for i := range runs {
		if run := &runs[i]; run.Trace != first.Trace || !numbers.SameLane(first, run) || !run.At.Equal(first.At) || run.Delay() != first.Delay() ||
			!run.ExpiresAt.Equal(first.ExpiresAt) || run.Timeout != first.Timeout || run.MaxAttempts != first.MaxAttempts ||
			run.OnCrash != first.OnCrash || !slices.Equal(run.Tags, first.Tags) || !maps.Equal(run.Metadata, first.Metadata) {
			return false
		}
	}
	return true
}

// alikeRuns are the parameters of runs that are alike.
type alikeRuns struct {
	lane   []any // id, queue, job, priority
	shared []any // what the runs have in common, from at to trace
	ids    conn.UUIDs
	args   []string
}

// alikeOf returns lane and shared in the order of EnqueueNewParams.
func alikeOf(runs []store.NewRun, set numbers.Places) alikeRuns {
	first := &runs[0]
	l := numbers.LaneOf(first)
	a := alikeRuns{ids: make(conn.UUIDs, len(runs)), args: make([]string, len(runs))}
	for i := range runs {
		a.ids[i], a.args[i] = runs[i].ID, string(runs[i].Args)
	}
	a.lane = []any{set.Lanes[l], l.Queue, l.Job, l.Priority}
	a.shared = []any{conn.TimeOrNull(first.At), conn.Micro(first.Delay()), conn.TimeOrNull(first.ExpiresAt), conn.Micro(first.Timeout),
		conn.Small(first.MaxAttempts), int16(first.OnCrash), conn.TextArray(first.Tags), first.Metadata.Text(), rules.TextOrNil(first.Trace)}
	return a
}
