package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// ErrSchema means that the database's schema is missing, older than this
// program needs, or too new for it.
var ErrSchema = fmt.Errorf("postgres: %w", store.ErrSchema)

// schemaEvery is how often the schema's version is read again.
const schemaEvery = 20 * time.Second

// usable checks the schema's version, each time until it can be served, and then now
// and again: another program may have migrated it. One call at a time does that.
func (s *Store) usable(ctx context.Context) error {
	until, now := s.served.Load(), int64(lease.Running())
	if until > now || until > 0 && !s.served.CompareAndSwap(until, now+int64(schemaEvery)) {
		return nil
	}
	if until > 0 {
		return s.examineSchema(ctx, now, true)
	}
	return s.inBackground(ctx, func() error {
		if s.served.Load() > now { // another call has found out meanwhile
			return nil
		}
		return s.examineSchema(ctx, now, false)
	})
}

// examineSchema reads the schema's version at an instant. Where it was served before, a server
// that does not answer changes nothing.
func (s *Store) examineSchema(ctx context.Context, now int64, served bool) error {
	have, want, minCompatible, err := s.Schema(ctx)
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
func (s *Store) serves(have, want, minCompatible int) error {
	switch {
	case have < want:
		return fmt.Errorf("%w: schema %q has version %d and this program needs %d: run `migrate up` of your worker program, or call Store.Migrate",
			ErrSchema, s.names.schema, have, want)
	case minCompatible > want:
		return fmt.Errorf("%w: schema %q has version %d, which requires program version %d or later (this is %d): upgrade the program",
			ErrSchema, s.names.schema, have, minCompatible, want)
	default:
		return nil
	}
}
