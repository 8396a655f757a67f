package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// A failover may take back the last commits of the server, among them rows that the process
// remembers: the lines that workers read.

const unreadLines = "delete from limit_lanes"

// startsOne expects that one run waits, and starts.
func (l *limited) startsOne(why string) {
	l.t.Helper()
	_, runs := l.admit(10)
	require.Len(l.t, runs, 1, why)
	l.sound(why)
	l.exec("delete from permits")
	l.exec("delete from leases")
	l.exec("delete from runs")
	l.exec("delete from turns")
	l.exec("delete from ready")
	l.exec("delete from unique_keys")
}

// TestALineThatAFailoverTookBackIsMadeAgain stores a limited run in each way after the row was
// lost that has workers read its line, which the process remembers.
func TestALineThatAFailoverTookBackIsMadeAgain(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	tenant := func(options ...durable.Option) store.NewRun {
		run := newRun(options...)
		run.Limits = []store.LimitUse{use("doc", "a")}
		return run
	}
	require.NoError(t, l.SaveSchedule(t.Context(), store.Schedule{
		Name: "hourly", Rule: store.Every(time.Hour), Job: "mail", Queue: store.DefaultQueue, Args: []byte(`{}`), MaxAttempts: 1,
		Limits: []store.LimitUse{use("doc", "a")},
	}, "ann"))
	holder := func() store.Holder {
		_, err := l.Enqueue(t.Context(), newRun())
		require.NoError(t, err)
		r, runs := claim(t, l.opened, l.worker, 1, time.Minute)
		require.Len(t, runs, 1)
		return holderOf(r, runs[0])
	}
	inTransaction := func(runs ...store.NewRun) error {
		for try := 1; ; try++ {
			u := bindings[0].open(t, l.opened)
			_, err := u.Enqueue(t.Context(), runs...)
			if err == nil {
				return u.Commit()
			}
			require.ErrorContains(t, err, "begin it again")
			u.Rollback()
			require.Equal(t, 1, try)
		}
	}
	for name, enqueue := range map[string]func() error{
		"an enqueue":                  func() error { _, err := l.Enqueue(t.Context(), tenant()); return err },
		"with a key":                  func() error { _, err := l.Enqueue(t.Context(), tenant(durable.Unique("k"))); return err },
		"in a transaction":            func() error { return inTransaction(tenant()) },
		"in a transaction with a key": func() error { return inTransaction(tenant(durable.Unique("t"))) },
		"from a handler":              func() error { _, err := l.EnqueueUnder(t.Context(), holder(), tenant()); return err },
		"of a schedule":               func() error { return l.RunSchedule(t.Context(), "hourly", store.NewRunID(), store.OverlapAllow, "ann") },
	} {
		l.enqueue(tenant()) // what it remembers
		l.startsOne("before: " + name)
		l.exec(unreadLines)
		require.NoError(t, enqueue(), name)
		l.startsOne(name)
	}
	replaced := func(name string, replace func() error) {
		_, err := l.Enqueue(t.Context(), newRun(durable.Replace("r"), durable.After(time.Hour)))
		require.NoError(t, err)
		l.exec(unreadLines)
		require.NoError(t, replace(), name)
		l.startsOne(name)
	}
	replaced("that replaces", func() error { _, err := l.Enqueue(t.Context(), tenant(durable.Replace("r"))); return err })
	replaced("that replaces in a transaction", func() error { return inTransaction(tenant(durable.Replace("r"))) })
}

// TestALimitThatAFailoverTookBackIsFoundAgain is the same for the number of a limit, which is
// another one's now.
func TestALimitThatAFailoverTookBackIsFoundAgain(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1), semaphore("other", 1))
	for name, enqueue := range map[string]func(run store.NewRun) error{
		"an enqueue": func(run store.NewRun) error { _, err := l.Enqueue(t.Context(), run); return err },
		"that replaces": func(run store.NewRun) error {
			run.Key = store.Key{Text: "r", Policy: store.KeyReplace}
			_, err := l.Enqueue(t.Context(), run)
			return err
		},
	} {
		l.enqueue(limitedRun(use("doc", "a")))
		l.startsOne("before: " + name)
		_, err := l.Enqueue(t.Context(), newRun(durable.Replace("r"), durable.After(time.Hour)))
		require.NoError(t, err)
		l.exec("update limits set name = 'x' where name = 'doc'")
		l.exec("update limits set name = 'doc' where name = 'other'")
		l.exec("update limits set name = 'other' where name = 'x'")
		require.NoError(t, enqueue(limitedRun(use("doc", "a"))), name)
		require.Equal(t, 1, l.count("select count(*) from waiting where gate = $1", l.gate("doc", "a")), name)
		l.startsOne(name)
	}
}

// TestARunThatWaitsAgainHasItsLineRead: whatever puts a run back into its line also has
// workers read it.
func TestARunThatWaitsAgainHasItsLineRead(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	for name, back := range map[string]func(r store.ClaimRequest, runs []store.ClaimedRun){
		"a retry": func(r store.ClaimRequest, runs []store.ClaimedRun) {
			l.settle(r, runs, store.Outcome{Kind: store.Failure, Error: "e"})
		},
		"an operator's retry": func(r store.ClaimRequest, runs []store.ClaimedRun) {
			l.settle(r, runs, store.Outcome{Kind: store.Death, Error: "e"})
			l.exec(unreadLines)
			_, err := l.Operate(t.Context(), store.RunCommand{Action: store.RetryRuns, Runs: idsOf(runs), By: "ann"})
			require.NoError(t, err)
		},
		"a reclaim": func(store.ClaimRequest, []store.ClaimedRun) {
			l.shift(t, 2*time.Minute)
			_, err := l.Reclaim(t.Context(), store.ReclaimRequest{Limit: 10, MaxCrashes: 5})
			require.NoError(t, err)
		},
		"a reclaim that isolates": func(store.ClaimRequest, []store.ClaimedRun) {
			l.shift(t, 2*time.Minute)
			l.exec("update runs set crash_count = 4")
			result, err := l.Reclaim(t.Context(), store.ReclaimRequest{Limit: 10, MaxCrashes: 9})
			require.NoError(t, err)
			require.Len(t, result.Runs, 1)
			require.Negative(t, result.Runs[0].Lane)
			l.sound("isolated")
			l.exec("update runs set lane = -lane")
			l.exec("update waiting set lane = -lane")
			l.exec("update limit_lanes set lane = -lane")
			l.exec("update turns set line = -line where line < 0")
		},
		"a sweep": func(store.ClaimRequest, []store.ClaimedRun) {
			l.exec("delete from leases")
			require.Len(t, l.sweep().Returned, 1)
			l.exec("delete from permits where k = 0") // a later sweep does
		},
	} {
		l.enqueue(limitedRun(use("doc", "a")))
		r, runs := l.admit(1)
		require.Len(t, runs, 1, name)
		l.exec(unreadLines)
		back(r, runs)
		l.startsOne(name)
	}
}

// TestALineThatNoWorkerReadsIsFoundAndMended: as an earlier program may have left it.
func TestALineThatNoWorkerReadsIsFoundAndMended(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1), semaphore("all", 1))
	ids := l.enqueue(limitedRun(use("doc", "a"), use("all", "")))
	l.exec(unreadLines)
	l.exec("delete from turns")
	found, err := l.CheckLimits(t.Context())
	require.NoError(t, err)
	require.Contains(t, found, store.LimitFault{Fault: store.LineUnread, Limit: "doc", Run: ids[0], Text: "a run waits in a line that no worker reads"})
	_, none := l.admit(1)
	require.Empty(t, none)
	require.Equal(t, 1, l.sweep().Mended)
	require.Equal(t, 2, l.count("select count(*) from limit_lanes"), "it may move into the other line")
	l.sound("mended")
	_, runs := l.admit(1)
	require.Equal(t, ids, idsOf(runs))
}
