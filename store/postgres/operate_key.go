package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// errPassedOver rolls back what was done for a run that could not be changed.
var errPassedOver = errors.New("the run was skipped")

// changeKeyed retries or deletes one run that has a unique key, in a transaction
// of its own: it waits, shortly, for the row of the key, and holds nothing
// meanwhile.
func (s *Store) changeKeyed(ctx context.Context, command *store.RunCommand, row *queries.OperableRow, done *changes) error {
	err := s.db.Repeat(ctx, func() error {
		return conn.InTx(ctx, s.db.General, func(tx pgx.Tx) error {
			o := &operation{store: s, tx: tx, command: command, answers: map[uuid.UUID]store.ChangedRun{
				row.ID: {ID: row.ID, State: store.State(row.State)},
			}}
			b := s.db.GuardedFor(ctx, conn.HeldLimit)
			b.Add(queries.Idle)
			if err := s.db.Send(ctx, tx, b); err != nil {
				return err
			}
			holder, conflict, err := o.lockKey(ctx, row)
			switch {
			case err != nil:
				return err
			case conflict:
				o.answers[row.ID] = store.ChangedRun{ID: row.ID, Result: store.RunConflict, State: store.State(row.State), Key: row.Key, KeyHolder: holder}
			default:
				if err := o.act(ctx, []queries.OperableRow{*row}, true); err != nil {
					return err
				}
				if o.answers[row.ID].Result == "" {
					return errPassedOver // and the key goes back
				}
			}
			done.add(o)
			if conflict {
				return errPassedOver
			}
			return nil
		})
	})
	if c := conn.Code(err); errors.Is(err, errPassedOver) || c == conn.LockNotAvailable {
		return nil
	}
	return err
}

// lockKey locks the row of the run's key and gives it to a run that is retried,
// unless another run holds it: one that has not ended, or whose time is not
// over. It takes it from a run that is deleted.
func (o *operation) lockKey(ctx context.Context, row *queries.OperableRow) (holder uuid.UUID, conflict bool, err error) {
	q := o.store.db.Queries(o.tx)
	if o.command.Action == store.DeleteRuns {
		if err := q.LockKeyOf(ctx, queries.LockKeyOfParams{Job: row.Job, Key: row.Key}); err != nil {
			return row.ID, false, err
		}
		return row.ID, false, q.ReleaseKey(ctx, queries.ReleaseKeyParams{Job: row.Job, Key: row.Key, RunID: row.ID})
	}
	found, err := q.LockKey(ctx, queries.LockKeyParams{Job: row.Job, Key: row.Key, RunID: row.ID})
	if err != nil || found.RunID == row.ID {
		return row.ID, false, err
	}
	unfinished, err := q.Unfinished(ctx, queries.UnfinishedParams{ID: found.RunID})
	if err != nil || !rules.RegainsKey(store.KeyHolder{Stored: unfinished, State: store.Pending, Held: found.Held}) {
		return found.RunID, true, err
	}
	return row.ID, false, q.TakeKey(ctx, queries.TakeKeyParams{Job: row.Job, Key: row.Key, RunID: row.ID})
}

// Reveal records that an operator is shown what is hidden of a run.
func (s *Store) Reveal(ctx context.Context, run store.RunID, reason, by string) error {
	if err := store.CheckReveal(reason, by); err != nil {
		return err
	}
	if err := s.schema.Usable(ctx); err != nil {
		return s.db.Fail("reveal", err)
	}
	var noted []int64
	err := s.db.Repeat(ctx, func() (err error) {
		noted, err = s.db.Queries(s.db.General).AuditReveal(ctx, queries.AuditRevealParams{
			Actor: by, Kind: rules.KindRun, Action: rules.Reveals, Detail: string(store.RevealDetail(reason)), ID: run,
		})
		return err
	})
	if err == nil && len(noted) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return s.db.Fail("reveal", err)
	}
	return nil
}

// CancelRequests returns the running runs of the claims that are to be cancelled.
func (s *Store) CancelRequests(ctx context.Context, claims []lease.ClaimID) ([]store.CancelRequest, error) {
	if err := s.schema.Usable(ctx); err != nil {
		return nil, s.db.Fail("cancel requests", err)
	}
	var requests []store.CancelRequest
	b := s.db.Guarded(ctx)
	b.Add(queries.CancelRequests, conn.ClaimIDs(claims)).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.CancelRequestsRow])
		requests = nil
		for _, row := range found {
			requests = append(requests, store.CancelRequest{Claim: lease.ClaimID(row.ClaimID), Run: row.RunID, Reason: row.Reason})
		}
		return err
	})
	if err := s.db.Send(ctx, s.db.Engine, b); err != nil {
		return nil, s.db.Fail("cancel requests", err)
	}
	return requests, nil
}
