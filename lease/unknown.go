package lease

import "fmt"

// UnknownError says that a renewal was answered for a part of the claims only, as
// by a store of several servers of which one is away. What is returned beside it
// was renewed; of Claims nothing is known; the others are lost.
type UnknownError struct {
	Claims []ClaimID
	Err    error // why
}

// Error tells of how many claims nothing is known, and why.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("nothing is known about %d claims: %v", len(e.Claims), e.Err)
}

// Unwrap returns why.
func (e *UnknownError) Unwrap() error { return e.Err }
