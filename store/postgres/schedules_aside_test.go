package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/aside"
	"github.com/durable-worker/durable-worker/store"
)

// TestMaterializeNarrowsDownToWhatIsRefusedAsAWhole: a check at the commit tells of
// no schedule, only that the transaction is refused.
func TestMaterializeNarrowsDownToWhatIsRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	job := durable.NewJob[struct{}]("mail")
	for i := range 20 {
		s, err := durable.ScheduleOf(job.Info(), fmt.Sprintf("schedule-%02d", i), []byte("{}"), store.Every(time.Hour))
		require.NoError(t, err)
		require.NoError(t, db.SaveSchedule(t.Context(), s, "ann"))
	}
	db.exec(t, conn, `create function %s.late() returns trigger language plpgsql as $$ begin raise exception 'refused at the commit'; end $$`)
	db.exec(t, conn, `create constraint trigger late after update on %s.schedules deferrable initially deferred
		for each row when (old.name = 'schedule-11') execute function %s.late()`)
	var passed []store.SetAside
	for range 10 {
		made, err := db.Materialize(t.Context(), 500, func(now time.Time, s store.Schedule) store.Decision {
			return store.Decision{NextAt: now.Add(time.Hour), Occurrences: []store.Occurrence{{Key: "k", Run: s.RunNow()}}}
		})
		require.NoError(t, err)
		passed = append(passed, made.SetAside...)
	}
	require.Equal(t, 19, db.count(t, conn, "select count(*) from %s.runs"))
	require.Len(t, passed, 1)
	require.Equal(t, "schedule-11", passed[0].Name)
	require.ErrorContains(t, passed[0].Err, "refused at the commit")
	require.GreaterOrEqual(t, passed[0].Again, aside.First)
}
