package lease

import "fmt"

// UnknownError reports a renewal that was answered for only some of the claims, for example
// by a store of several servers while one is unreachable. The claims returned with it were
// renewed, the outcome of Claims is unknown, and the others are lost.
type UnknownError struct {
	Claims []ClaimID
	Err    error // why
}

// Error says of how many claims nothing is known, and why.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("nothing is known about %d claims: %v", len(e.Claims), e.Err)
}

// Unwrap returns why.
func (e *UnknownError) Unwrap() error { return e.Err }
