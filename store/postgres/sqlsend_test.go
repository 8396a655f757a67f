package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// sendIn calls the SQL function that Go would call Send: by the run, or by a unique key.
func sendIn(ctx context.Context, in interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, schema string, input store.NewInput) (id uuid.UUID, err error) {
	var value any
	if input.Value != nil {
		value = string(input.Value)
	}
	if input.Key != "" || input.Job != "" {
		err = in.QueryRow(ctx, "select "+schema+".send_to($1, $2, $3, $4::text::json)", input.Job, input.Key, input.Name, value).Scan(&id)
		return id, err
	}
	var run any
	if input.Run != uuid.Nil {
		run = input.Run
	}
	err = in.QueryRow(ctx, "select "+schema+".send($1, $2, $3::text::json)", run, input.Name, value).Scan(&id)
	return id, err
}

// sqlStates are what the SQL functions answer where Go answers with these errors.
var sqlStates = map[string]error{"22023": store.ErrInvalid, "P0002": store.ErrNotFound, "55000": store.ErrConflict}

// sending is a store with a run of every kind that an input may find.
type sending struct {
	opened
	pending, ended, gaveUp, full, heavy store.RunID
}

// openSending makes such a store. The ids are those of the caller, so that two stores say the
// same of them.
func openSending(t *testing.T, ids []store.RunID) sending {
	t.Helper()
	s := sending{opened: openStore(t, ""), pending: ids[0], ended: ids[1], gaveUp: ids[2], full: ids[3], heavy: ids[4]}
	for i, id := range ids {
		run := newRun()
		run.ID, run.Job, run.Key = id, "mail", store.Key{Text: fmt.Sprintf("key-%d", i)}
		_, err := s.Enqueue(t.Context(), run)
		require.NoError(t, err)
	}
	conn := connect(t, s.url)
	s.exec(t, conn, "update %s.runs set state = 5 where id = $1", s.ended)
	s.exec(t, conn, "insert into %s.inputs (run_id, size, name) values ('"+s.gaveUp.String()+"', 0, 'late')")
	s.exec(t, conn, "insert into %s.inputs (run_id, size, name, digest, value) select '"+s.full.String()+"', 1, 'n' || n, 'd', '1' from generate_series(1, 1000) n")
	s.exec(t, conn, "insert into %s.inputs (run_id, size, name, digest, value) values ('"+s.heavy.String()+"', 8388600, 'much', 'd', '1')")
	return s
}

// What Send stores in Go the SQL functions store too, and what it refuses they refuse, in the same
// words.
func TestSQLSend_DoesWhatSendDoes(t *testing.T) {
	t.Parallel()
	ids := []store.RunID{store.NewRunID(), store.NewRunID(), store.NewRunID(), store.NewRunID(), store.NewRunID()}
	byGo, bySQL := openSending(t, ids), openSending(t, ids)
	goConn, conn := connect(t, byGo.url), connect(t, bySQL.url)
	stored := func(conn *pgx.Conn, schema string) (rows []string) {
		found, err := conn.Query(t.Context(), strings.ReplaceAll(`select format('%s %s %s %s %s %s %s', run_id, name, n, size, sender, digest, left(value::text, 100)) from S.inputs
			union all select format('notice %s %s %s', run_id, name, tries) from S.notices order by 1`, "S.", schema+"."))
		require.NoError(t, err)
		rows, err = pgx.CollectRows(found, pgx.RowTo[string])
		require.NoError(t, err)
		return rows
	}
	for i, input := range sentInputs(&byGo) {
		what := fmt.Sprintf("%d: %.100v %.100s", i, input, input.Value)
		tx, err := goConn.Begin(t.Context()) // in which nothing is released
		require.NoError(t, err)
		receipt, wanted := byGo.WithTx(tx).Send(t.Context(), input)
		require.NoError(t, tx.Commit(t.Context()))
		id, err := sendIn(t.Context(), conn, bySQL.schema, input)
		require.Equal(t, stored(goConn, byGo.schema), stored(conn, bySQL.schema), what)
		if wanted == nil {
			require.NoError(t, err, what)
			require.Equal(t, receipt.Run, id, what)
			continue
		}
		var refusal *pgconn.PgError
		require.ErrorAs(t, err, &refusal, "%s: %v", what, wanted)
		require.ErrorIs(t, wanted, sqlStates[refusal.Code], what)
		if alike := []string{"name ", "value: ", "not found"}; !containsAny(wanted.Error(), alike) {
			require.Equal(t, wanted.Error(), "send: "+refusal.Message, what)
		} else {
			require.True(t, containsAny(refusal.Message, alike), "%s: %s", what, refusal.Message)
		}
	}
}

func containsAny(text string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// sentInputs are inputs that are stored, repeated and refused, in this order.
func sentInputs(s *sending) (all []store.NewInput) {
	add := func(run store.RunID, name string, values ...string) {
		for _, value := range values {
			all = append(all, store.NewInput{Run: run, Name: name, Value: []byte(value)})
		}
	}
	add(s.pending, "approved", `{"by":"eva"}`, `{"by":"eva"}`, `{"by": "eva"}`, `{"by":"max"}`)
	add(s.pending, "a name/with: ü", `"ü \ud83d\ude00 \\u0000 '"`, `"ü \ud83d\ude00 \\u0000 '"`)
	add(s.pending, "null", `null`, ` null`)
	add(s.pending, "largest", `"`+strings.Repeat("x", store.MaxStepSize-2)+`"`, `"`+strings.Repeat("x", store.MaxStepSize-1)+`"`)
	add(s.pending, "deep", strings.Repeat("[", 128)+strings.Repeat("]", 128), strings.Repeat("[", 129)+strings.Repeat("]", 129))
	add(s.pending, "strings", `"\u0000"`, `"\ud800"`, `"\ufffd"`)
	for _, name := range []string{"", "a\tb", "a\u009bb", strings.Repeat("n", 128), strings.Repeat("n", 129), strings.Repeat("ü", 64), strings.Repeat("ü", 65)} {
		add(s.pending, name, `1`)
	}
	all = append(all, store.NewInput{Run: s.pending, Name: "nothing"}, store.NewInput{Name: "nobody", Value: []byte(`1`)})
	add(uuid.MustParse("01890000-0000-7000-8000-000000000000"), "unknown", `1`)
	add(s.ended, "ended", `1`)
	add(s.gaveUp, "late", `1`)
	add(s.full, "n1001", `1`)
	add(s.full, "n1000", `1`)
	add(s.heavy, "more", `12345678`, `123456789`)
	for _, to := range [][2]string{{"mail", "key-0"}, {"mail", "key-1"}, {"mail", "none"}, {"letter", "key-0"}, {"no job", "key-0"}, {"mail", ""}} {
		all = append(all, store.NewInput{Job: to[0], Key: to[1], Name: "by key", Value: []byte(`true`)})
	}
	return all
}

// A transaction of the caller's, whatever its search_path and its settings: what it sends is there
// with its commit, and the run that waits for it continues, although no worker polls.
func TestSQLSend_GoesWithTheTransaction(t *testing.T) {
	t.Parallel()
	url := planted(t, pgtest.Server(t))
	o := openURL(t, url+"&standard_conforming_strings=off", "t_send")
	received := make(chan string, 10)
	w := durable.NewWorker(o, durable.WorkerConfig{PollInterval: time.Hour})
	job := durable.NewJob[string]("note")
	durable.Register(w, job, func(ctx context.Context, run *durable.Run[string]) error {
		text, err := durable.Receive[string](ctx, run, "said", 0)
		if err != nil {
			return err
		}
		received <- text
		return nil
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() { stop(); require.NoError(t, <-done) }()

	for _, setting := range []string{"search_path = public, pg_catalog", "search_path = ''", "default_transaction_isolation = 'repeatable read'", "default_transaction_isolation = 'serializable'", "standard_conforming_strings = off"} {
		receipt, err := job.Enqueue(t.Context(), o, "", durable.Unique(setting))
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			found, err := store.StepsOf(t.Context(), o, receipt.ID)
			return err == nil && len(found.Steps) == 1
		}, time.Minute, 10*time.Millisecond, "the run does not begin to wait")
		conn := connect(t, url) // a new one: a session keeps functions as it first read them
		_, err = conn.Exec(t.Context(), "set "+setting, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		input := store.NewInput{Job: "note", Key: setting, Name: "said", Value: []byte(`"rolled back"`)}
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		_, err = sendIn(t.Context(), tx, o.schema, input)
		require.NoError(t, err, setting)
		require.NoError(t, tx.Rollback(t.Context()))
		tx, err = conn.Begin(t.Context())
		require.NoError(t, err)
		input.Value = []byte(`"` + strings.ReplaceAll(setting, `"`, ``) + `"`)
		for range 2 { // the same again is no error
			id, err := sendIn(t.Context(), tx, o.schema, input)
			require.NoError(t, err, setting)
			require.Equal(t, receipt.ID, id)
		}
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, setting, <-received)
	}
}

// Without a notification a prepared transaction may send; with one the server refuses it.
func TestSQLSend_WakesUnlessAskedNotTo(t *testing.T) {
	t.Parallel()
	o := openStore(t, "")
	run := newRun()
	_, err := o.Enqueue(t.Context(), run)
	require.NoError(t, err)
	listening := connect(t, o.url)
	o.exec(t, listening, "listen %s_wake")
	conn := connect(t, o.url)
	for i, wake := range []bool{false, true} {
		_, err := conn.Exec(t.Context(), "select "+o.schema+".send($1, $2, '1', wake => $3)", run.ID, fmt.Sprint("n", i), wake)
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	said, err := listening.WaitForNotification(ctx)
	require.NoError(t, err)
	require.Equal(t, "sql n"+strings.ReplaceAll(run.ID.String(), "-", ""), said.Payload)
	require.Equal(t, 2, o.count(t, conn, "select count(*) from %s.notices"))
	o.exec(t, conn, "notify %s_wake, 'last'")
	said, err = listening.WaitForNotification(ctx)
	require.NoError(t, err)
	require.Equal(t, "last", said.Payload, "both have sent a notification")
}

// Of senders of one name the first to commit counts. At read committed those that waited for it
// find its value; from a snapshot they have to begin again.
func TestSQLSend_TheFirstToCommitCounts(t *testing.T) {
	t.Parallel()
	for level, again := range map[pgx.TxIsoLevel]string{pgx.ReadCommitted: "55000", pgx.RepeatableRead: "40001", pgx.Serializable: "40001"} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			o := openStore(t, "")
			run := newRun()
			_, err := o.Enqueue(t.Context(), run)
			require.NoError(t, err)
			begin := func() pgx.Tx {
				tx, err := connect(t, o.url).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
				require.NoError(t, err)
				_, err = tx.Exec(t.Context(), "select from "+o.schema+".runs") // takes the snapshot, if there is one
				require.NoError(t, err)
				return tx
			}
			input := func(value string) store.NewInput {
				return store.NewInput{Run: run.ID, Name: "said", Value: []byte(value)}
			}
			first, same, other := begin(), begin(), begin()
			_, err = sendIn(t.Context(), first, o.schema, input(`1`))
			require.NoError(t, err)
			errs := map[string]error{}
			var mu sync.Mutex
			var all sync.WaitGroup
			for value, tx := range map[string]pgx.Tx{`1`: same, `2`: other} {
				all.Go(func() {
					_, err := sendIn(context.WithoutCancel(t.Context()), tx, o.schema, input(value))
					mu.Lock()
					defer mu.Unlock()
					errs[value] = err
				})
			}
			watch := connect(t, o.url)
			require.Eventually(t, func() bool {
				var n int
				err := watch.QueryRow(t.Context(), "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%'||$1||'%'", o.schema+".send(").Scan(&n)
				return err == nil && n == 2
			}, 20*time.Second, 10*time.Millisecond, "they do not wait for the first")
			require.NoError(t, first.Commit(t.Context()))
			all.Wait()
			var refusal *pgconn.PgError
			require.ErrorAs(t, errs[`2`], &refusal)
			require.Equal(t, again, refusal.Code, refusal.Message)
			if level == pgx.ReadCommitted {
				require.NoError(t, errs[`1`])
				require.NoError(t, same.Commit(t.Context()))
			} else {
				require.ErrorAs(t, errs[`1`], &refusal)
				require.Equal(t, again, refusal.Code, refusal.Message)
			}
			found, err := store.StepsOf(t.Context(), o, run.ID)
			require.NoError(t, err)
			require.Len(t, found.Inputs, 1)
			require.JSONEq(t, `1`, string(found.Inputs[0].Value))
		})
	}
}

// The roles that enqueue may send, and read nothing of what was sent; a reader may not.
func TestSQLSend_ByRoles(t *testing.T) {
	t.Parallel()
	server := pgtest.StartPrivate(t, pgtest.Options{}).URL()
	migrated := openFresh(t, server)
	run := newRun()
	run.Key = store.Key{Text: "order"}
	_, err := migrated.Enqueue(t.Context(), run)
	require.NoError(t, err)
	for role, may := range map[postgres.Role]bool{postgres.RoleWorker: true, postgres.RoleProducer: true, postgres.RoleReader: false} {
		o := openAs(t, migrated, role, newRole(t, server))
		conn := connect(t, o.url)
		for _, input := range []store.NewInput{{Run: run.ID}, {Job: run.Job, Key: "order"}} {
			input.Name, input.Value = string(role)+input.Key, []byte(`1`)
			_, err := sendIn(t.Context(), conn, o.schema, input)
			if !may {
				forbidden(t, err, string(role))
				continue
			}
			require.NoError(t, err, role)
			_, err = sendIn(t.Context(), conn, o.schema, input)
			require.NoError(t, err, "the same again, as %s", role)
			input.Value = []byte(`2`)
			_, err = sendIn(t.Context(), conn, o.schema, input)
			require.ErrorContains(t, err, "with another value", role)
		}
	}
}
