package backend

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// Transient tells whether an error of Open, Schema or Migrate says that the
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
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	for _, sentinel := range []error{
		io.EOF, io.ErrUnexpectedEOF, syscall.ECONNREFUSED, syscall.ECONNRESET, context.DeadlineExceeded,
	} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
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
