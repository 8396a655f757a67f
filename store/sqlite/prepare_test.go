package sqlite_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store/sqlite"
)

// The first calls of a store prepare more statements than a slow machine can
// prepare in the time that a call has. What they have prepared is kept all the
// same: otherwise each call would begin again, and the store never get on.
func TestCallsThatAreTooShortToPrepareGetOnAllTheSame(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *sqlite.Store) error{
		"read":  func(ctx context.Context, s *sqlite.Store) error { _, err := s.Counts(ctx); return err },
		"write": func(ctx context.Context, s *sqlite.Store) error { _, err := s.Enqueue(ctx, newRuns(1)...); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, path := openMigrated(t)
			began := time.Now()
			require.NoError(t, call(t.Context(), one))
			short := time.Since(began) / 4 // of what a whole call takes that prepares
			store := open(t, path, sqlite.Config{})
			var err error
			for range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), short)
				err = call(ctx, store)
				cancel()
				if err == nil {
					break
				}
			}
			require.NoError(t, err, "a hundred calls of %v", short)
		})
	}
}
