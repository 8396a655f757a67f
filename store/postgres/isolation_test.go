package postgres_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// Statements that are sent by themselves are read committed too, whatever the server's
// default is: one that has waited for a row goes on with what it finds then. In another
// isolation it would be rolled back, as often as others write such rows.
func TestAReportGoesOnAfterAWait(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"repeatable%20read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			made := openStore(t, "&default_transaction_isolation="+isolation)
			logs := &text{}
			s, err := postgres.Open(t.Context(), made.url, postgres.Config{Schema: made.schema, Logger: slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))})
			require.NoError(t, err)
			t.Cleanup(s.Close)
			report := store.WorkerReport{Worker: store.WorkerID{Instance: uuid.Must(uuid.NewV7()), Name: "w"}, Number: 1,
				Presence: store.Presence{Queues: []string{"default"}, Jobs: []string{"mail"}, Capacity: 1, Every: store.Duration(20 * time.Second)}}
			_, err = s.ReportWorker(t.Context(), report)
			require.NoError(t, err)

			tx, err := connect(t, made.url).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
			require.NoError(t, err)
			made.exec(t, tx.Conn(), "update %s.workers set seen_at = seen_at")
			answer := make(chan error, 1)
			go func() {
				report.Number = 2
				_, err := s.ReportWorker(context.WithoutCancel(t.Context()), report)
				answer <- err
			}()
			watch := connect(t, made.url)
			require.Eventually(t, func() bool {
				var waits bool
				err := watch.QueryRow(t.Context(), "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like '%'||$1||'%')", made.schema).Scan(&waits)
				return err == nil && waits
			}, 20*time.Second, 10*time.Millisecond)
			require.NoError(t, tx.Commit(t.Context()))
			require.NoError(t, <-answer)
			require.Zero(t, logs.count("store.repeated"))
		})
	}
}
