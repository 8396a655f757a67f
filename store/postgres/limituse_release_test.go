package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

// A place that code outside of runs gives back is announced where a run waits for it, and
// only there.

const allTurns = "select count(*) from turns"

// signals are the wake-ups of a worker while something is done.
func (l *limited) signals(do func()) (heard []store.Due) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.t.Context())
	defer cancel()
	all, ended := make(chan store.Signal, 1000), make(chan error, 1)
	go func() { ended <- l.ListenFor(ctx, serves, func(signal store.Signal) { all <- signal }) }()
	until := func(id store.RunID) {
		l.t.Helper()
		require.NoError(l.t, l.Publish(ctx, store.Signal{Kind: store.RunEnded, Run: id}))
		for signal := range all {
			if signal.Kind == store.RunEnded && signal.Run == id {
				return
			}
			if signal.Kind == store.RunsDue {
				heard = append(heard, signal.Due)
			}
		}
	}
	require.Equal(l.t, store.RunsDue, (<-all).Kind, "it listens")
	until(store.NewRunID())
	heard = nil
	do()
	until(store.NewRunID())
	cancel()
	require.NoError(l.t, <-ended)
	return heard
}

// TestUseLimit_AReleaseLeavesNothingIfNoRunWaits: neither a turn nor a wake-up, and
// the sweep forgets the gate.
func TestUseLimit_AReleaseLeavesNothingIfNoRunWaits(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("places", 1))
	l.enqueue(limitedRun(use("places", "another"))) // of the limit, but of another key
	l.admit(1)
	heard := l.signals(func() {
		for range 20 {
			require.True(t, l.ask(store.UsageAcquire, "places", "ann").Granted)
			require.True(t, l.ask(store.UsageGive, "places", "ann").Granted)
		}
	})
	require.Empty(t, heard)
	require.Zero(t, l.count(allTurns))
	require.False(t, l.ask(store.UsageGive, "places", "ann").Granted, "it has none")
	l.sweep()
	require.Zero(t, l.count("select count(*) from gates where gate = $1", l.gate("places", "a")))
}

// TestUseLimit_AReleaseWakesThoseThatServeTheLimit: of the one turn that it inserts.
func TestUseLimit_AReleaseWakesThoseThatServeTheLimit(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("places", 1))
	require.True(t, l.ask(store.UsageAcquire, "places", "ann").Granted)
	ids := l.enqueue(limitedRun(use("places", "a")))
	_, none := l.admit(1)
	require.Empty(t, none)
	l.exec("delete from turns")                                              // that of the end of the permit
	line := admit.LimitLine(store.LimitID(l.count("select id from limits"))) //nolint:gosec // few limits
	heard := l.signals(func() { require.True(t, l.ask(store.UsageGive, "places", "ann").Granted) })
	require.NotEmpty(t, heard)
	for _, due := range heard {
		require.Equal(t, line, due.Lane)
	}
	require.Equal(t, 1, l.count(allTurns))
	_, runs := l.admit(1)
	require.Equal(t, ids, idsOf(runs))
}

// TestUseLimit_AnOperatorsReleaseIsAnnouncedAlike: the end of a permit, and of a penalty.
func TestUseLimit_AnOperatorsReleaseIsAnnouncedAlike(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("places", 1))
	change := func(command store.LimitCommand) {
		t.Helper()
		change := store.LimitChange{Command: command, Limit: store.Limit{Name: "places"}, Key: "a", Owner: admit.OwnerID("ann"), By: "ann"}
		require.NoError(t, l.ChangeLimit(t.Context(), change))
	}
	for command, hold := range map[store.LimitCommand]store.LimitUsage{store.ReleasePermit: store.UsageAcquire, store.LiftPenalty: store.UsagePenalize} {
		require.True(t, l.ask(hold, "places", "ann").Granted)
		require.Empty(t, l.signals(func() { change(command) }))
		require.Zero(t, l.count(allTurns))
		require.True(t, l.ask(hold, "places", "ann").Granted)
		ids := l.enqueue(limitedRun(use("places", "a")))
		_, none := l.admit(1)
		require.Empty(t, none)
		l.exec("delete from turns")
		require.NotEmpty(t, l.signals(func() { change(command) }))
		r, runs := l.admit(1)
		require.Equal(t, ids, idsOf(runs))
		l.settle(r, runs, store.Outcome{Kind: store.Success})
		l.admit(1) // takes the turn
	}
}

// TestUseLimit_AReleaseLosesNoTurn is the first trap of releases: one that is open, and has
// seen no run that waits, while a run is enqueued and an admission takes its turn. The gate is
// the release's, so the turn goes back.
func TestUseLimit_AReleaseLosesNoTurn(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("places", 1))
	require.True(t, l.ask(store.UsageAcquire, "places", "ann").Granted)
	l.stall("delete on permits deferrable initially deferred")
	var given store.LimitGrant
	released := l.stalled(l.asking(store.UsageGive, "places", "ann", &given))
	ids := l.enqueue(limitedRun(use("places", "a")))
	_, none := l.admit(1)
	require.Empty(t, none, "the permit counts until the release is committed")
	released()
	require.True(t, given.Granted)
	var runs []store.ClaimedRun
	require.Eventually(t, func() bool {
		_, runs = l.admit(1)
		return len(runs) == 1
	}, 10*time.Second, time.Millisecond)
	require.Equal(t, ids, idsOf(runs))
	l.sound("at the end")
}

// TestUseLimit_AReleaseSeesWhatAnAdmissionHasLeft is the second trap: an admission has taken
// the turn of a run, and counts the place that the release is about to give back. The
// release waits for it, and announces the run that it has left.
func TestUseLimit_AReleaseSeesWhatAnAdmissionHasLeft(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("places", 1))
	require.True(t, l.ask(store.UsageAcquire, "places", "ann").Granted)
	ids := l.enqueue(limitedRun(use("places", "a")))
	l.stall("delete on turns")
	r := l.admission(1)
	holder := l.begin("select pg_advisory_xact_lock(hashtext($1))", l.schema)
	admitted, admitting := l.behind(l.backend(holder), func(ctx context.Context) error {
		_, err := l.Claim(ctx, r)
		return err
	})
	var given store.LimitGrant
	released, _ := l.behind(admitting, l.asking(store.UsageGive, "places", "ann", &given))
	require.NoError(t, holder.Rollback(t.Context()))
	admitted()
	released()
	require.True(t, given.Granted)
	require.Equal(t, 1, l.count("select count(*) from turns where line > 1 << 30 and due_at <= now()"))
	_, runs := l.admit(1)
	require.Equal(t, ids, idsOf(runs))
	l.sound("at the end")
}

// TestUseLimit_AReleaseSeesARunThatMoves has an admission put the line of a run into the round of the key
// whose place is given back, which is full as far as it knows.
func TestUseLimit_AReleaseSeesARunThatMoves(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("places", 1), semaphore("all", 1))
	hold := store.LimitRequest{Usage: store.UsageAcquire, Limit: "all", Owner: "ann", For: time.Minute}
	grant, err := l.UseLimit(t.Context(), hold)
	require.NoError(t, err)
	require.True(t, grant.Granted)
	ids := l.enqueue(limitedRun(use("places", "a"), use("all", "")))
	l.stall("insert on rounds deferrable initially deferred")
	r := l.admission(1)
	holder := l.begin("select pg_advisory_xact_lock(hashtext($1))", l.schema)
	moved, moving := l.behind(l.backend(holder), func(ctx context.Context) error {
		_, err := l.Claim(ctx, r)
		return err
	})
	released, _ := l.behind(moving, func(ctx context.Context) error {
		hold.Usage, hold.For = store.UsageGive, 0
		grant, err = l.UseLimit(ctx, hold)
		return err
	})
	l.sweep() // leaves the turns of gates alone that the admission has
	require.NoError(t, holder.Rollback(t.Context()))
	moved()
	released()
	require.True(t, grant.Granted)
	require.Equal(t, 1, l.count("select count(*) from rounds where gate = $1", l.gate("all", "")), "its line waits there")
	_, runs := l.admit(1)
	require.Equal(t, ids, idsOf(runs))
	l.sound("at the end")
}

// TestTurnsForWhichNoRunWaitsAreDeleted: those that earlier programs have left for each release,
// and those of runs that were cancelled on a queue that no worker serves.
func TestTurnsForWhichNoRunWaitsAreDeleted(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("places", 1), semaphore("runs", 1))
	require.True(t, l.ask(store.UsageAcquire, "places", "ann").Granted)
	require.True(t, l.ask(store.UsageGive, "places", "ann").Granted)
	l.exec("insert into turns (line, due_at, gate) select (1 << 30) + (gate >> 43)::int, now() - n * interval '1 minute', gate from gates, generate_series(1, 900) n")
	cancelled, waits := l.enqueue(limitedRun(use("runs", "a"))), l.enqueue(limitedRun(use("runs", "b")))
	_, err := l.Operate(t.Context(), store.RunCommand{Action: store.CancelRuns, Runs: cancelled, By: "ann"})
	require.NoError(t, err)
	l.exec("update turns set due_at = due_at - interval '2 minutes'")
	busy := l.begin("select from gates for update") // an admission may be moving a run there
	l.sweep()
	require.Equal(t, 901, l.count(allTurns), "that of a gate which no admission has created is gone")
	require.NoError(t, busy.Rollback(t.Context()))
	l.sweep()
	require.Equal(t, 1, l.count(allTurns))
	l.sweep()
	require.Zero(t, l.count("select count(*) from gates"))
	_, runs := l.admit(1)
	require.Equal(t, waits, idsOf(runs))
}
