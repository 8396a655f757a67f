package postgres_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// forbidden requires the server's refusal for want of a privilege.
func forbidden(t *testing.T, err error, what string) {
	t.Helper()
	require.ErrorContains(t, err, "42501", what)
}

// TestStoreInModes runs the suite as a worker.
func TestGrants_AProducerEnqueuesAndWaits(t *testing.T) {
	t.Parallel()
	server := pgtest.StartPrivate(t, pgtest.Options{}).URL()
	migrated := openFresh(t, server)
	worker := openAs(t, migrated, postgres.RoleWorker, newRole(t, server))
	producer := openAs(t, migrated, postgres.RoleProducer, newRole(t, server))

	w := durable.NewWorker(worker, durable.WorkerConfig{PollInterval: 50 * time.Millisecond})
	durable.Register(w, job, func(_ context.Context, run *durable.Run[map[string]string]) error {
		return run.SetResult(run.Args["to"])
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()

	tenant := store.Limit{Name: "tenant", Kind: store.LimitSemaphore, Max: 1}
	require.NoError(t, worker.Declare(t.Context(), store.Declaration{Worker: store.WorkerID{Name: "w"}, Limits: []store.Limit{tenant}}))
	limited := func(r store.NewRun) store.NewRun {
		r.Limits = []store.LimitUse{{Limit: "tenant", Key: "acme"}}
		return r
	}

	client := durable.NewClient(producer)
	plain, keyed := newRun(), newRun()
	keyed.Key = store.Key{Text: "once"}
	batch := append(newRuns(3, durable.OnQueue("a-new-one")), newRun(durable.After(time.Hour)))
	bounded := limited(newRun())
	dependent := newRun(durable.DependsOn(durable.OnSuccess(plain.ID)))
	for _, runs := range [][]store.NewRun{{plain}, {keyed}, batch, {bounded}, {dependent}, {newRun(), limited(newRun(durable.OnQueue("another-new-one")))}} {
		_, err := client.Enqueue(t.Context(), runs...)
		require.NoError(t, err)
	}
	user := bindings[0].open(t, producer) // a transaction of the producer's own
	within := newRun()
	_, err := user.Enqueue(t.Context(), within)
	require.NoError(t, err)
	_, err = user.Enqueue(t.Context(), newRun(durable.After(time.Hour), durable.Unique("later")), newRun())
	require.NoError(t, err)
	_, err = user.Run(t.Context(), within.ID)
	require.NoError(t, err)
	_, err = user.Runs(t.Context(), store.Filter{})
	require.NoError(t, err)
	_, err = user.Enqueue(t.Context(), limited(newRun()), limited(newRun(durable.After(time.Hour), durable.Unique("limited"))))
	require.NoError(t, err)
	require.NoError(t, user.Commit())
	_, err = client.Enqueue(t.Context(), limited(newRun(durable.After(time.Hour), durable.Replace("limited"))))
	require.NoError(t, err)
	_, err = client.Enqueue(t.Context(), newRun(durable.After(time.Hour), durable.Replace("later")))
	require.NoError(t, err)

	records, err := client.Wait(t.Context(), plain.ID, keyed.ID, within.ID, bounded.ID)
	require.NoError(t, err)
	for _, record := range records {
		require.Equal(t, store.Succeeded, record.State)
		require.NotEmpty(t, record.Result)
	}
	stop()
	require.NoError(t, <-ended)

	_, err = producer.Claim(t.Context(), store.ClaimRequest{Claim: lease.NewClaimID(), Worker: store.WorkerID{Name: "p"}, Duration: time.Minute, Limit: 1,
		Steps: []store.Step{{Lane: 1, Take: 1}}})
	forbidden(t, err, "claim")
	_, err = producer.Operate(t.Context(), store.RunCommand{Action: store.DeleteRuns, Runs: []store.RunID{plain.ID}, By: "p"})
	forbidden(t, err, "delete")
	forbidden(t, producer.Declare(t.Context(), store.Declaration{Worker: store.WorkerID{Name: "p"}}), "declare")
	conn := connect(t, producer.url)
	for _, statement := range []string{"update durable.runs set state = 4", "update durable.queues set paused = true", "delete from durable.runs",
		"update durable.lanes set job = 'x'", "insert into durable.jobs select * from durable.jobs", "select from durable.leases", "create table durable.x ()"} {
		_, err := conn.Exec(t.Context(), strings.ReplaceAll(statement, "durable.", producer.schema+"."))
		forbidden(t, err, statement)
	}
	_, err = connect(t, worker.url).Exec(t.Context(), "update "+worker.schema+".meta set version = 1")
	forbidden(t, err, "the version is the migration's")
}

func TestGrants_AReaderReads(t *testing.T) {
	t.Parallel()
	server := pgtest.StartPrivate(t, pgtest.Options{}).URL()
	migrated := openFresh(t, server)
	require.NoError(t, migrated.Declare(t.Context(), store.Declaration{Worker: worker("w"), Jobs: []store.JobInfo{job.Info()}}))
	run := newRun()
	_, err := migrated.Enqueue(t.Context(), run)
	require.NoError(t, err)
	reader := openAs(t, migrated, postgres.RoleReader, newRole(t, server))
	for what, read := range map[string]func() error{
		"run":       func() error { _, err := reader.Run(t.Context(), run.ID); return err },
		"runs":      func() error { _, err := reader.Runs(t.Context(), store.Filter{}); return err },
		"counts":    func() error { _, err := reader.Counts(t.Context()); return err },
		"queues":    func() error { _, err := reader.Queues(t.Context()); return err },
		"jobs":      func() error { _, err := reader.Jobs(t.Context()); return err },
		"schedules": func() error { _, err := reader.ListSchedules(t.Context()); return err },
		"examine":   func() error { _, err := reader.Examine(t.Context()); return err },
	} {
		require.NoError(t, read(), what)
	}
	_, err = reader.Enqueue(t.Context(), newRun())
	forbidden(t, err, "enqueue")

	scaler := newRole(t, server)
	statements, err := postgres.Grants(migrated.schema, postgres.RoleScaler, scaler)
	require.NoError(t, err)
	_, err = connect(t, server).Exec(t.Context(), statements)
	require.NoError(t, err)
	conn := connect(t, strings.Replace(server, "durable@", scaler+"@", 1))
	var waiting int
	require.NoError(t, conn.QueryRow(t.Context(), scalersQuery(t, migrated.schema)).Scan(&waiting))
	require.Equal(t, 1, waiting)
	_, err = conn.Exec(t.Context(), "select args from "+migrated.schema+".runs")
	forbidden(t, err, "args")
}

// A role that may make a schema, and no superuser, migrates and then owns it.
func TestGrants_AnOwnerMigrates(t *testing.T) {
	t.Parallel()
	server := pgtest.StartPrivate(t, pgtest.Options{}).URL()
	owner := newRole(t, server)
	statements, err := postgres.Grants("", postgres.RoleOwner, owner)
	require.NoError(t, err)
	_, err = connect(t, server).Exec(t.Context(), statements)
	require.NoError(t, err)
	store := openURL(t, strings.Replace(server, "durable@", owner+"@", 1), "durable")
	openAs(t, store, postgres.RoleWorker, newRole(t, server))
}

func TestGrants_AreExact(t *testing.T) {
	t.Parallel()
	for _, bad := range []struct{ schema, role, name string }{{"a;b", "worker", "w"}, {"", "nobody", "w"}, {"", "worker", ""}} {
		_, err := postgres.Grants(bad.schema, postgres.Role(bad.role), bad.name)
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	server := pgtest.StartPrivate(t, pgtest.Options{}).URL()
	migrated := openFresh(t, server)
	name := newRole(t, server)
	statements, err := postgres.Grants(migrated.schema, postgres.RoleReader, name)
	require.NoError(t, err)
	conn := connect(t, server)
	held := func() (list string) {
		require.NoError(t, conn.QueryRow(t.Context(), `select coalesce(string_agg(distinct privilege_type, ','), '') from information_schema.table_privileges
			where grantee = $1`, name).Scan(&list))
		return list
	}
	_, err = conn.Exec(t.Context(), "grant delete on "+migrated.schema+".runs to "+name)
	require.NoError(t, err)
	for range 2 { // what a role had before is taken away
		_, err = conn.Exec(t.Context(), statements)
		require.NoError(t, err)
		require.Equal(t, "SELECT", held())
	}
	quoted, err := postgres.Grants("", postgres.RoleOwner, `o'b"x`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `create role "o'b""x"; `+quoted)
	require.NoError(t, err)
}

func TestExamineNamesMissingPrivileges(t *testing.T) {
	t.Parallel()
	server := pgtest.StartPrivate(t, pgtest.Options{}).URL()
	migrated := openFresh(t, server)
	finding := func(db opened) store.Finding {
		findings, err := db.Examine(t.Context())
		require.NoError(t, err)
		i := slices.IndexFunc(findings, func(f store.Finding) bool { return f.Name == "privileges" })
		require.GreaterOrEqual(t, i, 0)
		return findings[i]
	}
	name := newRole(t, server)
	worker := openAs(t, migrated, postgres.RoleWorker, name)
	require.Equal(t, store.Fine, finding(worker).Level)
	require.Equal(t, store.Fine, finding(migrated).Level, "the owner may do everything")
	producer := finding(openAs(t, migrated, postgres.RoleProducer, newRole(t, server)))
	require.Equal(t, store.Warning, producer.Level)
	require.Contains(t, producer.Text, "may enqueue, and cannot work: it lacks DELETE on attempts")
	reader := finding(openAs(t, migrated, postgres.RoleReader, newRole(t, server)))
	require.Equal(t, store.Warning, reader.Level)
	require.Contains(t, reader.Text, "may only read: to enqueue it lacks INSERT on batch_changes")

	_, err := connect(t, server).Exec(t.Context(), "revoke delete on "+migrated.schema+".leases from "+name)
	require.NoError(t, err)
	require.Contains(t, finding(worker).Text, "it lacks DELETE on leases")
}

// docs/deploy.md has the statements of every role.
func TestGrantsStandInTheDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/deploy.md")
	require.NoError(t, err)
	for _, role := range postgres.Roles() {
		statements, err := postgres.Grants("", role, "durable_"+string(role))
		require.NoError(t, err)
		require.Contains(t, string(page), statements, role)
	}
}
