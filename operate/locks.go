package operate

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store"
)

// LockList lists locks that are held, by name and slot, and the processes that
// wait for them.
type LockList struct {
	Locks []lock.Record `json:"locks"`
	Waits []lock.Wait   `json:"waits"`
	Next  *string       `json:"next"` // always nil
}

// ForcedList lists forced releases of locks, newest first.
type ForcedList struct {
	Forced []lock.ForceRecord `json:"forced"`
	Next   *string            `json:"next"` // always nil
}

// ReleasedLock says that a slot of a lock was freed, and by whom.
type ReleasedLock struct {
	Released bool   `json:"released"`
	Name     string `json:"name"`
	Slot     int    `json:"slot"`
	By       string `json:"by"`
}

// Locks lists the locks whose names begin with prefix, at most limit of each
// kind.
func (o *Operator) Locks(ctx context.Context, prefix string, limit int) (LockList, error) {
	list := LockList{Locks: []lock.Record{}, Waits: []lock.Wait{}}
	locks, err := o.locks()
	if err != nil {
		return list, err
	}
	records, err := locks.ListLocks(ctx, prefix, limit)
	if err != nil {
		return list, err
	}
	waits, err := locks.ListWaits(ctx, prefix, limit)
	list.Locks, list.Waits = whole(records), whole(waits)
	return list, err
}

// ForcedReleases lists the locks that were released by force, at most limit.
func (o *Operator) ForcedReleases(ctx context.Context, limit int) (ForcedList, error) {
	locks, err := o.locks()
	if err != nil {
		return ForcedList{Forced: []lock.ForceRecord{}}, err
	}
	records, err := locks.ListForced(ctx, limit)
	return ForcedList{Forced: whole(records)}, err
}

// ReleaseLock frees a slot of a lock by force, and records why. The holder loses
// it at its next heartbeat, and its fence is stale from now on. A slot that is
// not held is ErrNotFound.
func (a *Actor) ReleaseLock(ctx context.Context, name string, slot int, reason string) (ReleasedLock, error) {
	answer := ReleasedLock{Name: name, Slot: slot, By: a.by}
	locks, err := a.locks()
	if err != nil {
		return answer, err
	}
	defer a.hub.touch("locks")
	answer.Released, err = locks.ForceRelease(ctx, lock.Force{Name: name, Slot: slot, By: a.by, Reason: reason})
	if answer.Released {
		a.note(kindLock, fmt.Sprintf("%s, slot %d", name, slot), "release", reason, 0)
	}
	if err == nil && !answer.Released {
		err = fmt.Errorf("lock %s, slot %d is not held: %w", name, slot, store.ErrNotFound)
	}
	return answer, err
}
