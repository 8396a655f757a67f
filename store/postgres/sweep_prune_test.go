package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/aside"
	"github.com/durable-worker/durable-worker/store"
)

// A table that cannot be pruned keeps no run from being deleted, and is left alone
// for longer each time.
func TestSweepDeletesRunsWhereATableCannotBePruned(t *testing.T) {
	t.Parallel()
	for name, prevent := range map[string]func(t *testing.T, db opened){
		"it is refused": func(t *testing.T, db opened) {
			conn := connect(t, db.url)
			db.exec(t, conn, "insert into %s.cancels (claim_id, run_id) values (gen_random_uuid(), gen_random_uuid())")
			db.refuse(t, conn, "delete", "cancels", "true")
		},
		"it is locked": func(t *testing.T, db opened) {
			tx, err := connect(t, db.url).Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), "lock table "+db.schema+".cancels in share mode")
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openStore(t, "")
			finished(t, db, store.Success, newRuns(30)...)
			db.exec(t, connect(t, db.url), "update %s.runs set finished_at = finished_at - interval '30 hours' where state = 2")
			prevent(t, db)
			var all store.SweepResult
			for request := sweeper(); !all.Done; {
				bounded, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				swept, err := db.Sweep(bounded, request)
				cancel()
				require.NoError(t, err)
				all.Deleted, all.Done, all.SetAside = all.Deleted+swept.Deleted, swept.Done, append(all.SetAside, swept.SetAside...)
			}
			require.Equal(t, 30, all.Deleted)
			require.Len(t, all.SetAside, 1)
			require.Equal(t, "table", all.SetAside[0].Kind)
			require.Equal(t, "cancels", all.SetAside[0].Name)
			require.Equal(t, aside.First, all.SetAside[0].Again)
		})
	}
}
