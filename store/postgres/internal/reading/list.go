package reading

import (
	"bytes"
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/examine"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Bounds of what is examined for one page.
const (
	pageFirst      = 1_000  // runs, by the key, in the first try: enough where most pass the filter
	pageSecond     = 4_000  // after the second: where one of a hundred does
	pageMost       = 20_000 // after the last, and of a list of ids
	pageProblems   = 2_000  // of dead and cancelled runs when not all of them pass
	unfinishedMost = 20_000 // rows of ready that are read for a list of pending runs
)

// lister is one list under way.
type lister struct {
	reader      *Reader
	to          conn.Sender // a pool, or the caller's transaction
	filter      *store.Filter
	from, below uuid.UUID
	limit       int
	states      []int16
	lanes       []int32 // that pass the filter; of all lanes when it names none
	allLanes    bool
	examined    int // runs that are compared with the filter when there is a floor
}

// Runs lists runs, newest first.
func (r *Reader) Runs(ctx context.Context, filter store.Filter) (store.Page, error) {
	if _, _, _, err := filter.Range(); err != nil {
		return store.Page{}, err
	}
	if err := r.schema.Usable(ctx); err != nil {
		return store.Page{}, r.db.Fail("runs", err)
	}
	ctx, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	page, err := r.PageFrom(ctx, r.db.Reading, filter)
	if err != nil {
		return store.Page{}, r.db.Fail("runs", err)
	}
	return page, nil
}

// PageFrom lists runs as a pool or a transaction sees them.
func (r *Reader) PageFrom(ctx context.Context, to conn.Sender, filter store.Filter) (store.Page, error) {
	l, err := r.lister(to, &filter)
	if err != nil {
		return store.Page{}, err
	}
	page, err := l.list(ctx)
	if err != nil {
		return store.Page{}, err
	}
	return page, r.addProgress(ctx, to, page.Runs)
}

// lister begins a list.
func (r *Reader) lister(to conn.Sender, filter *store.Filter) (*lister, error) {
	from, below, limit, err := filter.Range()
	if err != nil {
		return nil, err
	}
	l := &lister{reader: r, to: to, filter: filter, from: from, below: below, limit: limit, states: make([]int16, len(filter.States)),
		allLanes: len(filter.Jobs)+len(filter.Queues) == 0}
	for i, state := range filter.States {
		l.states[i] = int16(state)
	}
	return l, nil
}

// lines are the lanes that pass the filter, each with its line of isolated runs.
func (l *lister) lines() []int32 {
	lines := make([]int32, 0, 2*len(l.lanes))
	for _, lane := range l.lanes {
		lines = append(lines, lane, -lane)
	}
	return lines
}

// only reports whether the filter asks for no other states than these.
func (l *lister) only(states ...store.State) bool {
	return len(l.filter.States) > 0 && !slices.ContainsFunc(l.filter.States, func(s store.State) bool { return !slices.Contains(states, s) })
}

// list picks the way that finds the runs most quickly: through the tables that
// hold the unfinished, or the dead and cancelled ones, else along the key of
// runs. Of the unfinished, the newest runs are often enough.
func (l *lister) list(ctx context.Context) (store.Page, error) {
	if err := l.readLanes(ctx); err != nil || !l.allLanes && len(l.lanes) == 0 {
		return store.Page{}, err
	}
	if len(l.filter.IDs) > 0 {
		return l.these(ctx, l.filter.IDs, uuid.Nil)
	}
	if l.filter.Named() {
		return l.named(ctx)
	}
	if l.only(store.Dead, store.Cancelled) {
		return l.problems(ctx)
	}
	if !l.only(store.Pending, store.Running) {
		return l.walk(ctx, pageFirst, pageSecond, pageMost)
	}
	page, err := l.walk(ctx, pageFirst, pageSecond)
	if err != nil || len(page.Runs) == l.limit || page.Next == (store.RunID{}) {
		return page, err
	}
	page, few, err := l.unfinished(ctx)
	if few || err != nil {
		return page, err
	}
	return l.walk(ctx, pageMost)
}

// readLanes finds the lanes that pass the filter.
func (l *lister) readLanes(ctx context.Context) error {
	b := l.reader.db.Begin(ctx, l.to)
	b.Add(queries.FilteredLanes, conn.OrEmpty(l.filter.Jobs), conn.OrEmpty(l.filter.Queues)).Query(func(rows pgx.Rows) (err error) {
		l.lanes, err = pgx.CollectRows(rows, pgx.RowTo[int32])
		return err
	})
	return l.reader.db.Send(ctx, l.to, b)
}

// problems lists dead and cancelled runs: the newest ids of each lane, then the
// newest of those.
func (l *lister) problems(ctx context.Context) (store.Page, error) {
	most := l.limit + 1
	if l.narrow() {
		most = pageProblems
	}
	states := slices.Compact(slices.Sorted(slices.Values(l.states)))
	var ids conn.UUIDs
	b := l.reader.db.Begin(ctx, l.to)
	b.Add(queries.NewestProblems, states, l.lanes, l.below, l.from, conn.Small(most)).Query(func(rows pgx.Rows) error {
		ids = ids[:0]
		return conn.ScanIDs(rows, func(id uuid.UUID) { ids = append(ids, id) })
	})
	if err := l.reader.db.Send(ctx, l.to, b); err != nil || len(ids) == 0 {
		return store.Page{}, err
	}
	floor := uuid.Nil
	if len(ids) == most {
		floor, l.examined = ids[most-1], most
	}
	return l.these(ctx, ids, floor)
}

// narrow reports whether a run of the right state and lane may be none that is asked
// for.
func (l *lister) narrow() bool { return l.filter.Tag != "" || l.filter.Selects() }

// selected are the parameters of the block of this name.
func (l *lister) selected() []any {
	names, values := make([]string, 0, len(l.filter.Metadata)), make([]string, 0, len(l.filter.Metadata))
	for name, value := range l.filter.Metadata {
		names, values = append(names, name), append(values, value)
	}
	return []any{l.filter.Key, l.filter.Schedule, l.filter.Worker, conn.TimeOrNull(l.filter.EndedSince), names, values, l.filter.Error, conn.OrEmpty(l.filter.ArgsSpellings())}
}

// named lists runs of a key, of a schedule, of a batch, or with a link to another one, through an index.
func (l *lister) named(ctx context.Context) (page store.Page, err error) {
	for _, examined := range []int{pageFirst, pageMost} {
		ids, err := l.idsOfName(ctx, examined)
		if err != nil || len(ids) == 0 {
			return store.Page{}, err
		}
		floor := uuid.Nil
		if len(ids) == examined {
			floor, l.examined = ids[examined-1], examined
		}
		page, err = l.these(ctx, ids, floor)
		if err != nil || len(page.Runs) == l.limit || page.Next == (store.RunID{}) {
			return page, err
		}
	}
	return page, err
}

// idsOfName are the newest runs of the key, of the schedule, of the batch, or with the link, that is
// asked for.
func (l *lister) idsOfName(ctx context.Context, most int) (ids conn.UUIDs, err error) {
	b := l.reader.db.Begin(ctx, l.to)
	find, name := queries.RunsOfSchedule, any(l.filter.Schedule)
	switch {
	case l.filter.Parent != uuid.Nil:
		find, name = queries.ChildrenOf, l.filter.Parent
	case l.filter.WaitingOn != uuid.Nil:
		find, name = queries.DependentsOf, l.filter.WaitingOn
	case l.filter.Batch != uuid.Nil:
		find, name = queries.RunsOfBatch, l.filter.Batch
	case l.filter.Key != "":
		find, name = queries.RunsOfKey, l.filter.Key
	}
	b.Add(find, name, l.below, l.from, conn.Small(most)).Query(func(rows pgx.Rows) error {
		ids = ids[:0]
		return conn.ScanIDs(rows, func(id uuid.UUID) { ids = append(ids, id) })
	})
	return ids, l.reader.db.Send(ctx, l.to, b)
}

// unfinished lists pending and running runs, as long as few are pending.
func (l *lister) unfinished(ctx context.Context) (page store.Page, few bool, err error) {
	lanes := []int32{}
	if slices.Contains(l.filter.States, store.Pending) {
		lanes = l.lines()
	}
	var ids conn.UUIDs
	waiting, held := 0, 0
	b := l.reader.db.Begin(ctx, l.to)
	b.Add(queries.UnfinishedOf, lanes, int32(unfinishedMost), slices.Contains(l.filter.States, store.Running)).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.UnfinishedOfRow])
		ids, waiting, held = make(conn.UUIDs, 0, len(found)), 0, 0
		for _, row := range found {
			if bytes.Compare(row.RunID[:], l.below[:]) < 0 && bytes.Compare(row.RunID[:], l.from[:]) >= 0 {
				ids = append(ids, row.RunID)
			}
			if row.Waiting {
				waiting++
			} else {
				held++
			}
		}
		return err
	})
	if err := l.reader.db.Send(ctx, l.to, b); err != nil {
		return page, false, err
	}
	if slices.Contains(l.filter.States, store.Running) {
		more, err := examine.Stranded(ctx, l.reader.db, l.to, examine.Between(l.from, l.below, pageMost))
		if err != nil {
			return page, false, err
		}
		ids = append(ids, more...)
	}
	if waiting == unfinishedMost || held == 5*unfinishedMost {
		return page, false, nil
	}
	if len(ids) == 0 {
		return page, true, nil
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(b[:], a[:]) })
	ids = slices.Compact(ids)
	floor := uuid.Nil
	if enough := max(10*l.limit, pageFirst); !l.narrow() && len(ids) > enough {
		ids, floor, l.examined = ids[:enough], ids[enough-1], enough
	}
	page, err = l.these(ctx, ids, floor)
	return page, true, err
}

// these lists those of the ids that pass the filter. A floor says that ids below
// it have not been examined.
func (l *lister) these(ctx context.Context, ids conn.UUIDs, floor uuid.UUID) (store.Page, error) {
	return l.page(ctx, floor, queries.ListThese, ids)
}

// walk lists runs along their key, downwards, as far as the last bound goes. Each try
// continues where the one before has ended.
func (l *lister) walk(ctx context.Context, bounds ...int) (page store.Page, err error) {
	on := *l
	for _, bound := range bounds {
		var floor uuid.UUID
		b := on.reader.db.Begin(ctx, on.to)
		b.Add(queries.FloorOfRuns, on.below, on.from, conn.Small(bound-on.examined-1)).Query(func(rows pgx.Rows) error {
			return conn.ScanIDs(rows, func(id uuid.UUID) { floor = id })
		})
		if err := on.reader.db.Send(ctx, on.to, b); err != nil {
			return store.Page{}, err
		}
		on.examined = bound
		part, err := on.page(ctx, floor, queries.ListRuns)
		if err != nil {
			return store.Page{}, err
		}
		part.Runs = append(page.Runs, part.Runs...)
		if page = part; len(page.Runs) == l.limit || page.Next == (store.RunID{}) {
			break
		}
		on.below, on.limit = floor, l.limit-len(page.Runs)
	}
	return page, nil
}

// page reads the runs that pass the filter, down to the floor if there is one.
func (l *lister) page(ctx context.Context, floor uuid.UUID, list string, more ...any) (store.Page, error) {
	from := l.from
	if floor != uuid.Nil {
		from = floor
	}
	lanes := l.lanes
	if l.allLanes || lanes == nil {
		lanes = []int32{}
	}
	page := store.Page{Next: floor}
	if floor != uuid.Nil {
		page.Examined = l.examined
	}
	b := l.reader.db.Begin(ctx, l.to)
	args := append(more, l.below, from, l.states, l.allLanes, lanes, l.filter.Tag)
	args = append(append(args, l.selected()...), int32(l.limit+1)) //nolint:gosec // small
	b.Add(list, args...).Query(func(rows pgx.Rows) error {
		page.Runs = nil
		return scanRecords(&page.Runs)(rows)
	})
	if err := l.reader.db.Send(ctx, l.to, b); err != nil {
		return store.Page{}, err
	}
	if len(page.Runs) > l.limit {
		page.Runs, page.Examined = page.Runs[:l.limit], 0
		page.Next = page.Runs[l.limit-1].ID
	}
	return page, nil
}
