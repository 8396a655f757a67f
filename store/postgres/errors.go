package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// SQLSTATEs that mean something here.
const (
	uniqueViolation      = "23505"
	notNullViolation     = "23502"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
	queryCanceled        = "57014" // by statement_timeout, or by an operator
	undefinedTable       = "42P01"
	undefinedSchema      = "3F000"
	readOnlyTransaction  = "25006"
	lacksPrivilege       = "42501"
	adminShutdown        = "57P01"
	crashShutdown        = "57P02"
	featureNotSupported  = "0A000" // also: a cached plan whose result type has changed
	statementExists      = "42P05" // these two: a pooler gives one client several servers
	statementUnknown     = "26000"
)

// code returns the SQLSTATE of an error of the server, whatever the driver, or "".
func code(err error) string {
	var server interface{ SQLState() string }
	if errors.As(err, &server) {
		return server.SQLState()
	}
	return ""
}

// refusesData reports whether the server refused what was to be stored: data
// exceptions, integrity and program limits.
func refusesData(err error) bool {
	c := code(err)
	return strings.HasPrefix(c, "22") || strings.HasPrefix(c, "23") || strings.HasPrefix(c, "54")
}

// refusesRows reports whether the server refused a statement for a reason that may
// lie in one of its rows: data, a user's trigger, a missing privilege, a damaged
// page. Reasons that concern the server, the connection, the schema, or concurrent
// transactions do not count.
func refusesRows(err error) bool {
	switch c := code(err); c {
	case "", undefinedTable, undefinedSchema, readOnlyTransaction, featureNotSupported, statementExists, statementUnknown, lockNotAvailable, queryCanceled:
		return false
	default: // connection, rolled back, resources (a full disk), shutdown
		return !slices.Contains([]string{"08", "40", "53", "57"}, c[:2])
	}
}

// refusesStatement reports whether another statement may succeed where one failed: it was
// refused, waited too long for a lock, or took too long.
func refusesStatement(err error) bool {
	c := code(err)
	return refusesRows(err) || c == lockNotAvailable || c == queryCanceled
}

// fail gives an error the call it belongs to, says what an operator can do
// about it, and drops connections that have become useless.
func (s *Store) fail(what string, err error) error {
	switch code(err) {
	case undefinedTable, undefinedSchema:
		s.onMissing()
		return fmt.Errorf("%s: %w: a table of schema %q is missing: run `migrate up` of your worker program, or call Store.Migrate: %w", what, ErrSchema, s.names.schema, err)
	case readOnlyTransaction:
		s.dropConnections()
		return fmt.Errorf("%s: the server at %s has become read-only: %w", what, s.dial.ConnConfig.Host, err)
	case statementExists, statementUnknown:
		return fmt.Errorf("%s: a pooler shares its servers between clients, which then meet each other's prepared statements: "+
			"add default_query_exec_mode=exec to the address: %w", what, err)
	case featureNotSupported, adminShutdown, crashShutdown:
		s.dropConnections()
	case "":
		if broken(err) {
			s.dropConnections()
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// broken reports whether a connection has ended under us. Its siblings have
// probably ended too, and each would fail one more call.
func broken(err error) bool {
	var network *net.OpError
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network) && network.Op != "dial" && !network.Timeout()
}

// dropConnections makes the pools dial again, at most once a second.
func (s *Store) dropConnections() {
	now := int64(lease.Elapsed())
	last := s.reset.Load()
	if now-last < int64(time.Second) || !s.reset.CompareAndSwap(last, now) {
		return
	}
	for _, pool := range s.pools() {
		if pool == s.beats.pool {
			s.beats.renew()
		} else {
			pool.Reset()
		}
	}
}

// repeat retries what the server has rolled back because of a concurrent transaction.
func (s *Store) repeat(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		c := code(err)
		if try == 4 || c != serializationFailure && c != deadlockDetected || ctx.Err() != nil {
			return err
		}
		s.log.Debug("the database rolled a transaction back, repeating it", "event", "store.repeated", "sqlstate", c, "try", try)
	}
}
