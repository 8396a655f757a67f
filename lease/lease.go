package lease

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"
)

// ErrLost is the cause of a context whose lease has been lost, or can no
// longer be known to be held. Code that gets it must stop: another worker may
// begin at any moment.
var ErrLost = errors.New("lease: lost")

// ClaimID is the random identity of one claim: 122 random bits in the form of
// a version 4 UUID. It is a bearer secret of the worker that created it; print
// [ClaimID.Short] in logs, never the whole.
type ClaimID [16]byte

// NewClaimID returns a fresh random identity.
func NewClaimID() ClaimID {
	var id ClaimID
	_, _ = rand.Read(id[:]) // never fails: crypto/rand ends the program instead
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// Short returns the first eight hexadecimal digits: enough to distinguish claims
// in a log, and too few to act as one.
func (id ClaimID) Short() string { return hex.EncodeToString(id[:4]) }

// Fence is the number handed to code outside the store. It only ever rises,
// for each run or lock by itself; fences of two runs cannot be compared.
//
// Not promised: that it rises across a failover that lost commits to a server whose clock is
// behind that of the old one by more than the time that has passed.
type Fence int64

// Lease is the right that one claim holds, as its holder sees it.
type Lease struct {
	Claim ClaimID
	// Asked is the monotonic time of the holder (see [Elapsed]) just
	// before the request that was granted was sent. The local deadline is
	// counted from it.
	Asked time.Duration
}
