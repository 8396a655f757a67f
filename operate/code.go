package operate

import (
	"context"
	"errors"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store"
)

// Code says in one word what kind of error happened.
type Code string

// The codes. More may come.
const (
	Invalid    Code = "invalid"     // the request makes no sense
	NotFound   Code = "not_found"   // there is no such thing
	Conflict   Code = "conflict"    // the state of the thing does not allow it
	UnknownJob Code = "unknown_job" // no worker has declared the job
	// UnknownLimit: no worker has declared the limit, and no operator has set it.
	UnknownLimit Code = "unknown_limit"
	Unreachable  Code = "unreachable" // the store cannot be reached now: try again later
	Interrupted  Code = "interrupted" // the caller gave up
	// NotMigrated: the schema of the database does not fit this program.
	NotMigrated Code = "not_migrated"
	Busy        Code = "busy"      // too much is under way: try again later
	Forbidden   Code = "forbidden" // the role of who asks does not allow it
	Failed      Code = "failed"    // anything else
)

// ErrBusy says that as much is under way as this process allows.
var ErrBusy = errors.New("busy")

// CodeOf returns the code of an error. transient, which may be nil, reports whether
// an error that means nothing else comes from a store that cannot be reached now.
func CodeOf(err error, transient func(error) bool) Code {
	switch {
	case errors.Is(err, store.ErrUnknownLimit): // it is also an ErrInvalid
		return UnknownLimit
	case errors.Is(err, store.ErrInvalid), errors.Is(err, lock.ErrInvalid):
		return Invalid
	case errors.Is(err, store.ErrNotFound):
		return NotFound
	case errors.Is(err, store.ErrConflict):
		return Conflict
	case errors.Is(err, store.ErrUnknownJob):
		return UnknownJob
	case errors.Is(err, store.ErrSchema):
		return NotMigrated
	case errors.Is(err, ErrBusy):
		return Busy
	case errors.Is(err, ErrHidden):
		return Forbidden
	case errors.Is(err, context.Canceled):
		return Interrupted
	case transient != nil && transient(err):
		return Unreachable
	default:
		return Failed
	}
}

// CodeOf returns the code of an error of the Operator's.
func (o *Operator) CodeOf(err error) Code { return CodeOf(err, o.config.Transient) }

// Failure is an error as JSON: {"error":{"code":…,"message":…}}.
type Failure struct {
	Error FailureDetail `json:"error"`
}

// FailureDetail says what went wrong, to programs and to people.
type FailureDetail struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// FailureOf returns an error as JSON, under a code.
func FailureOf(err error, code Code) Failure {
	return Failure{FailureDetail{Code: code, Message: err.Error()}}
}
