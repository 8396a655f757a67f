package sweep

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Sweep makes one step of the walk along the ids, and where that has come to
// its end, one of the full pass. It uses the pool of those who enqueue, not the
// workers' connections. A worker that enqueues nothing needs a connection of that pool
// for nothing else, and so closes it after the last step.
func (s *Sweeper) Sweep(ctx context.Context, request store.SweepRequest) (store.SweepResult, error) {
	if err := s.schema.Usable(ctx); err != nil {
		return store.SweepResult{}, s.db.Fail("sweep", err)
	}
	due, err := s.sweepDue(ctx, &request)
	if err != nil {
		return store.SweepResult{}, s.db.Fail("sweep", err)
	}
	if !due {
		return store.SweepResult{Done: true}, nil
	}
	if !s.db.Shared && s.db.General.Stat().TotalConns() == 0 {
		s.opens.Store(true)
	}
	done, err := s.sweepStep(ctx, &request)
	if (err != nil || done.Busy || done.Done) && s.opens.CompareAndSwap(true, false) {
		s.db.General.Reset()
	}
	if err != nil {
		return store.SweepResult{}, s.db.Fail("sweep", err)
	}
	return done, nil
}

func (s *Sweeper) sweepStep(ctx context.Context, request *store.SweepRequest) (store.SweepResult, error) {
	var step *sweeping
	err := s.db.Repeat(ctx, func() error {
		return conn.InTx(ctx, s.db.General, func(tx pgx.Tx) error {
			step = &sweeping{sweeper: s, tx: tx, queries: s.db.Queries(tx), request: request}
			return step.run(ctx)
		})
	})
	if err != nil {
		return store.SweepResult{}, err
	}
	s.wake.HintFreed(step.freed, step.freed)
	s.prune(ctx, step)
	if step.done.Mended+step.done.Repaired > 0 || slices.ContainsFunc(step.done.Returned, func(r store.ReclaimedRun) bool { return r.State == store.Pending }) {
		s.wake.Hint()
	}
	return step.done, nil
}

// sweepDue asks without locks whether there is anything to look at: mostly there
// is not.
func (s *Sweeper) sweepDue(ctx context.Context, request *store.SweepRequest) (due bool, err error) {
	var age *int64
	if d := rules.WalkAge(request); d < rules.Forever {
		micros := conn.Micro(d)
		age = &micros
	}
	b := s.db.Guarded(ctx)
	b.Add(queries.SweepDue, conn.Micro(rules.PassLeast), conn.Micro(rules.PassStep), int64(sweepBlocks), conn.Micro(store.SweepPassEvery), age).QueryRow(func(row pgx.Row) error { return row.Scan(&due) })
	return due, s.db.SendInBackground(ctx, b)
}

const (
	// sweepBlocks are the blocks of one step of the full pass, 8 MiB: about ten
	// thousand runs, examined in a few milliseconds.
	sweepBlocks = 1024
	day         = 24 * time.Hour
)

// sweeping is one step under way.
type sweeping struct {
	sweeper *Sweeper
	tx      pgx.Tx
	queries *queries.Queries
	request *store.SweepRequest
	now     time.Time // the database's
	own     string    // retention by lane, as JSON, of the jobs that have one of their own
	longest time.Duration
	done    store.SweepResult
	freed   []store.LineID // the lines of turns for places that were freed
	failed  int            // statements that the database has refused
	workers time.Duration  // workers that have not declared themselves for as long go; zero: none
	begins  bool           // a full pass does
}

func (w *sweeping) run(ctx context.Context) error {
	b := w.sweeper.db.Guarded(ctx)
	b.Add(queries.Idle)
	if err := w.sweeper.db.Send(ctx, w.tx, b); err != nil {
		return err
	}
	lock, err := w.queries.TryEvaluate(ctx, queries.TryEvaluateParams{Key: w.sweeper.db.Names.Key("sweep")})
	if err != nil || !lock.Mine {
		w.done.Busy = err == nil
		return err
	}
	w.now = lock.Now
	if err := w.queries.BeginSweep(ctx); err != nil {
		return err
	}
	place, err := w.queries.SweepPlace(ctx, queries.SweepPlaceParams{
		Sweeper: w.request.By, Tenure: conn.Micro(store.SweepTenure),
		Least: conn.Micro(rules.PassLeast), Step: conn.Micro(rules.PassStep), BlocksAStep: sweepBlocks, Every: conn.Micro(store.SweepPassEvery),
	})
	if err != nil || place.Taken {
		w.done.Busy = err == nil
		return err
	}
	if err := w.readRetentions(ctx); err != nil {
		return err
	}
	return w.step(ctx, &place)
}

// readRetentions reads how long jobs keep their runs by rules of their own.
func (w *sweeping) readRetentions(ctx context.Context) error {
	rows, err := w.queries.OwnRetentions(ctx)
	if err != nil {
		return err
	}
	own := map[string]int64{}
	w.longest = max(rules.Kept(w.request.Retention), rules.Kept(w.request.RetentionDead))
	for _, row := range rows {
		d := rules.Kept(conn.FromMicro(row.Retention))
		own[strconv.Itoa(int(row.ID))] = conn.Micro(d)
		w.longest = max(w.longest, d)
	}
	text, err := json.Marshal(own)
	w.own = string(text)
	return err
}

// step examines the next runs, deletes what is over, and moves on.
func (w *sweeping) step(ctx context.Context, place *queries.SweepPlaceRow) error {
	found, more, err := w.ahead(ctx, place)
	if err != nil {
		return err
	}
	begins := !more && place.Block < 0 && place.Due
	if begins {
		place.Block, w.begins = 0, true
		if after := max(w.longest, rules.WorkersKept-day); after < rules.Forever-day {
			w.workers = after + day
		}
	}
	block := place.Block
	if !more && block >= 0 {
		if found, err = w.pass(ctx, place, found); err != nil {
			return err
		}
	}
	if err := w.deleteRuns(ctx, found); err != nil {
		return err
	}
	if !more && block >= 0 && place.Block == block && w.done.Deleted+len(w.done.Returned)+w.done.Mended == 0 {
		place.Block++ // all that was found in it is another process's at this moment
	}
	w.done.Done = !more && place.Block < 0
	move := queries.MoveSweepParams{Position: place.Position, Block: place.Block, Begins: begins}
	if !w.done.Done {
		move.Sweeper = &w.request.By
	}
	return w.queries.MoveSweep(ctx, move)
}

// ahead examines the next runs along the ids and moves the position past them.
// more reports whether there are others that are old enough.
func (w *sweeping) ahead(ctx context.Context, place *queries.SweepPlaceRow) (found conn.UUIDs, more bool, err error) {
	age := rules.WalkAge(w.request)
	if age == rules.Forever {
		return nil, false, nil
	}
	last, n := place.Position, 0
	err = w.part(ctx, func(b *conn.Batch) {
		b.Add(queries.SweepAhead, w.own, conn.Micro(rules.Kept(w.request.RetentionDead)), conn.Micro(rules.Kept(w.request.Retention)),
			place.Position, firstID(w.now.Add(-age)), conn.Small(w.request.Limit)).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var over bool
				if err := rows.Scan((*conn.BinaryUUID)(&last), &over); err != nil {
					return err
				}
				if n++; over {
					found = append(found, last)
				}
			}
			return rows.Err()
		})
	})
	if err != nil { // a row that cannot be read: the full pass finds what is before and behind its block
		return nil, false, w.goOn(err, "walk", place.Position.String())
	}
	place.Position = last
	return found, n >= w.request.Limit && n > 0, nil
}

// firstID is the smallest id that a client may have made at an instant.
func firstID(at time.Time) uuid.UUID {
	var id uuid.UUID
	for i, rest := 5, max(at.UnixMilli(), 0); i >= 0; i-- {
		id[i] = byte(rest)
		rest >>= 8
	}
	return id
}

// pass examines the next blocks of the table, hands back what is stranded, and
// returns what is over besides what was found before.
func (w *sweeping) pass(ctx context.Context, place *queries.SweepPlaceRow, found conn.UUIDs) (conn.UUIDs, error) {
	from, most := place.Block, max(w.request.Limit-len(found), 1)
	for blocks := int64(sweepBlocks); ; blocks /= 2 { // fewer, when one of them cannot be read
		seen := blocksSeen{claims: map[string]string{}, last: from}
		err := w.part(ctx, func(b *conn.Batch) {
			b.Add(queries.SweepBlocks, from, from+blocks, w.own, conn.Micro(rules.Kept(w.request.RetentionDead)), conn.Micro(rules.Kept(w.request.Retention)), conn.Small(most)).
				Query(seen.scan)
		})
		if conn.RefusesRows(err) && blocks > 1 {
			continue
		}
		if err := w.goOn(err, "block", strconv.FormatInt(from, 10)); err != nil {
			return nil, err
		}
		if place.Block = from + blocks; seen.n >= most {
			place.Block = seen.last // there may be more in it
		} else if place.Block >= place.Blocks {
			place.Block = -1
		}
		if err := w.mend(ctx, seen.unready); err != nil {
			return nil, err
		}
		return append(found, seen.over...), w.returnRuns(ctx, seen.claims, slices.Collect(maps.Keys(seen.claims)))
	}
}

// blocksSeen is what was found in some blocks.
type blocksSeen struct {
	n       int
	last    int64             // the last block
	over    conn.UUIDs        // runs to delete
	unready conn.UUIDs        // pending runs that are in no line, or in one that no worker reads
	claims  map[string]string // of running runs whose claims have no lease, by the runs
}

func (s *blocksSeen) scan(rows pgx.Rows) error {
	for rows.Next() {
		var id uuid.UUID
		var claim *uuid.UUID
		var state int16
		if err := rows.Scan((*conn.BinaryUUID)(&id), &claim, &s.last, &state); err != nil {
			return err
		}
		switch s.n++; {
		case store.State(state) == store.Pending:
			s.unready = append(s.unready, id)
		case store.State(state) != store.Running:
			s.over = append(s.over, id)
		case claim != nil:
			s.claims[id.String()] = claim.String()
		default:
			s.claims[id.String()] = ""
		}
	}
	return rows.Err()
}

// mend puts pending runs back into their lines, in halves when the database
// refuses.
func (w *sweeping) mend(ctx context.Context, ids conn.UUIDs) error {
	if len(ids) == 0 || w.failed >= sweepFailures {
		return nil
	}
	mended := 0
	err := w.part(ctx, func(b *conn.Batch) {
		mended = 0
		each := func(tag pgconn.CommandTag) error {
			mended += int(tag.RowsAffected())
			return nil
		}
		b.Add(queries.MendReady, ids).Exec(each)
		b.Add(queries.MendWaiting, ids).Exec(each)
		b.Add(queries.MendLines, ids).Exec(each)
	})
	if half := len(ids) / 2; conn.RefusesRows(err) && half > 0 {
		if err := w.mend(ctx, ids[:half]); err != nil {
			return err
		}
		return w.mend(ctx, ids[half:])
	}
	if err != nil {
		return w.goOn(err, "run", ids[0].String())
	}
	w.done.Mended += mended
	return nil
}

// returnRuns hands back those of the runs that still have their claim, in halves
// when the database refuses.
func (w *sweeping) returnRuns(ctx context.Context, claims map[string]string, some []string) error {
	if len(some) == 0 || w.failed >= sweepFailures {
		return nil
	}
	ids := make(conn.UUIDs, len(some))
	for i, id := range some {
		ids[i] = uuid.MustParse(id)
	}
	text, err := json.Marshal(claims)
	if err != nil {
		return err
	}
	var found []queries.ReturnRunsRow
	err = w.part(ctx, func(b *conn.Batch) {
		b.Add(queries.ReturnRuns, ids, string(text), rules.StrandedDead).Query(func(rows pgx.Rows) error {
			found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[queries.ReturnRunsRow])
			return err
		})
	})
	if half := len(some) / 2; conn.RefusesRows(err) && half > 0 {
		if err := w.returnRuns(ctx, claims, some[:half]); err != nil {
			return err
		}
		return w.returnRuns(ctx, claims, some[half:])
	}
	if err != nil {
		return w.goOn(err, "run", some[0])
	}
	for _, row := range found {
		w.freed = append(w.freed, row.Freed...)
		w.done.Returned = append(w.done.Returned, store.ReclaimedRun{
			ID: row.ID, Lane: row.Lane, Job: row.Job, Queue: row.Queue, Worker: row.Worker,
			State: store.State(row.State), CrashCount: int(row.CrashCount),
		})
	}
	return nil
}

// deleteRuns deletes those of the runs that are still over, and all that is
// theirs, in halves when the database refuses.
func (w *sweeping) deleteRuns(ctx context.Context, ids conn.UUIDs) error {
	if len(ids) == 0 || w.failed >= sweepFailures {
		return nil
	}
	var swept queries.SweepRunsRow
	err := w.part(ctx, func(b *conn.Batch) {
		b.Add(queries.SweepRuns, ids, w.own, conn.Micro(rules.Kept(w.request.RetentionDead)), conn.Micro(rules.Kept(w.request.Retention))).
			QueryRow(func(row pgx.Row) error { return row.Scan(&swept.Deleted, &swept.Freed) })
		b.Add(queries.SweepRests, ids)
	})
	if half := len(ids) / 2; conn.RefusesRows(err) && half > 0 {
		if err := w.deleteRuns(ctx, ids[:half]); err != nil {
			return err
		}
		return w.deleteRuns(ctx, ids[half:])
	}
	if err != nil {
		return w.goOn(err, "run", ids[0].String())
	}
	w.done.Deleted += int(swept.Deleted)
	w.freed = append(w.freed, swept.Freed...)
	return nil
}
