package postgres

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// TestLineMarks_HideNoWaiter has runs enter a long line below the mark that admissions
// read it from. Those whose turn is as old as they are come first; one whose turn does not
// say so comes when the line has no others, at the latest.
func TestLineMarks_HideNoWaiter(t *testing.T) {
	t.Parallel()
	l := newMarkedLine(t)
	l.enqueue(1000, time.Time{})
	for range 6 {
		require.Len(t, l.cycle(), 100)
	}
	l.keepMarks()
	require.Equal(t, 1, l.store.worker.admitter.Marked(l.lanes), "the line is long enough to have a mark")

	past := l.enqueue(1, time.Now().Add(-time.Hour))
	require.Equal(t, past[0], l.cycle()[0], "its turn is older than the mark")
	l.keepMarks()

	hidden := l.enqueue(1, time.Now().Add(-time.Hour))
	_, err := l.store.db.Engine.Exec(l.ctx, "UPDATE durable.turns SET due_at = now()")
	require.NoError(t, err)
	for _, found := range []bool{false, false, true} {
		require.Equal(t, found, slices.Contains(l.cycle(), hidden[0]), "when fewer wait above the mark than were asked for")
	}
	require.NotEmpty(t, l.cycle())
	require.Empty(t, l.cycle())
	require.Zero(t, l.store.worker.admitter.Marked(l.lanes), "a short line has no mark")
}

// TestLineMarks_AreForAWhile has a run enter a long line unnoticed: the next read from the
// beginning finds it.
func TestLineMarks_AreForAWhile(t *testing.T) {
	t.Parallel()
	l := newMarkedLine(t)
	l.enqueue(2000, time.Time{})
	for range 6 {
		l.cycle()
	}
	hidden := l.enqueue(1, time.Now().Add(-time.Hour))
	_, err := l.store.db.Engine.Exec(l.ctx, "UPDATE durable.turns SET due_at = now()")
	require.NoError(t, err)
	l.keepMarks()
	require.False(t, slices.Contains(l.cycle(), hidden[0]))
	l.setMarks(lease.Elapsed())
	require.True(t, slices.Contains(l.cycle(), hidden[0]))
	require.NotEmpty(t, l.cycle())
}

// TestLineMarks_ARoomThatIsLeftIsAnnounced has a run enter a long line unnoticed whose other
// waiters need more places than are free. Nothing is going to be released, so only a turn
// finds it.
func TestLineMarks_ARoomThatIsLeftIsAnnounced(t *testing.T) {
	t.Parallel()
	l := newMarkedLine(t)
	l.enqueueHeavy(1, 50)
	require.Len(t, l.claim(lease.NewClaimID()), 1, "executes from here on")
	l.enqueue(600, time.Time{})
	l.enqueueHeavy(300, 100)
	for range 12 {
		require.Len(t, l.cycle(), 50)
	}
	hidden := l.enqueue(1, time.Now().Add(-time.Hour))
	_, err := l.store.db.Engine.Exec(l.ctx, "UPDATE durable.turns SET due_at = now()")
	require.NoError(t, err)
	l.setMarks(lease.Elapsed() + 300*time.Millisecond)
	require.Empty(t, l.cycle(), "those above the mark are too heavy")
	found, err := l.store.CheckLimits(l.ctx)
	require.NoError(t, err)
	require.Empty(t, found)
	require.Eventually(t, func() bool { return slices.Equal(hidden, l.cycle()) }, 10*time.Second, 50*time.Millisecond)
}

// TestExhausted asks claims of limited runs whether they have left something to start. A
// worker that rests although they have finds it at its next poll.
func TestExhausted(t *testing.T) {
	t.Parallel()
	l := newMarkedLine(t)
	claim := func(limit, take int) (n int, exhausted bool) {
		runs, err := l.store.Claim(l.ctx, store.ClaimRequest{Claim: lease.NewClaimID(), Worker: l.worker, Duration: time.Minute, Limit: limit,
			Lanes: l.lanes, Admissions: []store.Admission{{Line: admit.LimitLine(1), Take: take}, {Line: 1, Take: take}}, Exhausted: &exhausted})
		require.NoError(t, err)
		return len(runs), exhausted
	}
	expect := func(n int, exhausted bool, what string) func(int, bool) {
		return func(got int, said bool) {
			t.Helper()
			require.Equal(t, n, got, what)
			require.Equal(t, exhausted, said, what)
		}
	}
	expect(0, false, "it has no turns, another may have")(claim(200, 200))
	l.enqueue(3, time.Time{})
	expect(3, true, "all are taken")(claim(200, 200))
	l.enqueue(3, time.Time{})
	expect(2, false, "there was no room for the third")(claim(2, 200))
	expect(1, true, "it had a turn")(claim(200, 200))
	l.enqueue(200, time.Time{})
	expect(94, false, "some wait for a release")(claim(200, 200))

	other := store.Limit{Name: "other", Kind: store.LimitSemaphore, Max: 1}
	require.NoError(t, l.store.declarer.ChangeLimit(l.ctx, store.LimitChange{Command: store.SetLimit, Limit: other, By: "ann"}))
	keyed := func(key string) {
		l.enqueueAs(1, func(run *store.NewRun) { run.Limits[0] = store.LimitUse{Limit: "other", Key: key} })
	}
	keyed("a")
	keyed("b")
	expect(1, false, "the turn of the other key was not taken")(claim(200, 1))
	expect(1, true, "it is now")(claim(200, 200))
	tx, err := l.store.db.General.Begin(l.ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(l.ctx)) }()
	_, err = tx.Exec(l.ctx, "SELECT FROM durable.gates FOR UPDATE")
	require.NoError(t, err)
	keyed("a")
	expect(0, false, "another admission has the gate")(claim(200, 200))
	require.NoError(t, tx.Rollback(l.ctx))
	_, err = l.store.db.Engine.Exec(l.ctx, "DELETE FROM durable.turns")
	require.NoError(t, err)
	keyed("c")
	keyed("d")
	tx, err = l.store.db.General.Begin(l.ctx)
	require.NoError(t, err)
	_, err = tx.Exec(l.ctx, "SELECT FROM durable.turns WHERE gate = (SELECT gate FROM durable.waiting ORDER BY due_at DESC LIMIT 1) FOR UPDATE")
	require.NoError(t, err)
	expect(1, false, "another admission has a turn")(claim(200, 200))
}

// markedLine is a line of waiters for a limit of 100 places, and its worker.
type markedLine struct {
	t      *testing.T
	ctx    context.Context
	store  *Store
	worker store.WorkerID
	lanes  []store.LaneID
}

func newMarkedLine(t *testing.T) *markedLine {
	t.Helper()
	ctx := t.Context()
	s, err := Open(ctx, pgtest.Database(t), Config{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	_, err = s.schema.Migrate(ctx)
	require.NoError(t, err)
	doc := store.Limit{Name: "doc", Kind: store.LimitSemaphore, Max: 100}
	require.NoError(t, s.declarer.ChangeLimit(ctx, store.LimitChange{Command: store.SetLimit, Limit: doc, By: "ann"}))
	return &markedLine{t: t, ctx: ctx, store: s, worker: store.WorkerID{Name: "w", Instance: uuid.New()}, lanes: []store.LaneID{1}}
}

// enqueue stores runs for the limit; at: when they are due, the zero time: now.
func (l *markedLine) enqueue(n int, at time.Time) (ids []store.RunID) {
	l.t.Helper()
	return l.enqueueAs(n, func(run *store.NewRun) { run.At = at })
}

// enqueueHeavy stores runs that need so many places each.
func (l *markedLine) enqueueHeavy(n, weight int) {
	l.t.Helper()
	l.enqueueAs(n, func(run *store.NewRun) { run.Limits[0].Weight = weight })
}

func (l *markedLine) enqueueAs(n int, as func(*store.NewRun)) (ids []store.RunID) {
	l.t.Helper()
	runs := make([]store.NewRun, n)
	for i := range runs {
		runs[i] = store.NewRun{ID: store.NewRunID(), Job: "mail", Queue: store.DefaultQueue, MaxAttempts: 1, Args: []byte(`{}`),
			Limits: []store.LimitUse{{Limit: "doc"}}}
		as(&runs[i])
		ids = append(ids, runs[i].ID)
	}
	_, err := l.store.Enqueue(l.ctx, runs...)
	require.NoError(l.t, err)
	return ids
}

// cycle admits runs, and settles them.
func (l *markedLine) cycle() (ids []store.RunID) {
	l.t.Helper()
	id := lease.NewClaimID()
	runs := l.claim(id)
	var settled []store.Settled
	for i := range runs {
		ids = append(ids, runs[i].ID)
		settled = append(settled, store.Settled{ID: runs[i].ID, Outcome: store.Outcome{Kind: store.Success}})
	}
	if len(settled) > 0 {
		_, err := l.store.Settle(l.ctx, []store.Settlement{{Claim: id, Worker: l.worker, Limited: true, Last: true, Claimed: len(runs), Runs: settled}})
		require.NoError(l.t, err)
	}
	return ids
}

// claim admits runs.
func (l *markedLine) claim(id lease.ClaimID) []store.ClaimedRun {
	l.t.Helper()
	runs, err := l.store.Claim(l.ctx, store.ClaimRequest{Claim: id, Worker: l.worker, Duration: time.Minute, Limit: 200, Lanes: l.lanes,
		Admissions: []store.Admission{{Line: admit.LimitLine(1), Take: 200}, {Line: 1, Take: 200}}})
	require.NoError(l.t, err)
	return runs
}

// keepMarks has the next reads begin at the marks.
func (l *markedLine) keepMarks() { l.setMarks(lease.Elapsed() + time.Hour) }

func (l *markedLine) setMarks(until time.Duration) { l.store.worker.admitter.MarkUntil(until) }
