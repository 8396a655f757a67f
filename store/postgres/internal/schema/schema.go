package schema

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
)

// schemaEvery is how often the schema's version is read again.
const schemaEvery = 20 * time.Second

// Schema is the tables that a store uses, as this program knows them.
type Schema struct {
	db *conn.DB
	// served is the instant of the monotonic clock until which the version is taken to be one
	// that this program can serve; zero: not known.
	served atomic.Int64
}

// New returns the schema of a database.
func New(db *conn.DB) *Schema { return &Schema{db: db} }

// Forget has the version read again before the next call.
func (s *Schema) Forget() { s.served.Store(0) }

// Usable checks the schema's version, each time until it can be served, and then now
// and again: another program may have migrated it. One call at a time does that.
func (s *Schema) Usable(ctx context.Context) error {
	until, now := s.served.Load(), int64(lease.Running())
	if until > now || until > 0 && !s.served.CompareAndSwap(until, now+int64(schemaEvery)) {
		return nil
	}
	if until > 0 {
		return s.examine(ctx, now, true)
	}
	return s.db.InBackground(ctx, func() error {
		if s.served.Load() > now { // another call has found out meanwhile
			return nil
		}
		return s.examine(ctx, now, false)
	})
}

// examine reads the schema's version at an instant. Where it was served before, a server
// that does not answer changes nothing.
func (s *Schema) examine(ctx context.Context, now int64, served bool) error {
	have, want, minCompatible, err := s.Version(ctx)
	if err != nil && served {
		return nil //nolint:nilerr // the call itself will find out
	}
	if err == nil {
		err = s.serves(have, want, minCompatible)
	}
	if err != nil {
		s.served.Store(0)
		return err
	}
	s.served.Store(max(now, 0) + int64(schemaEvery))
	return nil
}

// serves says why the store cannot serve a schema.
func (s *Schema) serves(have, want, minCompatible int) error {
	switch {
	case have < want:
		return fmt.Errorf("%w: schema %q has version %d and this program needs %d: run `migrate up` of your worker program, or call Store.Migrate",
			conn.ErrSchema, s.db.Names.Schema, have, want)
	case minCompatible > want:
		return fmt.Errorf("%w: schema %q has version %d, which requires program version %d or later (this is %d): upgrade the program",
			conn.ErrSchema, s.db.Names.Schema, have, minCompatible, want)
	default:
		return nil
	}
}
