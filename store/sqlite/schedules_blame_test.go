package sqlite_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/aside"
	"github.com/durable-worker/durable-worker/store"
)

// What SQLite refuses of every schedule is the fault of none.
func TestMaterializeBlamesNoScheduleForWhatIsRefusedOfAll(t *testing.T) {
	for name, on := range map[string][2]string{"runs": {"INSERT", "runs"}, "schedules": {"UPDATE", "schedules"}} {
		t.Run(name, func(t *testing.T) {
			s, db, _ := sweepable(t, newPath(t))
			for _, name := range []string{"a", "b", "c"} {
				one, err := durable.ScheduleOf(durable.NewJob[struct{}]("mail").Info(), name, []byte("{}"), store.Every(time.Hour))
				require.NoError(t, err)
				require.NoError(t, s.SaveSchedule(t.Context(), one, "ann"))
			}
			hourly := func(now time.Time, one store.Schedule) store.Decision {
				return store.Decision{NextAt: now.Add(time.Hour), Occurrences: []store.Occurrence{{Key: "k", Run: one.RunNow()}}}
			}
			refuse(t, db, on[0], on[1], "true")
			_, err := s.Materialize(t.Context(), 100, hourly)
			require.ErrorContains(t, err, "refused by a test")
			_, err = db.Exec("DROP TRIGGER refuse_" + on[0] + "_" + on[1])
			require.NoError(t, err)
			worked, made := time.Now(), 0
			require.Eventually(t, func() bool {
				done, err := s.Materialize(t.Context(), 100, hourly)
				require.NoError(t, err)
				made += len(done.Runs)
				return made == 3
			}, time.Minute, 10*time.Millisecond)
			require.Less(t, time.Since(worked), aside.First, "they rest for a moment")
			require.Zero(t, count(t, db, "SELECT count(*) FROM schedules WHERE fault IS NOT NULL"))
		})
	}
}
