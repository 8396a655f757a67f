package steps

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// notice says what happened to a run, or to one that it waits for.
type notice struct {
	named

	kind   rules.Notice
	tries  int16
	cursor uuid.UUID // of NoticeEnded: the waiters up to here were looked at
	look   bool      // asked for by a worker: no notice has to be put back, as another one is there
}

// dooms reports whether the run is to be cancelled.
func (n *notice) dooms() bool { return n.kind == rules.NoticeOrphan || n.kind == rules.NoticeMember }

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
	at := s.mark.begin()
	if len(looks) == 0 {
		result.Next, err = s.next(ctx, at)
		switch {
		case err != nil:
			return result, s.db.Fail("release", err)
		case result.Next != 0:
			return result, nil
		}
	}
	result, err = s.together(ctx, at, max(request.Limit, 1), looks)
	if conn.RefusesRows(err) {
		result, err = s.apart(ctx, max(request.Limit, 1), err)
	}
	if err != nil {
		return store.ReleaseResult{Next: -1}, s.db.Fail("release", err)
	}
	return result, nil
}

// together takes notices, and does what they and the looks ask for, in one transaction.
func (s *Steps) together(ctx context.Context, at look, most int, looks []notice) (result store.ReleaseResult, err error) {
	var r *round
	var seen ahead
	err = s.db.InAloofTx(ctx, func(tx pgx.Tx) error {
		result = store.ReleaseResult{Next: -1}
		r = &round{s: s, tx: tx}
		taken, found, err := s.take(ctx, tx, at, most)
		if err != nil {
			return err
		}
		seen = found
		result.Taken, result.Next = len(taken), at.next(found)
		if taken = append(taken, looks...); len(taken) == 0 {
			return nil
		}
		again, err := r.do(ctx, taken)
		if again >= 0 && (result.Next < 0 || again < result.Next) {
			result.Next = again
		}
		return err
	})
	if err == nil {
		s.mark.end(at, seen)
		r.report(ctx, &result)
	}
	return result, err
}

// arrived returns those of the looks whose inputs are there, or whose children have ended.
func (s *Steps) arrived(ctx context.Context, looks []store.Look) (found []notice, err error) {
	if len(looks) == 0 {
		return nil, nil
	}
	var inputs, children columns
	for _, look := range looks {
		c := &inputs
		if look.Kind == store.StepChildren {
			c = &children
		}
		c.runs, c.names = append(c.runs, look.Run), append(c.names, look.Name)
	}
	b := s.db.HotAloof(ctx)
	add := func(statement string, kind rules.Notice, c *columns) {
		if len(c.runs) == 0 {
			return
		}
		b.Add(statement, c.runs, c.names).Query(func(rows pgx.Rows) error {
			return scanNamed(rows, func(at named) { found = append(found, notice{named: at, kind: kind, look: true}) })
		})
	}
	add(queries.Arrived, rules.NoticeInput, &inputs)
	add(queries.ArrivedChildren, rules.NoticeLook, &children)
	err = s.db.Send(ctx, s.db.Aloof(), b)
	return found, err
}

// next returns how long it is until the next notice is due; negative: there is none. Idle workers
// ask, so it keeps no connection of the general pool open.
func (s *Steps) next(ctx context.Context, at look) (time.Duration, error) {
	var seen ahead
	b := s.db.Hot(ctx)
	addNext(b, at, &seen)
	err := s.db.Send(ctx, s.db.Engine, b)
	if seen.took = lease.Elapsed() - at.began; err == nil {
		s.mark.end(at, seen)
	}
	return at.next(seen), err
}

func addNext(b *conn.Batch, at look, seen *ahead) {
	b.Add(queries.NextNotice, at.since).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(&seen.now, &seen.due); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// take takes the notices that are due, and returns what it has left.
func (s *Steps) take(ctx context.Context, tx pgx.Tx, at look, most int) (taken []notice, seen ahead, err error) {
	b := s.db.GuardedFor(ctx, conn.HeldLimit)
	b.Add(queries.TakeNotices, at.since, most).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var n notice
			var cursor *uuid.UUID
			if err := rows.Scan(&n.run, &n.kind, &n.name, &n.tries, &cursor); err != nil {
				return err
			}
			if cursor != nil {
				n.cursor = *cursor
			}
			taken = append(taken, n)
		}
		return rows.Err()
	})
	addNext(b, at, &seen)
	err = s.db.Send(ctx, tx, b)
	seen.took, seen.taken = lease.Elapsed()-at.began, len(taken)
	return taken, seen, err
}

// released is how many runs of a lane a release has made due.
type released struct {
	lane    int32
	limited bool
	runs    int
}

// noticed are notices as the arrays of a statement.
type noticed struct {
	runs    conn.UUIDs
	kinds   []int16
	names   []string
	cursors []string
	tries   []int16
	pauses  []int64
}

// add has a notice looked at again, the later the more often that was done before.
func (d *noticed) add(n notice) {
	pause := rules.NoticePause(int(n.tries))
	n.tries = min(n.tries+1, mostTries)
	d.put(n, pause)
}

// put has a notice looked at after a pause.
func (d *noticed) put(n notice, pause time.Duration) {
	cursor := ""
	if n.cursor != uuid.Nil {
		cursor = n.cursor.String()
	}
	d.runs, d.names, d.kinds = append(d.runs, n.run), append(d.names, n.name), append(d.kinds, int16(n.kind))
	d.tries, d.pauses, d.cursors = append(d.tries, n.tries), append(d.pauses, conn.Micro(pause)), append(d.cursors, cursor)
}

// mostTries is where the count of a notice's tries stops.
const mostTries = 100
