package backend

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// Transient reports whether an error of Open, Schema or Migrate says that the
// server cannot be reached now, is only starting, or did not get round to it in
// time, so that trying again makes sense. Wrong credentials, a missing database and a damaged file are
// not transient.
func Transient(err error) bool {
	if err == nil {
		return false
	}
	if state, ok := errors.AsType[sqlStater](err); ok {
		return transientState(state.SQLState())
	}
	return Disconnected(err) || errors.Is(err, context.DeadlineExceeded)
}

// Disconnected reports whether an error of a store means that a connection could
// not be made, or has ended: whether the call has had an effect is not known.
func Disconnected(err error) bool {
	if state, ok := errors.AsType[sqlStater](err); ok {
		code := state.SQLState()
		return code == "57P01" || code == "57P02" || code == "57P03" || strings.HasPrefix(code, "08")
	}
	if unsent, ok := errors.AsType[unsentError](err); ok && unsent.SafeToRetry() && !errors.Is(err, context.Canceled) {
		return true // also "conn closed", which is nothing else
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	for _, sentinel := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNREFUSED, syscall.ECONNRESET} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

// unsentError is what an error of PostgreSQL's driver says of a call that never
// left this machine.
type unsentError interface {
	error
	SafeToRetry() bool
}

// sqlStater is what a PostgreSQL error says about itself.
type sqlStater interface {
	error
	SQLState() string
}

// transientState knows the SQLSTATEs of a server that is starting, stopping,
// full, or gone, and of statements that ran into others or into a time limit.
func transientState(code string) bool {
	switch code {
	case "57P01", "57P02", "57P03", "53300", // shutdown, starting, too many connections
		"57014", "55P03", "40001", "40P01": // canceled, lock not available, serialization failure, deadlock
		return true
	default:
		return strings.HasPrefix(code, "08")
	}
}
