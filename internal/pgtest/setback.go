package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Instant is a schema as it was at an instant: its rows and its sequences.
type Instant struct {
	url, schema, copies string
	except              []string
}

// Keep copies a schema as it is now, so that SetBack can restore it, except for the tables
// that are named.
func Keep(tb testing.TB, url, schema string, except ...string) *Instant {
	tb.Helper()
	i := &Instant{url: url, schema: schema, copies: "kept_" + strings.ToLower(rand.Text()[:16]), except: except}
	Execute(tb, url, i.each("CREATE SCHEMA "+i.copies+";",
		`EXECUTE format('CREATE TABLE %[2]s.%%I AS TABLE %[1]s.%%I', one, one);`,
		`EXECUTE format('CREATE TABLE %[2]s.%%I AS SELECT last_value, is_called FROM %[1]s.%%I', one, one);`))
	return i
}

// each is a block that does something first, then for each table, and for each sequence.
func (i *Instant) each(first, table, sequence string) string {
	loop := func(kind, do string) string {
		return fmt.Sprintf(`FOR one IN SELECT relname FROM pg_class WHERE relnamespace = '%[1]s'::regnamespace
			AND relkind = '`+kind+`' AND relname <> ALL ('{%[3]s}') ORDER BY relname LOOP `+do+` END LOOP;`, i.schema, i.copies, strings.Join(i.except, ","))
	}
	return "DO $$ DECLARE one text; BEGIN " + first + loop("r", table) + loop("S", sequence) + " END $$"
}

// SetBack is a failover to a standby that has received nothing since the instant: whatever was
// committed since then is gone, numbers are given out again, and every other connection to the
// database has ended. The database must be one of the test's own.
func (i *Instant) SetBack(tb testing.TB) {
	tb.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := i.setBack()
		if err == nil {
			return
		}
		if time.Now().After(deadline) { // until then, a transaction that has not ended yet may be in the way
			tb.Fatalf("set schema %s back: %v", i.schema, err)
		}
	}
}

// endOthers ends every other connection to the database, and waits until each has ended.
const endOthers = `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
	WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`

func (i *Instant) setBack() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, i.url)
	if err != nil {
		return fmt.Errorf("connect to the test server: %w", err)
	}
	defer conn.Close(ctx)
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// The locks come between the two: a connection that is opened meanwhile ends before it
		// has read anything.
		for _, sql := range []string{endOthers, i.lockAll(), endOthers, i.restoreAll()} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

func (i *Instant) lockAll() string {
	return i.each("", `EXECUTE format('LOCK TABLE %[1]s.%%I IN ACCESS EXCLUSIVE MODE', one);`, "")
}

func (i *Instant) restoreAll() string {
	return i.each("",
		`EXECUTE format('DELETE FROM %[1]s.%%I', one);
		EXECUTE format('INSERT INTO %[1]s.%%I OVERRIDING SYSTEM VALUE TABLE %[2]s.%%I', one, one);`,
		`EXECUTE format('SELECT setval(''%[1]s.%%I'', last_value, is_called) FROM %[2]s.%%I', one, one);`)
}
