package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

// locks are the named locks of a store. They share its mutex and its clock.
type locks struct{ store *Store }

// Locks returns the named locks of the store.
func (s *Store) Locks() lock.Locks { return locks{s} }

// place is one slot of a lock. A name keeps its places forever, and with them
// its fence.
type place struct {
	claim      lease.ClaimID // zero: free
	fence      lease.Fence
	owner      string
	acquiredAt time.Time
	expiresAt  time.Time
}

func (p *place) held(now time.Time) bool { return p.claim != lease.ClaimID{} && p.expiresAt.After(now) }

// Acquire takes a free slot of a name.
func (l locks) Acquire(ctx context.Context, request lock.Request) (lock.Answer, error) {
	if err := firstOf(ctx.Err(), request.Validate()); err != nil {
		return lock.Answer{}, fmt.Errorf("acquire lock: %w", err)
	}
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	places := s.places[request.Name]
	for len(places) < request.Slots {
		places = append(places, &place{})
	}
	s.places[request.Name] = places
	held, fence, free, soonest := 0, lease.Fence(now.UnixMicro()-1), -1, time.Time{}
	for slot, p := range places {
		fence = max(fence, p.fence)
		switch {
		case p.claim == request.Claim:
			p.expiresAt = now.Add(request.Duration)
			return lock.Answer{Granted: true, Slot: slot, Fence: p.fence}, nil
		case p.held(now):
			held++
			if soonest.IsZero() || p.expiresAt.Before(soonest) {
				soonest = p.expiresAt
			}
		case free < 0 && slot < request.Slots:
			free = slot
		}
	}
	if held >= request.Slots {
		return lock.Answer{FreeIn: soonest.Sub(now)}, nil
	}
	if s.refused[request.Claim].After(now) {
		return lock.Answer{}, fmt.Errorf("acquire lock: %w: the claim was given back", lock.ErrRefused)
	}
	p := places[free]
	expired := p.claim != lease.ClaimID{}
	*p = place{claim: request.Claim, fence: fence + 1, owner: request.Owner, acquiredAt: now, expiresAt: now.Add(request.Duration)}
	return lock.Answer{Granted: true, Slot: free, Fence: p.fence, TookOver: expired}, nil
}

// Renew extends every named claim that still holds its slot, expired or not.
func (l locks) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("renew locks: %w", err)
	}
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	expiry := s.now().Add(d)
	var renewed []lease.ClaimID
	for _, places := range s.places {
		for _, p := range places {
			if p.claim != (lease.ClaimID{}) && slices.Contains(claims, p.claim) {
				p.expiresAt = expiry
				renewed = append(renewed, p.claim)
			}
		}
	}
	return renewed, nil
}

// refusedFor is how long a claim is refused that was given back before it came.
const refusedFor = time.Hour

// Release frees the slot that the claim holds. When it holds none, an acquisition that comes
// later is refused.
func (l locks) Release(ctx context.Context, name string, claim lease.ClaimID) (bool, error) {
	if err := lock.CheckName(name); err != nil {
		return false, fmt.Errorf("release lock: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("release lock: %w", err)
	}
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.places[name] {
		if p.claim == claim && claim != (lease.ClaimID{}) {
			p.claim = lease.ClaimID{}
			s.tellFreed(name)
			return true, nil
		}
	}
	now := s.now()
	maps.DeleteFunc(s.refused, func(_ lease.ClaimID, until time.Time) bool { return !until.After(now) })
	s.refused[claim] = now.Add(refusedFor)
	return false, nil
}

// ListLocks lists the slots that are held.
func (l locks) ListLocks(ctx context.Context, prefix string, limit int) ([]lock.Record, error) {
	if err := lock.CheckPrefix(prefix); err != nil {
		return nil, fmt.Errorf("list locks: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list locks: %w", err)
	}
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var records []lock.Record
	for name, places := range s.places {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		for slot, p := range places {
			if p.claim != (lease.ClaimID{}) {
				records = append(records, lock.Record{
					Name: name, Slot: slot, Owner: p.owner, Claim: p.claim.Short(), Fence: p.fence,
					AcquiredAt: p.acquiredAt, ExpiresAt: p.expiresAt, Expired: !p.held(now),
				})
			}
		}
	}
	slices.SortFunc(records, func(a, b lock.Record) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Slot, b.Slot))
	})
	return records[:min(len(records), max(limit, 0))], nil
}

// ForceRelease frees a slot regardless of its holder.
func (l locks) ForceRelease(ctx context.Context, force lock.Force) (bool, error) {
	if err := firstOf(ctx.Err(), force.Validate()); err != nil {
		return false, fmt.Errorf("force release of lock: %w", err)
	}
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	places := s.places[force.Name]
	if force.Slot >= len(places) || places[force.Slot].claim == (lease.ClaimID{}) {
		return false, nil
	}
	p := places[force.Slot]
	p.claim = lease.ClaimID{}
	s.tellFreed(force.Name)
	s.forced = append(s.forced, lock.ForceRecord{
		At: s.now(), Name: force.Name, Slot: force.Slot, Owner: p.owner, Fence: p.fence, By: force.By, Reason: force.Reason,
	})
	return true, nil
}

// ListForced lists the forced releases, newest first.
func (l locks) ListForced(ctx context.Context, limit int) ([]lock.ForceRecord, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list forced releases: %w", err)
	}
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	records := slices.Clone(s.forced)
	slices.Reverse(records)
	return records[:min(len(records), max(limit, 0))], nil
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
