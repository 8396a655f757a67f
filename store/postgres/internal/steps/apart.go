package steps

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
)

// apart takes notices one by one, after the database has refused to change a run of several, and
// puts back what it refuses, so that one run is in no other's way. An ended run that others wait for
// becomes a notice for each of them.
func (s *Steps) apart(ctx context.Context, most int, cause error) (result store.ReleaseResult, err error) {
	s.db.Log.Warn("the database refuses to change a run that is to be released; releasing one at a time", "event", "release.refused", "error", cause)
	for result.Taken < most {
		var r *round
		found := 0
		err := s.db.InAloofTx(ctx, func(tx pgx.Tx) error {
			r = &round{s: s, tx: tx}
			at := look{} // from the beginning
			taken, seen, err := s.take(ctx, tx, at, 1)
			found, result.Next = len(taken), at.next(seen)
			if err != nil || found == 0 {
				return err
			}
			return r.alone(ctx, taken[0])
		})
		if err != nil || found == 0 {
			return result, err
		}
		result.Taken++
		r.report(ctx, &result)
	}
	result.Next = 0
	return result, nil
}

// alone does what one notice asks for, within a savepoint, and puts it back if that is refused.
func (r *round) alone(ctx context.Context, n notice) error {
	whole := r.tx
	part, err := whole.Begin(ctx)
	if err != nil {
		return err
	}
	r.tx = part
	if n.kind == rules.NoticeEnded {
		err = r.split(ctx, n)
	} else {
		_, err = r.do(ctx, []notice{n})
	}
	if err == nil {
		return part.Commit(ctx)
	}
	if undone := part.Rollback(ctx); undone != nil || !conn.RefusesRows(err) {
		return errors.Join(err, undone)
	}
	r.s.db.Log.Warn("a run cannot be released, will be retried", "event", "release.set_aside", "run", n.run, "error", err)
	*r = round{s: r.s, tx: whole}
	r.back.add(n)
	return r.putBack(ctx)
}

// split leaves a notice for each run that waits for one that has ended.
func (r *round) split(ctx context.Context, n notice) error {
	waiters, err := r.expand(ctx, []notice{n})
	if err != nil {
		return err
	}
	for _, waiter := range waiters {
		r.back.put(waiter, 0)
	}
	return r.putBack(ctx)
}
