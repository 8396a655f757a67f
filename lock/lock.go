package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/durable-worker/durable-worker/lease"
)

// Sentinels of named locks, matched with errors.Is.
var (
	// ErrHeld: every slot of the lock is taken, so nothing was granted. It is
	// also what an outage of the store looks like under the policy [Skip].
	ErrHeld = errors.New("lock is held")
	// ErrUnavailable: the store of the locks is unreachable.
	ErrUnavailable = errors.New("lock store is unavailable")
	// ErrRefused: the store answers, but did nothing for this one lock. A transaction may
	// have its row locked, or the claim was given back before. A Locker takes every
	// other error of a store for an outage.
	ErrRefused = errors.New("lock store refused")
	// ErrInvalid: the request was refused before the store was called. The text
	// names every fault.
	ErrInvalid = errors.New("invalid lock")
)

// Bounds of what names a lock.
const (
	MaxName  = 255  // bytes of a name, and of an owner
	MaxSlots = 1000 // slots of one name
)

// Store keeps named locks. It decides with the store's clock, in one atomic
// step per call, and knows nothing of waiting, policies or people: a [Locker]
// calls it.
//
// The rules, each checked by locktest.TestLocks:
//
//   - A slot has at most one holder at any instant of the store's clock.
//   - With a cap of n, a slot is granted only when it is below n and fewer than
//     n slots of the name are held. After the cap was lowered, holders above it
//     drain, and nothing is granted while they keep the number at n or more.
//     The cap is the request's: while two programs request different caps,
//     each is granted only what its own cap allows.
//   - The fence of a grant is larger than that of every grant of the same name
//     that was answered before this one was requested, whatever the slot. It
//     survives release, expiry and force. No two grants of a name share one,
//     also when two slots are granted at the same moment.
//   - A repeat with the same ClaimID while it is held returns the same grant,
//     with a new expiry.
//   - A claim that was released, forced out or taken over changes nothing any
//     more: it is not renewed, and its release is refused.
type Store interface {
	// Acquire takes a free slot of a name, or says that there is none. A slot
	// whose claim has expired is free. It never waits for a slot.
	Acquire(ctx context.Context, request Request) (Answer, error)
	// Renew extends every named claim that still exists to d from now on the
	// store's clock and returns the claims it extended; it makes a Store a
	// heartbeat.Renewer. A claim that is not among them is lost for good. An
	// expired claim that was not taken over may be extended or refused. An
	// error means that nothing is known about any of them, except an UnknownError,
	// which names the claims whose outcome is unknown.
	Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error)
	// Release frees the slot that the claim holds, and reports whether there was
	// one. Releasing twice is harmless. When there was none, an Acquire of the claim
	// may still be on its way: for an hour or longer it is refused with ErrRefused.
	Release(ctx context.Context, name string, claim lease.ClaimID) (released bool, err error)
}

// CheckPrefix refuses with ErrInvalid a prefix that no lock's name can
// have. Stores call it; it makes all of them refuse the same.
func CheckPrefix(prefix string) error { return checkText("prefix", prefix, 0) }

// CheckName refuses with ErrInvalid a name that no lock can have.
func CheckName(name string) error { return checkText("name", name, 1) }

// Operator is what an operator does with the locks of a store.
type Operator interface {
	// ListLocks lists the slots that are held, by name and slot, at most limit of
	// them, of names that begin with prefix.
	ListLocks(ctx context.Context, prefix string, limit int) ([]Record, error)
	// ForceRelease frees a slot, whatever holds it, and records who did it and
	// why in the same step. The old holder is fenced out: it is not
	// renewed, and the next grant has a larger fence. It reports whether the slot
	// was held.
	ForceRelease(ctx context.Context, force Force) (released bool, err error)
	// ListForced lists the forced releases, newest first, at most limit of them.
	ListForced(ctx context.Context, limit int) ([]ForceRecord, error)
}

// Locks is everything a store does for named locks.
type Locks interface {
	Store
	Operator
	Waits
}

// Request requests a slot of a name.
type Request struct {
	Name     string
	Slots    int           // the cap: slots 0 to Slots-1 may be granted
	Claim    lease.ClaimID // created by the caller, so that a repeat is harmless
	Owner    string        // for people; never compared
	Duration time.Duration // of the grant, on the store's clock
}

// Answer is the store's answer to a Request.
type Answer struct {
	Granted bool
	Slot    int
	Fence   lease.Fence
	// TookOver: the slot's last claim had expired without being released.
	TookOver bool
	// FreeIn is, when nothing was granted, the time until the first of the held
	// slots expires, if it is not renewed. It may be more than the truth by the
	// time the answer took.
	FreeIn time.Duration
}

// Record is a held slot, for people.
type Record struct {
	Name       string      `json:"name"`
	Slot       int         `json:"slot"`
	Owner      string      `json:"owner"`
	Claim      string      `json:"claim"` // the first digits of the ClaimID
	Fence      lease.Fence `json:"fence"`
	AcquiredAt time.Time   `json:"acquired_at"`
	ExpiresAt  time.Time   `json:"expires_at"`
	// Expired: the claim has expired on the store's clock, and the slot has not
	// been requested since.
	Expired bool `json:"expired"`
}

// Force is an operator's order to free a slot.
type Force struct {
	Name   string
	Slot   int
	By     string // who orders it
	Reason string
}

// ForceRecord describes a forced release.
type ForceRecord struct {
	At     time.Time   `json:"at"`
	Name   string      `json:"name"`
	Slot   int         `json:"slot"`
	Owner  string      `json:"owner"` // who held it
	Fence  lease.Fence `json:"fence"` // of the grant that was ended
	By     string      `json:"by"`
	Reason string      `json:"reason"`
}

// Validate reports every violation of the bounds of a request. Stores call it;
// it makes all of them refuse the same.
func (r Request) Validate() error {
	faults := []error{checkText("name", r.Name, 1), checkText("owner", r.Owner, 0)}
	if r.Slots < 1 || r.Slots > MaxSlots {
		faults = append(faults, fmt.Errorf("%w: lock %q: %d slots: want 1 to %d", ErrInvalid, r.Name, r.Slots, MaxSlots))
	}
	if r.Claim == (lease.ClaimID{}) {
		faults = append(faults, fmt.Errorf("%w: lock %q: the claim is zero", ErrInvalid, r.Name))
	}
	if r.Duration < time.Millisecond {
		faults = append(faults, fmt.Errorf("%w: lock %q: duration %v: want 1 ms or more", ErrInvalid, r.Name, r.Duration))
	}
	return errors.Join(faults...)
}

// Validate reports every violation of the bounds of an order.
func (f Force) Validate() error {
	faults := []error{checkText("name", f.Name, 1), checkText("by", f.By, 1), checkText("reason", f.Reason, 0)}
	if f.Slot < 0 {
		faults = append(faults, fmt.Errorf("%w: slot %d: want 0 or more", ErrInvalid, f.Slot))
	}
	return errors.Join(faults...)
}

func checkText(what, text string, least int) error {
	if len(text) < least || len(text) > MaxName || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return fmt.Errorf("%w: lock %s %.40q: want %d to %d bytes of UTF-8 without NUL", ErrInvalid, what, text, least, MaxName)
	}
	return nil
}
