package examine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Where an examination begins to warn.
const (
	slowAnswer   = 50 * time.Millisecond
	clockApart   = 5 * time.Second
	longOpen     = 10 * time.Minute
	manyHeld     = 1_000_000 // transactions whose rows cannot be cleaned up
	manyDead     = 100_000   // rows
	newestServer = 140000
)

// examineLimit bounds one part of an examination.
const examineLimit = 10 * time.Second

// Examine examines the server and the schema for what an operator should
// know, and says what to do. It changes nothing and takes a few seconds
// at most. Without the schema of this program only the server is examined. An
// error means that the examination itself could not continue.
func (e *Examiner) Examine(ctx context.Context) (store.Findings, error) {
	var f store.Findings
	steps := []func(context.Context, *store.Findings) error{e.examineServer, e.examineRole, e.examineSnapshots, e.examineConnection}
	if e.schema.Usable(ctx) == nil {
		steps = append(steps, e.examinePrivileges, e.examineTables, e.examineIdentities, e.examineIndexes, e.examineWork, e.examineStranded)
	}
	for _, step := range steps {
		bounded, cancel := context.WithTimeout(ctx, examineLimit) // a table may be locked
		err := step(bounded, &f)
		cancel()
		if conn.Code(err) == conn.LacksPrivilege {
			continue // the finding on privileges says so
		}
		if err != nil {
			return f, e.db.Fail("examine", err)
		}
	}
	return f, nil
}

// examineServer examines settings, numbers and the clock.
func (e *Examiner) examineServer(ctx context.Context, f *store.Findings) error {
	q := e.db.Queries(e.db.General)
	var server queries.ExamineServerRow
	var trips []time.Duration
	var off time.Duration
	for range 5 {
		sent := time.Now()
		var err error
		if server, err = q.ExamineServer(ctx); err != nil {
			return err
		}
		trips = append(trips, time.Since(sent))
		off = server.Now.Sub(sent.Add(trips[len(trips)-1] / 2))
	}
	if trip := slices.Min(trips).Round(10 * time.Microsecond); trip > slowAnswer {
		f.Warn("round trip", trip.String(), "run the workers near the database: every claim and settle waits so long")
	} else {
		f.Fine("round trip", trip.String())
	}
	if version := fmt.Sprintf("PostgreSQL %d.%d, a primary that can be written", server.Version/10000, server.Version%10000); server.Version < newestServer || server.Replica || server.ReadOnly {
		f.Fail("server", fmt.Sprintf("PostgreSQL %d, replica %v, read-only %v", server.Version/10000, server.Replica, server.ReadOnly), "give the address of a primary of version 14 or later")
	} else {
		f.Fine("server", version)
	}
	if off = off.Round(time.Millisecond); off.Abs() > clockApart {
		f.Warn("clock", fmt.Sprintf("the database's is %v ahead of this machine's", off), "the database's decides; set both by NTP, so that logs can be compared")
	} else {
		f.Fine("clock", fmt.Sprintf("%v apart from this machine's", off.Abs()))
	}
	e.examineSettings(server, f)
	return nil
}

// examineSettings judges what the server is set to.
func (e *Examiner) examineSettings(server queries.ExamineServerRow, f *store.Findings) {
	if server.Isolation == "read committed" {
		f.Fine("isolation", server.Isolation)
	} else {
		f.Warn("isolation", server.Isolation, "durable still uses read committed, at the cost of two more statements per transaction; to avoid them: ALTER ROLE … SET default_transaction_isolation = 'read committed'")
	}
	switch text := fmt.Sprintf("synchronous_commit %s, fsync %v, full_page_writes %v", server.SynchronousCommit, server.Fsync, server.FullPageWrites); {
	case !server.Fsync || !server.FullPageWrites:
		f.Fail("durability", text, "what was acknowledged does not survive a crash of the machine: switch both on")
	case server.SynchronousCommit == "off":
		f.Warn("durability", text, "what was acknowledged in the last second may be lost in a crash of the server: switch synchronous_commit on for this role")
	default:
		f.Fine("durability", text)
	}
	if limit := time.Duration(server.StatementTimeout) * time.Millisecond; limit > 0 && limit < 5*time.Second {
		f.Warn("statement_timeout", limit.String(), "calls that set no limit of their own may fail: want 5s or more for this role")
	}
	if server.Autovacuum && server.TrackCounts {
		f.Fine("autovacuum", "on")
	} else {
		f.Fail("autovacuum", "off", "dead rows are never cleaned up and everything becomes slower: switch autovacuum and track_counts on")
	}
	need := int32(conn.EngineConns+conn.BeatConns+conn.ReadingConns+1) + e.db.General.Config().MaxConns
	free := server.MaxConnections - server.Reserved - server.Connections
	if text := fmt.Sprintf("%d of %d are free; a worker uses up to %d", free, server.MaxConnections-server.Reserved, need); free < need {
		f.Warn("connections", text, "raise max_connections, or lower DURABLE_DATABASE_MAX_CONNS or the number of workers")
	} else {
		f.Fine("connections", text)
	}
}

// examineSnapshots looks for what keeps dead rows from being cleaned up.
func (e *Examiner) examineSnapshots(ctx context.Context, f *store.Findings) error {
	held, err := e.db.Queries(e.db.General).ExamineSnapshots(ctx)
	if err != nil {
		return err
	}
	open := time.Duration(held.OpenSeconds) * time.Second
	before := len(*f)
	if open > longOpen || held.HeldByTransaction > manyHeld {
		f.Warn("transactions", fmt.Sprintf("one has been open for %v, over %d transactions", open, held.HeldByTransaction), "end it (pg_stat_activity.xact_start): while it is open no dead row is cleaned up")
	}
	if held.HeldBySlot > manyHeld {
		f.Warn("replication slots", fmt.Sprintf("one holds rows of the last %d transactions", held.HeldBySlot), "let its subscriber catch up, or drop it (pg_replication_slots.xmin, catalog_xmin)")
	}
	if held.HeldByPrepared > manyHeld {
		f.Warn("prepared transactions", fmt.Sprintf("one holds rows of the last %d transactions", held.HeldByPrepared), "commit it or roll it back (pg_prepared_xacts)")
	}
	if len(*f) == before {
		f.Fine("transactions", fmt.Sprintf("the oldest has been open for %v, and nothing holds dead rows", open))
	}
	return nil
}

// examineTables examines the dead rows of the hot tables.
func (e *Examiner) examineTables(ctx context.Context, f *store.Findings) error {
	tables, err := e.db.Queries(e.db.General).ExamineTables(ctx, queries.ExamineTablesParams{SchemaName: e.db.Names.Schema})
	if err != nil {
		return err
	}
	var texts []string
	before := len(*f)
	for _, t := range tables {
		text := fmt.Sprintf("%s: %d live and %d dead tuples", t.Name, t.Live, t.Dead)
		texts = append(texts, text)
		if t.Unvacuumed {
			f.Warn("tables", "autovacuum is switched off for "+t.Name, "ALTER TABLE … RESET (autovacuum_enabled)")
		}
		if t.Dead > manyDead && t.Dead > 2*t.Live {
			f.Warn("tables", text, "autovacuum does not keep up: see what holds it back (transactions, above), then VACUUM the table")
		}
	}
	if len(*f) == before {
		f.Fine("tables", strings.Join(texts, "; "))
	}
	return nil
}

// examineWork examines what waits for a transaction.
func (e *Examiner) examineWork(ctx context.Context, f *store.Findings) error {
	q := e.db.Queries(e.db.General)
	expired, err := q.ExamineLeases(ctx, queries.ExamineLeasesParams{Within: conn.Micro(rules.LateLease)})
	if err != nil {
		return err
	}
	rules.FindLateLeases(f, expired)
	paused, err := q.ExamineQueues(ctx)
	if err != nil {
		return err
	}
	rules.FindPaused(f, paused)
	return nil
}

// examineIdentities looks for tables that a publication would make read-only.
func (e *Examiner) examineIdentities(ctx context.Context, f *store.Findings) error {
	rows, err := e.db.Queries(e.db.General).ExamineIdentities(ctx, queries.ExamineIdentitiesParams{SchemaName: e.db.Names.Schema})
	if err != nil {
		return err
	}
	var without, refused []string
	for _, row := range rows {
		without = append(without, row.Name)
		if row.Published {
			refused = append(refused, row.Name)
		}
	}
	const hint = "run `migrate up`; a table of your own in this schema needs a primary key, or ALTER TABLE … REPLICA IDENTITY FULL"
	switch {
	case len(refused) > 0:
		f.Fail("replica identity", "a publication has tables without one, and PostgreSQL refuses to delete or update their rows: "+strings.Join(refused, ", "), hint)
	case len(without) > 0:
		f.Warn("replica identity", "missing, so a publication of all tables would stop the workers: "+strings.Join(without, ", "), hint)
	default:
		f.Fine("replica identity", "every table has one")
	}
	return nil
}

// examineIndexes looks for indexes that cost writes and serve no query.
func (e *Examiner) examineIndexes(ctx context.Context, f *store.Findings) error {
	names, err := e.db.Queries(e.db.General).InvalidIndexes(ctx, queries.InvalidIndexesParams{SchemaName: e.db.Names.Schema})
	if err == nil && len(names) > 0 {
		f.Warn("indexes", "incomplete: "+strings.Join(names, ", "), "wait until CREATE INDEX CONCURRENTLY has ended; if it has failed, run REINDEX INDEX CONCURRENTLY for each")
	}
	return err
}
