package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// refuse makes the database refuse changes of the rows for which a condition
// holds, as a trigger of a user's would.
func (o opened) refuse(t *testing.T, conn *pgx.Conn, verb, table, condition string) {
	t.Helper()
	o.exec(t, conn, `create or replace function %s.refuse() returns trigger language plpgsql as $$ begin raise exception 'refused by a test'; end $$`)
	o.exec(t, conn, "create trigger refuse_"+verb+" before "+verb+" on %s."+table+" for each row when ("+condition+") execute function %s.refuse()")
}

// lost claims runs one claim each, whose leases have expired.
func lost(t *testing.T, db opened, claims, each int) (ids [][]store.RunID) {
	t.Helper()
	_, err := db.Enqueue(t.Context(), newRuns(claims*each)...)
	require.NoError(t, err)
	for range claims {
		_, runs := claim(t, db, worker("gone"), each, time.Minute)
		var some []store.RunID
		for _, run := range runs {
			some = append(some, run.ID)
		}
		ids = append(ids, some)
	}
	db.shift(t, 2*time.Minute)
	return ids
}

// reclaimAll reclaims until a call takes nothing.
func reclaimAll(t *testing.T, store opened, request store.ReclaimRequest) (all store.ReclaimResult) {
	t.Helper()
	for range 1000 {
		done, err := store.Reclaim(t.Context(), request)
		require.NoError(t, err)
		if request.Runs > 0 {
			require.LessOrEqual(t, len(done.Runs), request.Runs)
		}
		all.Runs, all.SetAside = append(all.Runs, done.Runs...), append(all.SetAside, done.SetAside...)
		if len(done.Runs) == 0 {
			return all
		}
	}
	require.Fail(t, "reclaim does not come to an end")
	return all
}

func TestReclaimGoesAroundARunThatCannotBeChanged(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	ids := lost(t, db, 3, 20)
	bad := ids[0][7]
	db.refuse(t, conn, "update", "runs", "old.id = '"+bad.String()+"'")
	all := reclaimAll(t, db, store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
	require.Len(t, all.Runs, 59)
	require.Len(t, all.SetAside, 1)
	require.Equal(t, "run", all.SetAside[0].Kind)
	require.Equal(t, bad.String(), all.SetAside[0].Name)
	require.ErrorContains(t, all.SetAside[0].Err, "refused by a test")
	require.Equal(t, 1, db.count(t, conn, "select count(*) from %s.leases"))
	require.Equal(t, 59, db.count(t, conn, "select count(*) from %s.ready"))
	requireConsistent(t, db)
	claim(t, db, worker("gone"), 5, time.Minute)
	db.exec(t, conn, "update %s.leases set expires_at = now() where expires_at > now()")
	require.Len(t, reclaimAll(t, db, store.ReclaimRequest{MaxCrashes: 4, Limit: 1}).Runs, 5, "behind the lease that stays")
}

// Nothing is prepared behind a pooler, and parameters are sent as text.
func TestReclaimGoesAroundARunThatCannotBeChanged_ThroughAPooler(t *testing.T) {
	t.Parallel()
	db := openStore(t, "&default_query_exec_mode=exec")
	conn := connect(t, db.url)
	ids := lost(t, db, 3, 20)
	db.refuse(t, conn, "update", "runs", "old.id = '"+ids[0][7].String()+"'")
	require.Len(t, reclaimAll(t, db, store.ReclaimRequest{MaxCrashes: 4, Limit: 10}).Runs, 59)
}

func TestReleaseOfDependentsGoesAroundARunThatCannotBeChanged(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	source := newRun()
	runs := []store.NewRun{source}
	for range 5 {
		runs = append(runs, newRun(durable.DependsOn(durable.OnSuccess(source.ID))))
	}
	_, err := db.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	db.refuse(t, conn, "update", "runs", "old.id = '"+runs[2].ID.String()+"'")
	request, claimed := claim(t, db, worker("w"), 1, time.Minute)
	require.Equal(t, source.ID, claimed[0].ID)
	_, err = db.Settle(t.Context(), []store.Settlement{settlement(request, claimed, store.Outcome{Kind: store.Success})})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := db.Release(t.Context(), store.ReleaseRequest{Limit: 100})
		require.NoError(t, err)
		return db.count(t, conn, "select count(*) from %s.runs where state = 0 and due_at <= now()") == 4
	}, 10*time.Second, 20*time.Millisecond, "all but the one that cannot be changed")
	db.exec(t, conn, "drop trigger refuse_update on %s.runs")
	require.Eventually(t, func() bool {
		_, err := db.Release(t.Context(), store.ReleaseRequest{Limit: 100})
		require.NoError(t, err)
		return db.count(t, conn, "select count(*) from %s.runs where state = 0 and due_at <= now()") == 5
	}, 10*time.Second, 20*time.Millisecond, "it was not forgotten")
}

func TestReclaimGoesAroundALeaseThatCannotBeChanged(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	ids := lost(t, db, 3, 4)
	db.refuse(t, conn, "delete", "leases", "'"+ids[0][0].String()+"'::uuid = any (old.run_ids)")
	all := reclaimAll(t, db, store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
	require.GreaterOrEqual(t, len(all.Runs), 11)
	require.Equal(t, 1, db.count(t, conn, "select count(*) from %s.leases"))
	requireConsistent(t, db)
}

// A role may be without a privilege that only some outcomes need.
func TestReclaimWithoutAPrivilegeThatOneRunNeeds(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	ids := lost(t, db, 1, 10)
	db.exec(t, conn, "update %s.runs set on_crash = 1 where id = $1", ids[0][3])
	db.refuse(t, conn, "insert", "problems", "true") // as a missing GRANT would
	all := reclaimAll(t, db, store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
	require.Len(t, all.Runs, 9)
	require.Len(t, all.SetAside, 1)
	require.Equal(t, ids[0][3].String(), all.SetAside[0].Name)
}

func TestReclaimTakesALargeLeaseInParts(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	lost(t, db, 2, 350)
	all := reclaimAll(t, db, store.ReclaimRequest{MaxCrashes: 4, Limit: 10, Runs: 100})
	require.Len(t, all.Runs, 700)
	taken := map[store.RunID]bool{}
	for _, run := range all.Runs {
		require.False(t, taken[run.ID])
		taken[run.ID] = true
		require.Equal(t, 1, run.CrashCount)
	}
	requireConsistent(t, db)
	require.Zero(t, db.count(t, connect(t, db.url), "select count(*) from %s.leases"))
}

func TestReclaimCountsCrashesNoFurtherThanTheyCanBeStored(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	lost(t, db, 1, 2)
	db.exec(t, conn, "update %s.runs set crash_count = 32767 where id = (select id from %s.runs limit 1)")
	done, err := db.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: store.MostCrashes, Limit: 10})
	require.NoError(t, err)
	require.Len(t, done.Runs, 2)
	require.Empty(t, done.SetAside)
}

func TestMaterializeGoesAroundAScheduleThatCannotBeAdvanced(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	job := durable.NewJob[struct{}]("mail")
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		s, err := durable.ScheduleOf(job.Info(), name, []byte("{}"), store.Every(time.Hour))
		require.NoError(t, err)
		require.NoError(t, db.SaveSchedule(t.Context(), s, "ann"))
	}
	db.refuse(t, conn, "update", "schedules", "old.name = 'b'")
	db.refuse(t, conn, "insert", "runs", "new.schedule is not null and new.args::text like '%nothing%'")
	var passed []store.SetAside
	for range 3 {
		made, err := db.Materialize(t.Context(), 100, func(now time.Time, s store.Schedule) store.Decision {
			return store.Decision{NextAt: now.Add(time.Hour), Occurrences: []store.Occurrence{{Key: "k", Run: s.RunNow()}}}
		})
		require.NoError(t, err)
		passed = append(passed, made.SetAside...)
	}
	require.Equal(t, 4, db.count(t, conn, "select count(*) from %s.runs where schedule is not null"))
	require.Len(t, passed, 1, "it rests")
	require.Equal(t, "b", passed[0].Name)
	made, err := db.Materialize(t.Context(), 100, func(time.Time, store.Schedule) store.Decision { return store.Decision{} })
	require.NoError(t, err)
	require.Greater(t, made.Next, time.Minute, "and no one looks for it meanwhile")
}

func TestSweepGoesAroundWhatCannotBeDeleted(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	ids := finished(t, db, store.Success, newRuns(30)...)
	stranded, _ := func() ([]store.RunID, error) {
		_, err := db.Enqueue(t.Context(), newRuns(5)...)
		require.NoError(t, err)
		r, runs := claim(t, db, worker("gone"), 5, time.Minute)
		db.exec(t, conn, "delete from %s.leases where claim_id = $1", [16]byte(r.Claim))
		return []store.RunID{runs[2].ID}, nil
	}()
	db.exec(t, conn, "update %s.runs set finished_at = finished_at - interval '30 hours' where state = 2")
	db.refuse(t, conn, "delete", "runs", "old.id = '"+ids[17].String()+"'")
	db.refuse(t, conn, "update", "runs", "old.id = '"+stranded[0].String()+"'")
	var all store.SweepResult
	request := sweeper()
	for !all.Done {
		swept, err := db.Sweep(t.Context(), request)
		require.NoError(t, err)
		all.Deleted, all.Done = all.Deleted+swept.Deleted, swept.Done
		all.Returned, all.SetAside = append(all.Returned, swept.Returned...), append(all.SetAside, swept.SetAside...)
	}
	require.Equal(t, 29, all.Deleted)
	require.Len(t, all.Returned, 4)
	var names []string
	for _, one := range all.SetAside {
		require.ErrorContains(t, one.Err, "refused by a test")
		names = append(names, one.Name)
	}
	require.ElementsMatch(t, []string{ids[17].String(), stranded[0].String()}, names)
}

func TestDeclareGoesAroundWhatIsRefused(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	db.refuse(t, conn, "insert", "jobs", "new.name = 'j3'")
	db.refuse(t, conn, "insert", "schedules", "new.name = 's5'")
	db.refuse(t, conn, "insert", "lanes", "new.queue = 'bad'")
	var declaration store.Declaration
	declaration.Worker = worker("w")
	for _, name := range []string{"j1", "j2", "j3", "j4"} {
		declaration.Jobs = append(declaration.Jobs, durable.NewJob[struct{}](name).Info())
	}
	for _, name := range []string{"s1", "s2", "s3", "s4", "s5", "s6", "s7"} {
		queue := store.DefaultQueue
		if name == "s2" {
			queue = "bad"
		}
		s, err := durable.ScheduleOf(durable.NewJob[struct{}]("j1", durable.OnQueue(queue)).Info(), name, []byte("{}"), store.Every(time.Hour))
		require.NoError(t, err)
		s.Hash = "h"
		declaration.Schedules = append(declaration.Schedules, s)
	}
	err := db.Declare(t.Context(), declaration)
	var partly *store.SetAsideError
	require.ErrorAs(t, err, &partly)
	var names []string
	for _, one := range partly.SetAside {
		names = append(names, one.Name)
	}
	require.ElementsMatch(t, []string{"j3", "s2", "s5"}, names)
	require.Equal(t, 3, db.count(t, conn, "select count(*) from %s.jobs"))
	require.Equal(t, 5, db.count(t, conn, "select count(*) from %s.schedules"))
	require.ErrorAs(t, db.Declare(t.Context(), declaration), &partly, "again")
}
