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
	require.Len(t, l.store.marks.of(l.lanes).gates, 1, "the line is long enough to have a mark")

	past := l.enqueue(1, time.Now().Add(-time.Hour))
	require.Equal(t, past[0], l.cycle()[0], "its turn is older than the mark")
	l.keepMarks()

	hidden := l.enqueue(1, time.Now().Add(-time.Hour))
	_, err := l.store.engine.Exec(l.ctx, "UPDATE durable.turns SET due_at = now()")
	require.NoError(t, err)
	for _, found := range []bool{false, false, true} {
		require.Equal(t, found, slices.Contains(l.cycle(), hidden[0]), "when fewer wait above the mark than were asked for")
	}
	require.NotEmpty(t, l.cycle())
	require.Empty(t, l.cycle())
	require.Empty(t, l.store.marks.of(l.lanes).gates, "a short line has no mark")
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
	_, err := l.store.engine.Exec(l.ctx, "UPDATE durable.turns SET due_at = now()")
	require.NoError(t, err)
	l.keepMarks()
	require.False(t, slices.Contains(l.cycle(), hidden[0]))
	l.setMarks(lease.Elapsed())
	require.True(t, slices.Contains(l.cycle(), hidden[0]))
	require.NotEmpty(t, l.cycle())
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
	_, err = s.Migrate(ctx)
	require.NoError(t, err)
	doc := store.Limit{Name: "doc", Kind: store.LimitSemaphore, Max: 100}
	require.NoError(t, s.ChangeLimit(ctx, store.LimitChange{Command: store.SetLimit, Limit: doc, By: "ann"}))
	return &markedLine{t: t, ctx: ctx, store: s, worker: store.WorkerID{Name: "w", Instance: uuid.New()}, lanes: []store.LaneID{1}}
}

// enqueue stores runs for the limit; at: when they are due, the zero time: now.
func (l *markedLine) enqueue(n int, at time.Time) (ids []store.RunID) {
	l.t.Helper()
	runs := make([]store.NewRun, n)
	for i := range runs {
		runs[i] = limitedRun()
		runs[i].At = at
		ids = append(ids, runs[i].ID)
	}
	_, err := l.store.Enqueue(l.ctx, runs...)
	require.NoError(l.t, err)
	return ids
}

// cycle admits runs, and settles them.
func (l *markedLine) cycle() (ids []store.RunID) {
	l.t.Helper()
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: l.worker, Duration: time.Minute, Limit: 200, Lanes: l.lanes,
		Admissions: []store.Admission{{Line: admit.LimitLine(1), Take: 200}, {Line: 1, Take: 200}}}
	runs, err := l.store.Claim(l.ctx, request)
	require.NoError(l.t, err)
	var settled []store.Settled
	for i := range runs {
		ids = append(ids, runs[i].ID)
		settled = append(settled, store.Settled{ID: runs[i].ID, Outcome: store.Outcome{Kind: store.Success}})
	}
	if len(settled) > 0 {
		_, err = l.store.Settle(l.ctx, []store.Settlement{{Claim: request.Claim, Worker: l.worker, Limited: true, Last: true, Claimed: len(runs), Runs: settled}})
		require.NoError(l.t, err)
	}
	return ids
}

// keepMarks has the next reads begin at the marks.
func (l *markedLine) keepMarks() { l.setMarks(lease.Elapsed() + time.Hour) }

func (l *markedLine) setMarks(until time.Duration) {
	l.store.marks.mu.Lock()
	defer l.store.marks.mu.Unlock()
	for at, mark := range l.store.marks.marks {
		mark.until = until
		l.store.marks.marks[at] = mark
	}
}
