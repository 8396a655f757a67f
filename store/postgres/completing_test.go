package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// The first attempt fails after its effect; the second one commits: one effect stays.
func TestCompleting_KeepsTheEffectsOfTheAttemptThatSucceeds(t *testing.T) {
	t.Parallel()
	boom := errors.New("the handler fails")
	insert := func(s *shop) string {
		return fmt.Sprintf("insert into %s.effects values ($1, $2)", s.store.schema)
	}
	for driver, handler := range map[string]func(*shop) func(context.Context, *durable.Run[int]) error{
		"pgx": func(s *shop) func(context.Context, *durable.Run[int]) error {
			complete := postgres.Completing(s.store.Store, s.pool)
			return func(ctx context.Context, run *durable.Run[int]) error {
				return complete(ctx, run, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, insert(s), run.ID, run.Fence)
					return errors.Join(err, firstFails(run.Attempt, boom))
				})
			}
		},
		"database/sql": func(s *shop) func(context.Context, *durable.Run[int]) error {
			db, err := sql.Open("pgx", plainURL(t, s.store))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			complete := postgres.CompletingSQL(s.store.Store, db)
			return func(ctx context.Context, run *durable.Run[int]) error {
				return complete(ctx, run, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, insert(s), run.ID.String(), run.Fence)
					return errors.Join(err, firstFails(run.Attempt, boom))
				})
			}
		},
	} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, openStore(t, ""))
			stop := s.work(durable.WorkerConfig{}, handler(s))
			id := s.enqueue()
			record := s.ended(id)
			stop()
			require.Equal(t, store.Succeeded, record.State)
			require.Len(t, record.Attempts, 2)
			require.Equal(t, boom.Error(), *record.Attempts[0].Error)
			require.Equal(t, 1, s.effects(id))
			requireNoLease(t, s.store)
		})
	}
}

// firstFails is err in the first attempt.
func firstFails(attempt int, err error) error {
	if attempt > 1 {
		return nil
	}
	return err
}
