package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// What is more than a count is left to an admission: each of these keeps the first waiter
// from a place that one settle has freed.
func TestHandOn_LeavesTheRestToAdmissions(t *testing.T) {
	t.Parallel()
	for name, obstacle := range map[string]func(l *limited){
		"the limit was lowered": func(l *limited) { l.exec("update limits set most = 1") },
		"the limit is draining": func(l *limited) { l.exec("update limits set state = 1") },
		"a penalty":             func(l *limited) { l.exec("update gates set not_before = now() + interval '1 minute'") },
		"a paused queue":        func(l *limited) { l.exec("update lanes set paused = true; update queues set paused = true") },
		"a permit of a name": func(l *limited) {
			l.exec("insert into permits (gate, owner, expires_at, k, until, runs) select gate, gen_random_uuid(), now() + interval '1 minute', 1, 'x', '{}' from gates; update limits set most = 3")
		},
		"the limit counts starts": func(l *limited) { l.exec("update limits set kind = 4, period = 1000000, burst = 2") },
		"a full limit drops runs": func(l *limited) { l.exec("update limits set action = 3") },
		"a place that is kept": func(l *limited) {
			l.exec("insert into kept (gate, lane, expires_at) select gate, 999, now() + interval '1 minute' from gates")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := openLimited(t, semaphore("doc", 2))
			l.enqueue(bounded(3, use("doc", "a"))...)
			r, runs := l.admit(5)
			require.Len(t, runs, 2)
			next := l.next(5)
			obstacle(l)
			part := runs[:1]
			settled := l.settling(r, part, next)
			got, err := l.Claim(t.Context(), next)
			require.NoError(t, err)
			settled()
			require.Equal(t, 1, l.count("select count(*) from runs where state = 2"))
			for i := range got {
				require.False(t, l.together(part[0].ID, got[i].ID))
			}
		})
	}
}

// A place is given only to what is due, and what is not keeps its turn.
func TestHandOn_StartsNothingBeforeItIsDue(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 2))
	ids := l.enqueue(bounded(4, use("doc", "a"))...)
	r, runs := l.admit(5)
	later := newRun(durable.After(time.Hour))
	later.Limits = []store.LimitUse{use("doc", "a")}
	l.enqueue(later)
	r, runs = l.handOn(r, runs, 5)
	require.Equal(t, ids[2:], idsOf(runs))
	require.True(t, l.together(ids[0], ids[2]))
	require.Equal(t, 1, l.count("select count(*) from turns where due_at > now() + interval '30 minutes'"))
	third := l.enqueue(bounded(1, use("doc", "a"))...)
	_, runs = l.handOn(r, runs, 5)
	require.Equal(t, third, idsOf(runs), "two places, and one run that is due")
	require.True(t, l.together(ids[2], third[0]))
}

// Of the keys whose places are handed on, those of a higher priority come first.
func TestHandOn_HigherPrioritiesOfOtherKeysFirst(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 2))
	runs := bounded(8, use("doc", "a"))
	for i := range runs[4:] {
		runs[4+i] = newRun(durable.Priority(2))
		runs[4+i].Limits = []store.LimitUse{use("doc", "b")}
	}
	ids := l.enqueue(runs...)
	r, first := l.admit(4)
	require.Len(t, first, 4)
	_, next := l.handOn(r, first, 2)
	require.Len(t, next, 2)
	require.Subset(t, ids[4:], idsOf(next))
	require.True(t, l.together(first[0].ID, next[0].ID))
}

// A run that is before the mark of its line is the next one: its turn is as old as it is.
func TestHandOn_PassesNoOneBeforeAMark(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	ids := l.enqueue(bounded(3, use("doc", "a"))...)
	r, runs := l.admit(1)
	require.Equal(t, ids[:1], idsOf(runs))
	early := newRun()
	early.Limits, early.At = []store.LimitUse{use("doc", "a")}, runs[0].DueAt.Add(-time.Hour)
	l.enqueue(early)
	l.MarkLine(l.gate("doc", "a"), runs[0].Lane, runs[0].DueAt)
	_, runs = l.handOn(r, runs, 1)
	require.Equal(t, []store.RunID{early.ID}, idsOf(runs))
}

// The gate of a key that no admission has named yet is left to one that names it.
func TestHandOn_LeavesNoKeyWithoutAName(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	l.enqueue(bounded(2, use("doc", "a"))...)
	r, runs := l.admit(5)
	fresh := l.enqueue(limitedRun(use("doc", "b")))
	l.exec("insert into gates (gate) select gate from waiting on conflict do nothing")
	_, runs = l.handOn(r, runs, 5)
	require.NotContains(t, idsOf(runs), fresh[0])
	_, runs = l.admit(5)
	require.Equal(t, fresh, idsOf(runs))
	require.Zero(t, l.count("select count(*) from gates where key is null"))
}

// A permit that expires leaves a place without a turn: the turns of its gate remain.
func TestHandOn_KeepsTheTurnsOfAnExpiredPermit(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 3))
	l.enqueue(bounded(2, use("doc", "a"))...)
	r, runs := l.admit(5)
	require.Len(t, runs, 2)
	l.enqueue(bounded(3, use("doc", "a"))...)
	l.exec("insert into permits (gate, owner, expires_at, k, until, runs) select gate, gen_random_uuid(), now() - interval '1 second', 1, 'x', '{}' from gates")
	next := l.next(5)
	settled := l.settling(r, runs[:1], next)
	got, err := l.Claim(t.Context(), next)
	require.NoError(t, err)
	settled()
	_, more := l.admit(5)
	require.Len(t, append(got, more...), 2)
	l.sound("at the end")
}

// A waiter that another transaction is ending gets no place, whichever of the two is faster.
func TestHandOn_GivesNoPlaceToARunThatEnds(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	ids := l.enqueue(bounded(2, use("doc", "a"))...)
	r, runs := l.admit(5)
	ends := l.begin("update runs set state = 5, finished_at = now() where id = $1", ids[1])
	_, err := ends.Exec(t.Context(), "delete from waiting where run_id = $1", ids[1])
	require.NoError(t, err)
	next := l.next(5)
	settled := l.settling(r, runs, next)
	committed := make(chan error, 1)
	time.AfterFunc(300*time.Millisecond, func() { committed <- ends.Commit(context.Background()) })
	got, err := l.Claim(t.Context(), next)
	require.NoError(t, err)
	settled()
	require.NoError(t, <-committed)
	require.Empty(t, got)
	require.Zero(t, l.count("select count(*) from permits"))
	require.Zero(t, l.count("select count(*) from leases"))
}

// What hands places on expects the next settle too, while the line continues.
func TestHandOn_GoesOnByItself(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	l.enqueue(bounded(4, use("doc", "a"))...)
	r, runs := l.admit(1)
	r, runs = l.handOn(r, runs, 1)
	require.True(t, l.HandsOn(r.Claim))
	r, runs = l.handOn(r, runs, 1)
	require.True(t, l.HandsOn(r.Claim))
	r, _ = l.handOn(r, runs, 1)
	require.False(t, l.HandsOn(r.Claim), "it has started the last one")
}
