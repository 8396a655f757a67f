package sqlite_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// refuse makes SQLite refuse changes of the rows for which a condition holds, as
// a trigger of a user's would.
func refuse(t *testing.T, db *sql.DB, verb, table, condition string) {
	t.Helper()
	_, err := db.Exec("CREATE TRIGGER refuse_" + verb + "_" + table + " BEFORE " + verb + " ON " + table + " WHEN " + condition +
		" BEGIN SELECT RAISE(ABORT, 'refused by a test'); END")
	require.NoError(t, err)
}

func hex(id store.RunID) string { return fmt.Sprintf("x'%x'", id[:]) }

func TestReclaimGoesAroundARunThatCannotBeChanged(t *testing.T) {
	s, db, advance := sweepable(t, newPath(t))
	_, err := s.Enqueue(t.Context(), newRuns(60)...)
	require.NoError(t, err)
	_, runs := claim(t, s, 20)
	claim(t, s, 20)
	advance(time.Hour)
	refuse(t, db, "UPDATE", "runs", "old.id = "+hex(runs[7].ID))
	done, err := s.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
	require.NoError(t, err)
	require.Len(t, done.Runs, 39)
	require.Len(t, done.SetAside, 1)
	require.Equal(t, runs[7].ID.String(), done.SetAside[0].Name)
	require.ErrorContains(t, done.SetAside[0].Err, "refused by a test")
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM leases"))
	claim(t, s, 20)
	advance(time.Hour)
	done, err = s.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 1})
	require.NoError(t, err)
	require.Len(t, done.Runs, 20, "behind the lease that stays")
	require.Empty(t, done.SetAside, "it rests")
}

func TestReleaseOfDependentsGoesAroundARunThatCannotBeChanged(t *testing.T) {
	s, db, _ := sweepable(t, newPath(t))
	source := newRuns(1)[0]
	runs := []store.NewRun{source}
	for range 5 {
		dependent := newRuns(1)[0]
		dependent.DependsOn = []store.Condition{durable.OnSuccess(source.ID)}
		runs = append(runs, dependent)
	}
	_, err := s.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	refuse(t, db, "UPDATE", "runs", "old.id = "+hex(runs[2].ID))
	id, claimed := claim(t, s, 1)
	_, err = s.Settle(t.Context(), succeed(id, claimed))
	require.NoError(t, err)
	due := func() int {
		return count(t, db, "SELECT count(*) FROM runs WHERE state = 0 AND due_at < 4000000000000000")
	}
	release := func(want int) {
		require.Eventually(t, func() bool {
			_, err := s.Release(t.Context(), store.ReleaseRequest{Limit: 100})
			require.NoError(t, err)
			return due() == want
		}, 10*time.Second, 20*time.Millisecond)
	}
	release(4)
	_, err = db.Exec("DROP TRIGGER refuse_UPDATE_runs")
	require.NoError(t, err)
	release(5)
}

func TestSweepGoesAroundWhatCannotBeDeleted(t *testing.T) {
	s, db, advance := sweepable(t, newPath(t))
	runs := finish(t, s, 30, store.Success)
	refuse(t, db, "DELETE", "runs", "old.id = "+hex(runs[17].ID))
	advance(30 * time.Hour)
	var all store.SweepResult
	request := store.SweepRequest{By: uuid.New(), Retention: 24 * time.Hour, RetentionDead: 48 * time.Hour, Limit: 1000}
	for !all.Done {
		swept, err := s.Sweep(t.Context(), request)
		require.NoError(t, err)
		all.Deleted, all.Done, all.SetAside = all.Deleted+swept.Deleted, swept.Done, append(all.SetAside, swept.SetAside...)
	}
	require.Equal(t, 29, all.Deleted)
	require.NotEmpty(t, all.SetAside)
	for _, one := range all.SetAside {
		require.Equal(t, runs[17].ID.String(), one.Name)
	}
}

func TestMaterializeGoesAroundAScheduleThatCannotBeAdvanced(t *testing.T) {
	s, db, _ := sweepable(t, newPath(t))
	job := durable.NewJob[struct{}]("mail")
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		one, err := durable.ScheduleOf(job.Info(), name, []byte("{}"), store.Every(time.Hour))
		require.NoError(t, err)
		require.NoError(t, s.SaveSchedule(t.Context(), one, "ann"))
	}
	refuse(t, db, "UPDATE", "schedules", "old.name = 'b'")
	refuse(t, db, "INSERT", "runs", "new.schedule = 'd'")
	var passed []store.SetAside
	for range 3 {
		made, err := s.Materialize(t.Context(), 100, func(now time.Time, one store.Schedule) store.Decision {
			return store.Decision{NextAt: now.Add(time.Hour), Occurrences: []store.Occurrence{{Key: "k", Run: one.RunNow()}}}
		})
		require.NoError(t, err)
		passed = append(passed, made.SetAside...)
	}
	require.Equal(t, 3, count(t, db, "SELECT count(*) FROM runs WHERE schedule IS NOT NULL"))
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM schedules WHERE name = 'd' AND fault LIKE '%refused by a test%'"))
	require.Len(t, passed, 1, "it rests")
	require.Equal(t, "b", passed[0].Name)
	made, err := s.Materialize(t.Context(), 100, func(time.Time, store.Schedule) store.Decision { return store.Decision{} })
	require.NoError(t, err)
	require.Greater(t, made.Next, 30*time.Second, "and no one looks for it meanwhile")
}

func TestDeclareGoesAroundWhatIsRefused(t *testing.T) {
	s, db, _ := sweepable(t, newPath(t))
	refuse(t, db, "INSERT", "jobs", "new.name = 'j3'")
	refuse(t, db, "INSERT", "schedules", "new.name = 's2'")
	declaration := store.Declaration{Worker: worker()}
	for _, name := range []string{"j1", "j2", "j3", "j4"} {
		declaration.Jobs = append(declaration.Jobs, durable.NewJob[struct{}](name).Info())
	}
	for _, name := range []string{"s1", "s2", "s3"} {
		one, err := durable.ScheduleOf(durable.NewJob[struct{}]("j1").Info(), name, []byte("{}"), store.Every(time.Hour))
		require.NoError(t, err)
		one.Hash = "h"
		declaration.Schedules = append(declaration.Schedules, one)
	}
	var partly *store.SetAsideError
	require.ErrorAs(t, s.Declare(t.Context(), declaration), &partly)
	require.Len(t, partly.SetAside, 2)
	require.Equal(t, "j3", partly.SetAside[0].Name)
	require.Equal(t, "s2", partly.SetAside[1].Name)
	require.Equal(t, 3, count(t, db, "SELECT count(*) FROM jobs"))
	require.Equal(t, 2, count(t, db, "SELECT count(*) FROM schedules"))
}
