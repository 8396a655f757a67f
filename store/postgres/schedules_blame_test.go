package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/aside"
	"github.com/durable-worker/durable-worker/store"
)

// saveHourly saves schedules that are due now.
func saveHourly(t *testing.T, db opened, n int) {
	t.Helper()
	for i := range n {
		s, err := durable.ScheduleOf(durable.NewJob[struct{}]("mail").Info(), fmt.Sprintf("schedule-%02d", i), []byte("{}"), store.Every(time.Hour))
		require.NoError(t, err)
		require.NoError(t, db.SaveSchedule(t.Context(), s, "ann"))
	}
}

func hourly(now time.Time, s store.Schedule) store.Decision {
	return store.Decision{NextAt: now.Add(time.Hour), Occurrences: []store.Occurrence{{Key: "k", Run: s.RunNow()}}}
}

// What the database refuses of every schedule is the fault of none.
func TestMaterializeBlamesNoScheduleForWhatIsRefusedOfAll(t *testing.T) {
	t.Parallel()
	for name, on := range map[string][2]string{"runs": {"insert", "runs"}, "schedules": {"update", "schedules"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openStore(t, "")
			conn := connect(t, db.url)
			saveHourly(t, db, 3)
			db.refuse(t, conn, on[0], on[1], "true")
			_, err := db.Materialize(t.Context(), 500, hourly)
			require.ErrorContains(t, err, "refused by a test")
			db.exec(t, conn, "drop trigger refuse_"+on[0]+" on %s."+on[1])
			worked, made := time.Now(), 0
			require.Eventually(t, func() bool {
				done, err := db.Materialize(t.Context(), 500, hourly)
				require.NoError(t, err)
				made += len(done.Runs)
				return made == 3
			}, time.Minute, 10*time.Millisecond)
			require.Less(t, time.Since(worked), aside.First, "they rest for a moment")
			require.Zero(t, db.count(t, conn, "select count(*) from %s.schedules where fault is not null"))
		})
	}
}

// A schedule that takes longer than a call may is passed over in the end, and does
// not keep the others from being evaluated.
func TestMaterializeGoesAroundAScheduleThatTakesTooLong(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	saveHourly(t, db, 5)
	db.exec(t, conn, `create function %s.slow() returns trigger language plpgsql as $$ begin perform pg_sleep(60); return new; end $$`)
	db.exec(t, conn, `create trigger slow before update on %s.schedules for each row when (old.name = 'schedule-02') execute function %s.slow()`)
	var passed []store.SetAside
	limit, made := 4, 0
	require.Eventually(t, func() bool {
		bounded, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done, err := db.Materialize(bounded, limit, hourly)
		if err != nil {
			limit = max(limit/2, 1) // as workers do
		}
		passed, made = append(passed, done.SetAside...), made+len(done.Runs)
		return made == 4 && len(passed) > 0
	}, 3*time.Minute, 10*time.Millisecond)
	require.Equal(t, "schedule-02", passed[0].Name)
	require.GreaterOrEqual(t, passed[0].Again, aside.First)
}
