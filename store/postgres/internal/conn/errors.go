package conn

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
	"github.com/durable-worker/durable-worker/store"
)

// SQLSTATEs that mean something here.
const (
	UniqueViolation      = "23505"
	NotNullViolation     = "23502"
	serializationFailure = "40001"
	DeadlockDetected     = "40P01"
	LockNotAvailable     = "55P03"
	QueryCanceled        = "57014" // by statement_timeout, or by an operator
	UndefinedTable       = "42P01"
	UndefinedSchema      = "3F000"
	readOnlyTransaction  = "25006"
	LacksPrivilege       = "42501"
	adminShutdown        = "57P01"
	crashShutdown        = "57P02"
	featureNotSupported  = "0A000" // also: a cached plan whose result type has changed
	statementExists      = "42P05" // these two: a pooler gives one client several servers
	statementUnknown     = "26000"
)

// ErrSchema means that the database's schema is missing, older than this
// program needs, or too new for it.
var ErrSchema = fmt.Errorf("postgres: %w", store.ErrSchema)

// Code returns the SQLSTATE of an error of the server, whatever the driver, or "".
func Code(err error) string {
	var server interface{ SQLState() string }
	if errors.As(err, &server) {
		return server.SQLState()
	}
	return ""
}

// RefusesData reports whether the server refused what was to be stored: data
// exceptions, integrity and program limits.
func RefusesData(err error) bool {
	c := Code(err)
	return strings.HasPrefix(c, "22") || strings.HasPrefix(c, "23") || strings.HasPrefix(c, "54")
}

// RefusesRows reports whether the server refused a statement for a reason that may
// lie in one of its rows: data, a user's trigger, a missing privilege, a damaged
// page. Reasons that concern the server, the connection, the schema, or concurrent
// transactions do not count.
func RefusesRows(err error) bool {
	switch c := Code(err); c {
	case "", UndefinedTable, UndefinedSchema, readOnlyTransaction, featureNotSupported, statementExists, statementUnknown, LockNotAvailable, QueryCanceled:
		return false
	default: // connection, rolled back, resources (a full disk), shutdown
		return !slices.Contains([]string{"08", "40", "53", "57"}, c[:2])
	}
}

// RefusesStatement reports whether another statement may succeed where one failed: it was
// refused, waited too long for a lock, or took too long.
func RefusesStatement(err error) bool {
	c := Code(err)
	return RefusesRows(err) || c == LockNotAvailable || c == QueryCanceled
}

// Fail gives an error the call it belongs to, says what an operator can do
// about it, and drops connections that have become useless.
func (d *DB) Fail(what string, err error) error {
	switch Code(err) {
	case UndefinedTable, UndefinedSchema:
		d.OnMissing()
		return fmt.Errorf("%s: %w: a table of schema %q is missing: run `migrate up` of your worker program, or call Store.Migrate: %w", what, ErrSchema, d.Names.Schema, err)
	case readOnlyTransaction:
		d.dropConnections()
		return fmt.Errorf("%s: the server at %s has become read-only: %w", what, d.Dial.ConnConfig.Host, err)
	case statementExists, statementUnknown:
		return fmt.Errorf("%s: a pooler shares its servers between clients, which then meet each other's prepared statements: "+
			"add default_query_exec_mode=exec to the address: %w", what, err)
	case featureNotSupported, adminShutdown, crashShutdown:
		d.dropConnections()
	case "":
		if broken(err) {
			d.dropConnections()
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
func (d *DB) dropConnections() {
	now := int64(lease.Elapsed())
	last := d.reset.Load()
	if now-last < int64(time.Second) || !d.reset.CompareAndSwap(last, now) {
		return
	}
	for _, pool := range d.Pools() {
		if pool == d.Beats.Pool {
			d.Beats.renew()
		} else {
			pool.Reset()
		}
	}
}

// Repeat retries what the server has rolled back because of a concurrent transaction.
func (d *DB) Repeat(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		c := Code(err)
		if try == 4 || c != serializationFailure && c != DeadlockDetected || ctx.Err() != nil {
			return err
		}
		d.Log.Debug("the database rolled a transaction back, repeating it", "event", "store.repeated", "sqlstate", c, "try", try)
	}
}
