package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// oldLock is how long a lock that no claim wants keeps its row.
const oldLock = 7 * 24 * time.Hour

// locks are the named locks of a store.
type locks struct{ store *Store }

// Locks returns the named locks of the store: rows of its table locks.
func (s *Store) Locks() lock.Locks { return locks{s} }

// Acquire takes a free slot of a name, in one write transaction.
func (l locks) Acquire(ctx context.Context, request lock.Request) (lock.Answer, error) {
	if err := request.Validate(); err != nil {
		return lock.Answer{}, fmt.Errorf("acquire lock: %w", err)
	}
	var answer lock.Answer
	err := l.store.write(ctx, claims, func(ctx context.Context, c *change) (err error) {
		answer, err = c.grantLock(ctx, request)
		return err
	})
	if err != nil {
		return lock.Answer{}, lockError("acquire lock", err)
	}
	return answer, nil
}

// lockError gives an error the call it belongs to. It says of one that concerns the rows of
// one lock that it does.
func lockError(what string, err error) error {
	if refusesRow(err) {
		err = fmt.Errorf("%w: %w", lock.ErrRefused, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

var errRefused = fmt.Errorf("%w: the claim was given back", lock.ErrRefused)

func (c *change) grantLock(ctx context.Context, request lock.Request) (lock.Answer, error) {
	rows, err := c.ListSlots(ctx, queries.ListSlotsParams{Name: request.Name})
	if err != nil {
		return lock.Answer{}, err
	}
	expiry := c.now + request.Duration.Microseconds()
	taken, held, soonest, fence := map[int]bool{}, 0, int64(0), c.now-1
	free, expired := 0, map[int]bool{}
	for _, row := range rows {
		slot := int(row.Slot)
		fence = max(fence, row.Fence)
		switch {
		case bytes.Equal(row.ClaimID, request.Claim[:]):
			_, err := c.RenewLock(ctx, queries.RenewLockParams{ExpiresAt: expiry, ClaimID: row.ClaimID})
			return lock.Answer{Granted: true, Slot: slot, Fence: lease.Fence(row.Fence)}, err
		case row.ClaimID != nil && row.ExpiresAt > c.now:
			held++
			taken[slot] = true
			if soonest == 0 || row.ExpiresAt < soonest {
				soonest = row.ExpiresAt
			}
		case row.ClaimID != nil:
			expired[slot] = true
		}
	}
	if held >= request.Slots {
		return lock.Answer{FreeIn: duration(soonest - c.now)}, nil
	}
	for taken[free] {
		free++
	}
	refused, err := c.RefusedLocks(ctx, queries.RefusedLocksParams{ClaimID: request.Claim[:]})
	if err == nil && refused > 0 {
		err = errRefused
	}
	if err != nil {
		return lock.Answer{}, err
	}
	err = c.GrantLock(ctx, queries.GrantLockParams{
		Name: request.Name, Slot: int64(free), Fence: fence + 1, ClaimID: request.Claim[:],
		AcquiredAt: c.now, ExpiresAt: expiry, Owner: request.Owner,
	})
	if err == nil && len(rows) == 0 {
		err = c.DeleteOldLocks(ctx, queries.DeleteOldLocksParams{Before: c.now - oldLock.Microseconds()})
	}
	return lock.Answer{Granted: true, Slot: free, Fence: lease.Fence(fence + 1), TookOver: expired[free]}, err
}

// Renew extends every named claim that still holds its slot, ahead of other
// writes that wait.
func (l locks) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	var renewed []lease.ClaimID
	err := l.store.write(ctx, heartbeats, func(ctx context.Context, c *change) error {
		renewed = make([]lease.ClaimID, 0, len(claims))
		for _, claim := range claims {
			rows, err := c.RenewLock(ctx, queries.RenewLockParams{ExpiresAt: c.now + d.Microseconds(), ClaimID: claim[:]})
			if err != nil {
				return err
			}
			if rows > 0 {
				renewed = append(renewed, claim)
			}
		}
		return nil
	})
	if err != nil {
		return nil, lockError("renew locks", err)
	}
	return renewed, nil
}

// refusedFor is how long a claim is refused that was given back before it came.
const refusedFor = time.Hour

// refuseLock has a claim refused that holds nothing.
func (c *change) refuseLock(ctx context.Context, claim lease.ClaimID) error {
	if err := c.DeleteRefusedLocks(ctx, queries.DeleteRefusedLocksParams{Now: c.now}); err != nil {
		return err
	}
	return c.RefuseLock(ctx, queries.RefuseLockParams{
		Slot:    int64(binary.BigEndian.Uint64(claim[8:]) >> 1), //nolint:gosec // any 63 bits will do
		ClaimID: claim[:], Now: c.now, ExpiresAt: c.now + refusedFor.Microseconds(),
	})
}

// Release frees the slot that the claim holds. When it holds none, an acquisition that comes
// later is refused.
func (l locks) Release(ctx context.Context, name string, claim lease.ClaimID) (bool, error) {
	if err := lock.CheckName(name); err != nil {
		return false, fmt.Errorf("release lock: %w", err)
	}
	var freed int64
	err := l.store.write(ctx, settles, func(ctx context.Context, c *change) (err error) {
		freed, err = c.ReleaseLock(ctx, queries.ReleaseLockParams{Now: c.now, ClaimID: claim[:], Name: name})
		switch {
		case err != nil:
			return err
		case freed == 0:
			return c.refuseLock(ctx, claim)
		default:
			return l.tell(ctx, c, name)
		}
	})
	if err != nil {
		return false, lockError("release lock", err)
	}
	return freed > 0, nil
}

// ListLocks lists the slots that are held.
func (l locks) ListLocks(ctx context.Context, prefix string, limit int) ([]lock.Record, error) {
	if err := lock.CheckPrefix(prefix); err != nil {
		return nil, fmt.Errorf("list locks: %w", err)
	}
	reader, err := l.store.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("list locks: %w", l.store.explain(err))
	}
	rows, err := reader.ListLocks(ctx, queries.ListLocksParams{Prefix: prefix, Most: int64(max(limit, 0))})
	if err != nil {
		return nil, fmt.Errorf("list locks: %w", l.store.explain(err))
	}
	now := l.store.clock.now()
	records := make([]lock.Record, len(rows))
	for i, row := range rows {
		records[i] = lock.Record{
			Name: row.Name, Slot: int(row.Slot), Owner: row.Owner, Claim: lease.ClaimID(row.ClaimID).Short(), Fence: lease.Fence(row.Fence),
			AcquiredAt: instant(row.AcquiredAt), ExpiresAt: instant(row.ExpiresAt), Expired: row.ExpiresAt <= now,
		}
	}
	return records, nil
}

// forcedDetail is what audit says of a forced release.
type forcedDetail struct {
	Slot   int         `json:"slot"`
	Owner  string      `json:"owner"`
	Fence  lease.Fence `json:"fence"`
	Reason string      `json:"reason"`
}

// ForceRelease frees a slot regardless of its holder, and writes that to the audit log.
func (l locks) ForceRelease(ctx context.Context, force lock.Force) (bool, error) {
	if err := force.Validate(); err != nil {
		return false, fmt.Errorf("force release of lock: %w", err)
	}
	freed := false
	err := l.store.write(ctx, settles, func(ctx context.Context, c *change) error {
		old, err := c.ForceReleaseLock(ctx, queries.ForceReleaseLockParams{Now: c.now, Name: force.Name, Slot: int64(force.Slot)})
		if errors.Is(err, sql.ErrNoRows) {
			freed = false
			return nil
		}
		if err != nil {
			return err
		}
		freed = true
		detail, err := json.Marshal(forcedDetail{force.Slot, old.Owner, lease.Fence(old.Fence), force.Reason})
		if err != nil {
			return err
		}
		text := string(detail)
		if err := l.tell(ctx, c, force.Name); err != nil {
			return err
		}
		return c.InsertAudit(ctx, queries.InsertAuditParams{
			At: c.now, Actor: force.By, Subject: force.Name, Detail: &text,
		})
	})
	if err != nil {
		return false, lockError("force release of lock", err)
	}
	return freed, nil
}

// ListForced lists the forced releases, newest first.
func (l locks) ListForced(ctx context.Context, limit int) ([]lock.ForceRecord, error) {
	reader, err := l.store.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("list forced releases: %w", l.store.explain(err))
	}
	rows, err := reader.ListForced(ctx, queries.ListForcedParams{Most: int64(max(limit, 0))})
	if err != nil {
		return nil, fmt.Errorf("list forced releases: %w", l.store.explain(err))
	}
	records := make([]lock.ForceRecord, len(rows))
	for i, row := range rows {
		var detail forcedDetail
		if err := json.Unmarshal([]byte(*row.Detail), &detail); err != nil {
			return nil, fmt.Errorf("list forced releases: %w", err)
		}
		records[i] = lock.ForceRecord{
			At: instant(row.At), Name: row.Subject, Slot: detail.Slot, Owner: detail.Owner, Fence: detail.Fence,
			By: row.Actor, Reason: detail.Reason,
		}
	}
	return records, nil
}
