package postgres_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// Statements that are sent by themselves are read committed too, whatever the server's
// default is: one that has waited for a row goes on with what it finds then. In another
// isolation it would be rolled back, as often as others write such rows.
func TestASingleStatementGoesOnAfterAWait(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"repeatable%20read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			made := openStore(t, "&default_transaction_isolation="+isolation)
			logs := &text{}
			s, err := postgres.Open(t.Context(), made.url, postgres.Config{Schema: made.schema, Logger: slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))})
			require.NoError(t, err)
			t.Cleanup(s.Close)
			wait := lock.Wait{Name: "a", Waiter: lease.NewClaimID(), Owner: "test", Calls: 1}
			require.NoError(t, s.Locks().NoteWait(t.Context(), wait, time.Minute))

			tx, err := connect(t, made.url).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
			require.NoError(t, err)
			made.exec(t, tx.Conn(), "update %s.lock_waits set calls = calls + 1")
			answer := make(chan error, 1)
			go func() {
				wait.Calls = 0 // it waits no more, which one statement says
				answer <- s.Locks().NoteWait(context.WithoutCancel(t.Context()), wait, time.Minute)
			}()
			watch := connect(t, made.url)
			require.Eventually(t, func() bool {
				var waits bool
				err := watch.QueryRow(t.Context(), "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like '%'||$1||'%')", made.schema).Scan(&waits)
				return err == nil && waits
			}, 20*time.Second, 10*time.Millisecond)
			require.NoError(t, tx.Commit(t.Context()))
			require.NoError(t, <-answer)
			waits, err := s.Locks().ListWaits(t.Context(), "", 10)
			require.NoError(t, err)
			require.Empty(t, waits)
			require.Zero(t, logs.count("store.repeated"))
		})
	}
}
