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

// notice is an input that may have to make its run due.
type notice struct {
	named

	tries int16
	look  bool // asked for by a worker: no notice has to be put back, as one of the sender's is there
}

// Release makes runs due whose inputs have come; see store.Releaser.
func (s *Steps) Release(ctx context.Context, request store.ReleaseRequest) (store.ReleaseResult, error) {
	result := store.ReleaseResult{Next: -1}
	if err := s.schema.Usable(ctx); err != nil {
		return result, s.db.Fail("release", err)
	}
	looks, err := s.arrived(ctx, request.Look)
	if err != nil {
		return result, s.db.Fail("release", err)
	}
	if len(looks) == 0 {
		result.Next, err = s.next(ctx)
		switch {
		case err != nil:
			return result, s.db.Fail("release", err)
		case result.Next != 0:
			return result, nil
		}
	}
	var due []released
	err = s.db.InAloofTx(ctx, func(tx pgx.Tx) error {
		due, result.Taken, result.Next = nil, 0, -1
		taken, next, err := s.take(ctx, tx, max(request.Limit, 1))
		if err != nil {
			return err
		}
		result.Taken, result.Next = len(taken), next
		if taken = append(taken, looks...); len(taken) == 0 {
			return nil
		}
		var again time.Duration
		due, again, err = s.releaseTaken(ctx, tx, taken)
		if again > 0 && (result.Next < 0 || again < result.Next) {
			result.Next = again
		}
		return err
	})
	if err != nil {
		return store.ReleaseResult{Next: -1}, s.db.Fail("release", err)
	}
	for _, lane := range due {
		result.Released += lane.runs
		s.wake.Released(lane.lane, lane.limited, lane.runs)
	}
	return result, nil
}

// arrived returns those of the looks whose inputs are there.
func (s *Steps) arrived(ctx context.Context, looks []store.Look) (found []notice, err error) {
	if len(looks) == 0 {
		return nil, nil
	}
	var runs conn.UUIDs
	var names []string
	for _, look := range looks {
		runs, names = append(runs, look.Run), append(names, look.Name)
	}
	b := s.db.Hot(ctx)
	b.Add(queries.Arrived, runs, names).Query(func(rows pgx.Rows) error {
		return scanNamed(rows, func(at named) { found = append(found, notice{named: at, look: true}) })
	})
	err = s.db.Send(ctx, s.db.Aloof(), b)
	return found, err
}

// next returns how long it is until the next notice is due; negative: there is none.
func (s *Steps) next(ctx context.Context) (next time.Duration, err error) {
	b := s.db.Hot(ctx)
	addNext(b, &next)
	err = s.db.Send(ctx, s.db.Aloof(), b)
	return next, err
}

func addNext(b *conn.Batch, next *time.Duration) {
	*next = -1
	b.Add(queries.NextNotice).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var micros int64
			if err := rows.Scan(&micros); err != nil {
				return err
			}
			*next = max(conn.FromMicro(micros), 0)
		}
		return rows.Err()
	})
}

// take takes the notices that are due, and returns how long it is until the next one.
func (s *Steps) take(ctx context.Context, tx pgx.Tx, most int) (taken []notice, next time.Duration, err error) {
	b := s.db.GuardedFor(ctx, conn.HeldLimit)
	b.Add(queries.TakeNotices, most).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var n notice
			if err := rows.Scan(&n.run, &n.name, &n.tries); err != nil {
				return err
			}
			taken = append(taken, n)
		}
		return rows.Err()
	})
	addNext(b, &next)
	err = s.db.Send(ctx, tx, b)
	return taken, next, err
}

// released is how many runs of a lane a release has made due.
type released struct {
	lane    int32
	limited bool
	runs    int
}

// releaseTaken locks the runs of notices, makes due those that can be, and puts back what has to
// be looked at again: the first of it after the pause that is returned.
func (s *Steps) releaseTaken(ctx context.Context, tx pgx.Tx, taken []notice) (due []released, again time.Duration, err error) {
	var ids conn.UUIDs
	var names []string
	for i := range taken {
		ids, names = append(ids, taken[i].run), append(names, taken[i].name)
	}
	locked, ended, awaiting := map[uuid.UUID]bool{}, map[uuid.UUID]bool{}, map[uuid.UUID]bool{}
	for i := range taken {
		ended[taken[i].run] = true // it is gone, unless a row says otherwise
	}
	b := s.db.NewBatch()
	b.Add(queries.LockNoticed, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id uuid.UUID
			var isEnded, isLocked bool
			if err := rows.Scan(&id, &isEnded, &isLocked); err != nil {
				return err
			}
			ended[id], locked[id] = isEnded, isLocked
		}
		return rows.Err()
	})
	b.Add(queries.Awaiting, ids, names).Query(func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(id uuid.UUID) { awaiting[id] = true })
	})
	if err := s.db.Send(ctx, tx, b); err != nil {
		return nil, 0, err
	}
	var free conn.UUIDs
	var back noticed
	for _, n := range taken {
		switch {
		case locked[n.run] && awaiting[n.run]:
			free = append(free, n.run)
		case locked[n.run]: // it reads the input when it is executed next
		case !ended[n.run] && !n.look:
			back.add(n)
		}
	}
	if len(back.pauses) > 0 {
		again = conn.FromMicro(slices.Min(back.pauses))
	}
	due, err = s.write(ctx, tx, free, &back)
	return due, again, err
}

// noticed are notices as the arrays of a statement.
type noticed struct {
	runs   conn.UUIDs
	names  []string
	tries  []int16
	pauses []int64
}

func (d *noticed) add(n notice) {
	d.runs, d.names = append(d.runs, n.run), append(d.names, n.name)
	d.tries = append(d.tries, min(n.tries+1, mostTries))
	d.pauses = append(d.pauses, conn.Micro(rules.NoticePause(int(n.tries))))
}

// mostTries is where the count of a notice's tries stops.
const mostTries = 100

// write puts back the notices that have to be looked at again, and makes due the runs that are
// free.
func (s *Steps) write(ctx context.Context, tx pgx.Tx, free conn.UUIDs, back *noticed) (due []released, err error) {
	b := s.db.NewBatch()
	if len(back.runs) > 0 {
		b.Add(queries.PutBackNotices, back.runs, back.tries, back.pauses, back.names)
	}
	if len(free) > 0 {
		b.Add(queries.ReleaseReady, free).Query(scanReleased(&due, false))
		b.Add(queries.ReleaseWaiting, free).Query(scanReleased(&due, true))
	}
	if len(back.runs)+len(free) == 0 {
		return nil, nil
	}
	err = s.db.Send(ctx, tx, b)
	return due, err
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
