package postgres_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

var echo = durable.NewJob[string]("echo")

// counted counts the reads of one who waits.
type counted struct {
	store.Store
	reads atomic.Int64
}

func (c *counted) Runs(ctx context.Context, filter store.Filter) (store.Page, error) {
	c.reads.Add(1)
	return c.Store.Runs(ctx, filter)
}

// works runs a worker of the store until the test ends.
func works(t *testing.T, store store.Store, handler func(context.Context, *durable.Run[string]) error) {
	t.Helper()
	w := durable.NewWorker(store, durable.WorkerConfig{PollInterval: 100 * time.Millisecond, MaxConcurrentRuns: 500})
	durable.Register(w, echo, handler)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestResultAcrossProcesses(t *testing.T) {
	t.Parallel()
	there := openStore(t, "")
	here := &counted{Store: openURL(t, there.url, there.schema)}
	client := durable.NewClient(here)
	works(t, there, func(_ context.Context, run *durable.Run[string]) error {
		<-time.After(300 * time.Millisecond)
		return run.SetResult(run.Args)
	})
	const rounds = 10
	began := time.Now()
	var late []time.Duration
	for range rounds {
		receipt, err := echo.Enqueue(t.Context(), client, "hello")
		require.NoError(t, err)
		records, err := client.Wait(t.Context(), receipt.ID)
		require.NoError(t, err)
		late = append(late, time.Since(*records[0].FinishedAt))
		require.JSONEq(t, `"hello"`, string(records[0].Result))
	}
	slices.Sort(late)
	// Looks alone would all come late by a second and more; the machine may have
	// no time for most of the wake-ups.
	require.Less(t, late[rounds/4], 100*time.Millisecond, "late by %v", late)
	most := int64(rounds*5) + int64(time.Since(began)/time.Second) // it looks every two seconds in any case
	require.LessOrEqual(t, here.reads.Load(), most, "at first, a moment later, and when it has ended; sometimes once more")
}

func TestWaitOutlivesItsListener(t *testing.T) {
	t.Parallel()
	there := openStore(t, "")
	here := openURL(t, there.url+"&application_name=waits", there.schema)
	client := durable.NewClient(here)
	release := make(chan struct{}, 1)
	works(t, there, func(ctx context.Context, run *durable.Run[string]) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return run.SetResult(run.Args)
	})
	conn := connect(t, there.url)
	cut := func() bool {
		var n int
		err := conn.QueryRow(t.Context(), `select count(*) from (select pg_terminate_backend(pid, 5000) from pg_stat_activity
			where application_name = 'waits' and query like 'LISTEN "' || $1 || '%') x`, there.schema).Scan(&n)
		require.NoError(t, err)
		return n == 1
	}
	for _, at := range []string{"just before the run ends", "long before"} {
		receipt, err := echo.Enqueue(t.Context(), client, at)
		require.NoError(t, err)
		got := make(chan error, 1)
		go func() {
			text, err := durable.Result[string](t.Context(), client, receipt.ID)
			if err == nil && text != at {
				err = errors.New(text)
			}
			got <- err
		}()
		require.Eventually(t, cut, time.Minute, 10*time.Millisecond, "there is one listener")
		if at == "long before" {
			require.Eventually(t, cut, time.Minute, 10*time.Millisecond, "it has come back")
			<-time.After(300 * time.Millisecond)
		}
		began := time.Now()
		release <- struct{}{}
		require.NoError(t, <-got)
		require.Less(t, time.Since(began), 30*time.Second, "it looks every two seconds")
	}
	require.Eventually(t, func() bool { return !cut() }, time.Minute, 10*time.Millisecond, "no one waits, no one listens")
}

func TestSignalsReachAnotherProcess(t *testing.T) {
	t.Parallel()
	here := openStore(t, "")
	there := openURL(t, here.url, here.schema)
	ctx, stop := context.WithCancel(t.Context())
	heard, ended := make(chan store.Signal, 1000), make(chan error)
	go func() { ended <- here.Listen(ctx, func(s store.Signal) { heard <- s }) }()
	require.Equal(t, store.RunsDue, (<-heard).Kind) // it listens
	conn := connect(t, here.url)
	_, err := conn.Exec(t.Context(), "select pg_notify($1, 'a payload of another version')", here.schema+"_wake")
	require.NoError(t, err)
	await := func(want store.Signal) {
		t.Helper()
		after := time.After(20 * time.Second)
		for {
			select {
			case got := <-heard:
				if got == want {
					return
				}
			case <-after:
				t.Fatalf("%+v was not heard", want)
			}
		}
	}
	await(store.Signal{Kind: store.RunsDue})
	for _, kind := range []store.SignalKind{store.CancelsRequested, store.RunAwaited, store.RunEnded} {
		signal := store.Signal{Kind: kind, Run: store.NewRunID()}
		require.NoError(t, there.Publish(t.Context(), signal))
		await(signal)
	}
	stop()
	require.NoError(t, <-ended)
}

// TestHostileOutcomesHoldUpNoOther settles five hundred runs together, of which
// some end with what no database would store.
func TestHostileOutcomesHoldUpNoOther(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	client := durable.NewClient(db)
	hostile := map[string]string{
		"nul": "a \x00 b", "utf8": "a \xff b", "surrogate": "a \xed\xa0\x80 b", "huge": strings.Repeat("é", 5<<20), "escaped": `\u0000 \ud800`,
	}
	var begun atomic.Int64
	all := make(chan struct{})
	works(t, db, func(ctx context.Context, run *durable.Run[string]) error {
		if begun.Add(1) == 500 {
			close(all)
		}
		select { // all end at the same time
		case <-all:
		case <-ctx.Done():
		}
		text, bad := hostile[run.Args]
		if !bad {
			return nil
		}
		run.Log().Info(text, text, text)
		return durable.Permanent(errors.New(text))
	})
	var runs []store.NewRun
	names := map[store.RunID]string{}
	for name := range hostile {
		runs = append(runs, echo.New(name))
		names[runs[len(runs)-1].ID] = name
	}
	for len(runs) < 500 {
		runs = append(runs, echo.New("plain"))
	}
	receipts, err := client.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	var ids []store.RunID
	for _, receipt := range receipts {
		ids = append(ids, receipt.ID)
	}
	records, err := client.Wait(t.Context(), ids...)
	require.NoError(t, err)
	for _, record := range records {
		name := names[record.ID]
		if name == "" {
			require.Equal(t, store.Succeeded, record.State)
			continue
		}
		require.Equal(t, store.Dead, record.State, name)
		require.NotContains(t, *record.Error, "could not be stored")
		full, err := db.Run(t.Context(), record.ID)
		require.NoError(t, err)
		require.Len(t, full.Attempts, 1)
		require.Contains(t, *full.Attempts[0].Log, "level=INFO", name)
		require.LessOrEqual(t, len(*full.Attempts[0].Log), store.MaxLogSize)
	}
}

// TestLogLinesThatTheDatabaseRefuses: the worker sends only what can be stored;
// a store that is called otherwise keeps the others from harm.
func TestLogLinesThatTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	_, err := db.Enqueue(t.Context(), newRuns(500)...)
	require.NoError(t, err)
	r, err := request(t.Context(), db, worker("w"), 500, time.Minute)
	require.NoError(t, err)
	runs, err := db.Claim(t.Context(), r)
	require.NoError(t, err)
	require.Len(t, runs, 500)
	s := settlement(r, runs, store.Outcome{Kind: store.Success})
	s.Runs[7].Outcome.Log = "bad \x00 line"
	verdicts, err := db.Settle(t.Context(), []store.Settlement{s})
	require.NoError(t, err)
	require.Equal(t, slices.Repeat([]store.Verdict{store.Applied}, 500), verdicts)
	odd, err := db.Run(t.Context(), runs[7].ID)
	require.NoError(t, err)
	require.Equal(t, store.Succeeded, odd.State)
	require.Equal(t, "(could not be stored)", *odd.Attempts[0].Log)
}
