package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// locks are the named locks of a store.
type locks struct{ store *Store }

// Locks returns the named locks of the store: rows of its table locks. They
// need no session and no LISTEN, so they work through a transaction pooler.
func (s *Store) Locks() lock.Locks { return locks{s} }

// Acquire takes a free slot of a name. The rows of a new name are made first.
func (l locks) Acquire(ctx context.Context, request lock.Request) (lock.Answer, error) {
	if err := request.Validate(); err != nil {
		return lock.Answer{}, fmt.Errorf("acquire lock: %w", err)
	}
	s := l.store
	if err := s.schema.Usable(ctx); err != nil {
		return lock.Answer{}, s.db.Fail("acquire lock", err)
	}
	var answer lock.Answer
	var present int
	ask := func() error {
		b := s.db.Guarded(ctx)
		b.Add(queries.AcquireLock, conn.Small(request.Slots), request.Name, uuid.UUID(request.Claim), conn.Micro(request.Duration), request.Owner).
			Query(scanAnswer(&answer, &present))
		err := s.db.Send(ctx, s.db.General, b)
		if conn.Code(err) == conn.UniqueViolation { // the same claim is being asked for by another call
			return errSameClaim
		}
		return err
	}
	err := s.db.Repeat(ctx, func() error { return again(ask) })
	if err == nil && !answer.Granted && present < request.Slots {
		err = s.db.Repeat(ctx, func() error { return l.makeSlots(ctx, request) })
		if err == nil {
			err = s.db.Repeat(ctx, func() error { return again(ask) })
		}
	}
	if err != nil {
		return lock.Answer{}, l.fail("acquire lock", err)
	}
	return answer, nil
}

// fail is Store.fail. It says of an error that concerns the rows of one lock that it does.
func (l locks) fail(what string, err error) error {
	if conn.Code(err) == conn.LockNotAvailable || conn.RefusesRows(err) {
		err = fmt.Errorf("%w: %w", lock.ErrRefused, err)
	}
	return l.store.db.Fail(what, err)
}

var errSameClaim = fmt.Errorf("%w: the claim was given back, or another call has it", lock.ErrRefused)

// again asks a few times while another call asks for the same claim.
func again(ask func() error) error {
	err := ask()
	for range 3 {
		if err != errSameClaim { //nolint:errorlint // our own, never wrapped
			break
		}
		err = ask()
	}
	return err
}

func scanAnswer(answer *lock.Answer, present *int) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*answer = lock.Answer{}
		for rows.Next() {
			var slot *int
			var fence *int64
			var expired *bool
			var freeIn int64
			if err := rows.Scan(&slot, &fence, &expired, present, &freeIn); err != nil {
				return err
			}
			if slot == nil {
				answer.FreeIn = conn.FromMicro(freeIn)
				continue
			}
			*answer = lock.Answer{Granted: true, Slot: *slot, Fence: lease.Fence(*fence), TookOver: *expired}
		}
		return rows.Err()
	}
}

// makeSlots stores the rows that a name lacks, and deletes some that no claim
// wants any more.
func (l locks) makeSlots(ctx context.Context, request lock.Request) error {
	b := l.store.db.Guarded(ctx)
	b.Add(queries.InsertLocks, request.Name, conn.Small(request.Slots))
	b.Add(queries.DeleteOldLocks)
	return l.store.db.Send(ctx, l.store.db.General, b)
}

// Renew extends every named claim that still holds its slot, on connections that only
// renewals use. Where a transaction holds the row of one of them, the others are renewed.
func (l locks) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	s := l.store
	var renewed []lease.ClaimID
	err := s.db.Repeat(ctx, func() error {
		b := s.db.Guarded(ctx)
		b.Add(queries.RenewLocks, conn.Micro(d), conn.ClaimIDs(claims)).Query(func(rows pgx.Rows) error {
			renewed = make([]lease.ClaimID, 0, len(claims))
			return conn.ScanIDs(rows, func(id uuid.UUID) { renewed = append(renewed, lease.ClaimID(id)) })
		})
		return s.db.Beats.Send(ctx, b)
	})
	if conn.Code(err) == conn.LockNotAvailable && len(claims) > 1 {
		return l.renewFree(ctx, claims, d, err)
	}
	if err != nil {
		return nil, l.fail("renew locks", err)
	}
	return renewed, nil
}

// renewFree renews the claims whose rows no transaction holds. Of the others nothing is known.
func (l locks) renewFree(ctx context.Context, claims []lease.ClaimID, d time.Duration, why error) ([]lease.ClaimID, error) {
	s := l.store
	var renewed, unknown []lease.ClaimID
	err := s.db.Repeat(ctx, func() error {
		b := s.db.Guarded(ctx)
		b.Add(queries.RenewFreeLocks, conn.ClaimIDs(claims), conn.Micro(d)).Query(func(rows pgx.Rows) error {
			renewed, unknown = nil, nil
			for rows.Next() {
				var id uuid.UUID
				var extended bool
				if err := rows.Scan(&id, &extended); err != nil {
					return err
				}
				if extended {
					renewed = append(renewed, lease.ClaimID(id))
				} else {
					unknown = append(unknown, lease.ClaimID(id))
				}
			}
			return rows.Err()
		})
		return s.db.Beats.Send(ctx, b)
	})
	if err != nil {
		return nil, l.fail("renew locks", err)
	}
	if len(unknown) == 0 {
		return renewed, nil
	}
	return renewed, l.fail("renew locks", &lease.UnknownError{Claims: unknown, Err: why})
}

// refusedFor is how long a claim is refused that was given back before it came.
const refusedFor = time.Hour

// Release frees the slot that the claim holds. When it holds none, an acquisition may still be
// on its way: it is refused when it comes.
func (l locks) Release(ctx context.Context, name string, claim lease.ClaimID) (bool, error) {
	if err := lock.CheckName(name); err != nil {
		return false, fmt.Errorf("release lock: %w", err)
	}
	release := func() (bool, error) {
		return l.free(ctx, queries.ReleaseLock, l.store.db.Names.FreedChannel(), name, uuid.UUID(claim))
	}
	freed, err := release()
	if err == nil && !freed {
		var refused bool
		if refused, err = l.refuse(ctx, claim); err == nil && !refused {
			freed, err = release() // it came in between
		}
	}
	if err != nil {
		return false, l.fail("release lock", err)
	}
	return freed, nil
}

// refuse has a claim refused, and waits for an acquisition of it that is under way. It reports
// false when that has taken a slot, or when the claim was refused before.
func (l locks) refuse(ctx context.Context, claim lease.ClaimID) (refused bool, err error) {
	s := l.store
	for range 3 { // the number that distinguishes the rows is drawn
		err = s.db.Repeat(ctx, func() error {
			refused = false
			b := s.db.Guarded(ctx)
			b.Add(queries.RefuseLock, uuid.UUID(claim), conn.Micro(refusedFor)).Query(func(rows pgx.Rows) error {
				return conn.ScanIDs(rows, func(uuid.UUID) { refused = true })
			})
			b.Add(queries.DeleteRefusedLocks)
			return s.db.Send(ctx, s.db.General, b)
		})
		if conn.Code(err) != conn.UniqueViolation {
			break
		}
	}
	return refused, err
}

// free sends a statement that frees a slot and reports whether it has.
func (l locks) free(ctx context.Context, statement string, args ...any) (bool, error) {
	var freed, woken int32
	err := l.store.db.Repeat(ctx, func() error {
		b := l.store.db.NewBatch()
		wait, most := conn.Limits(ctx, conn.LockLimit)
		b.Add(queries.Limits, wait, most) // a transaction may hold the row
		b.Add(statement, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&freed, &woken) })
		return l.store.db.Send(ctx, l.store.db.General, b)
	})
	return freed > 0, err
}

// ListLocks lists the slots that are held.
func (l locks) ListLocks(ctx context.Context, prefix string, limit int) ([]lock.Record, error) {
	if err := lock.CheckPrefix(prefix); err != nil {
		return nil, fmt.Errorf("list locks: %w", err)
	}
	s := l.store
	rows, err := s.db.Queries(s.db.Reading).ListLocks(ctx, queries.ListLocksParams{Prefix: prefix, Most: conn.Small(limit)})
	if err != nil {
		return nil, s.db.Fail("list locks", err)
	}
	records := make([]lock.Record, len(rows))
	for i, row := range rows {
		records[i] = lock.Record{
			Name: row.Name, Slot: int(row.Slot), Owner: row.Owner, Claim: lease.ClaimID(*row.ClaimID).Short(), Fence: lease.Fence(row.Fence),
			AcquiredAt: row.AcquiredAt.UTC(), ExpiresAt: row.ExpiresAt.UTC(), Expired: row.Expired,
		}
	}
	return records, nil
}

// ForceRelease frees a slot regardless of its holder, and writes that to the audit log.
func (l locks) ForceRelease(ctx context.Context, force lock.Force) (bool, error) {
	if err := force.Validate(); err != nil {
		return false, fmt.Errorf("force release of lock: %w", err)
	}
	freed, err := l.free(ctx, queries.ForceReleaseLock, l.store.db.Names.FreedChannel(), force.Name, conn.Small(force.Slot), force.By, force.Reason)
	if err != nil {
		return false, l.fail("force release of lock", err)
	}
	return freed, nil
}

// ListForced lists the forced releases, newest first.
func (l locks) ListForced(ctx context.Context, limit int) ([]lock.ForceRecord, error) {
	s := l.store
	rows, err := s.db.Queries(s.db.Reading).ListForced(ctx, queries.ListForcedParams{Most: conn.Small(limit)})
	if err != nil {
		return nil, s.db.Fail("list forced releases", err)
	}
	records := make([]lock.ForceRecord, len(rows))
	for i, row := range rows {
		records[i] = lock.ForceRecord{At: row.At.UTC(), Name: row.Subject, By: row.Actor}
		if err := json.Unmarshal(row.Detail, &records[i]); err != nil {
			return nil, fmt.Errorf("list forced releases: %w", err)
		}
	}
	return records, nil
}
