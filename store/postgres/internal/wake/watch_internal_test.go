package wake

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
)

// notice is a notification of a run of jobs that all members serve, or of another job.
func notice(lane store.LaneID, job string) []store.Signal {
	return []store.Signal{{Kind: store.RunsDue, Due: store.Due{Lane: lane, Names: NamesOf("q", job), Runs: 1, Draw: newDraw()}}}
}

// beginners are the members that look by themselves after a notification.
func beginners(all []*crew, now time.Duration, heard []store.Signal) (who []int) {
	for i, c := range all {
		own := append([]store.Signal(nil), heard...)
		if mine, _ := c.startWatching(now, false, own); len(mine) > 0 {
			who = append(who, i)
		}
	}
	return who
}

func TestWatch_OneBeginsWhereNotificationsComeOften(t *testing.T) {
	const step = 10 * time.Millisecond
	all := crewOf(20)
	now, began := time.Second, 0
	for ; began == 0; now += step {
		who := beginners(all, now, notice(1, "a"))
		require.LessOrEqual(t, len(who), 1)
		began += len(who)
		require.Less(t, now, 2*time.Second)
	}
	require.Empty(t, beginners(all, now, notice(1, "a")), "one looks already")
	other := notice(2, "b")
	mine, _ := all[7].startWatching(now, true, append([]store.Signal(nil), other...))
	require.Len(t, mine, 1, "who watches also looks in another lane")
	require.Zero(t, mine[0].Draw, "whatever was drawn")
	require.Empty(t, beginners(slices.Concat(all[:7], all[8:]), now, other), "and no other does")
	require.Empty(t, beginners(all, now, notice(3, "c")), "nobody serves that job")
	handed := notice(1, "a")
	handed[0].Due.Every, handed[0].Due.For = 7*time.Millisecond, store.HandOver
	require.Len(t, beginners(all, now, handed), 1, "it is handed over before it ends")
	many := notice(1, "a")
	many[0].Due.Runs, many[0].Due.For = 33, watchFor
	now += 400 * time.Millisecond
	require.Len(t, beginners(all, now, many), 1, "of several that look once, one goes on")

	now += 10 * time.Second
	for range 20 {
		require.Empty(t, beginners(all, now, notice(1, "a")), "they come seldom")
		now += 50 * time.Millisecond
	}
}

func TestWatch_ThoseWhoDoNotKnowTheOthersDoNotBegin(t *testing.T) {
	c := crewOf(1)[0]
	c.members = nil
	for now := time.Second; now < 2*time.Second; now += 5 * time.Millisecond {
		mine, _ := c.startWatching(now, false, notice(1, "a"))
		require.Empty(t, mine)
	}
}

func TestWatch_IsHandedOverWhereRunsAreFound(t *testing.T) {
	var h handover
	due := store.Due{Lane: 1, Names: 7, Every: 9 * time.Millisecond}
	h.add(time.Second, 250*time.Millisecond, []store.Due{due}, 100)
	require.Equal(t, 1250*time.Millisecond-store.HandOver, h.at)
	h.add(1100*time.Millisecond, 250*time.Millisecond, []store.Due{due, {Lane: 2}}, 100)
	require.Equal(t, 1250*time.Millisecond-store.HandOver, h.at, "the earlier one's end")
	next := h.next(h.at, 150)
	require.Len(t, next, 2)
	require.Equal(t, store.HandOver, next[0].For)
	require.Equal(t, watchOften, next[0].Every)
	require.NotZero(t, next[0].Draw)
	require.Equal(t, next[0].Draw, next[1].Draw)
	require.Zero(t, h.at)

	h.add(time.Second, 250*time.Millisecond, []store.Due{due}, 100)
	require.Empty(t, h.next(h.at, 103), "few have been found")

	h.add(time.Second, 250*time.Millisecond, []store.Due{due, {Lane: 2}}, 100)
	h.drop([]store.Signal{{Kind: store.RunsDue, Due: store.Due{Lane: 1, For: store.HandOver}}})
	require.Len(t, h.next(h.at, 150), 1, "the other one has been handed over")
}

func TestWatch_WhatMayBeLeftToIt(t *testing.T) {
	s := New(conn.New("", nil, conn.Options{}, nil), someWorkers(0), false)
	plain := store.Due{Lane: 5, Runs: 1}
	limited, mixed := store.Due{Lane: 5, Runs: 1, Limited: true}, store.Due{Lane: 5, Runs: 1, Limited: true, Mixed: true}
	require.Len(t, s.locksToTry([]store.Due{plain}), 1)
	require.NotEqual(t, s.locksToTry([]store.Due{plain}), s.locksToTry([]store.Due{limited}))
	require.ElementsMatch(t, append(s.locksToTry([]store.Due{plain}), s.locksToTry([]store.Due{limited})...), s.locksToTry([]store.Due{mixed}))
	for name, dues := range map[string][]store.Due{
		"none": nil, "many": {{Lane: 5, Runs: store.RunsPerWorker + 1}}, "later": {{Lane: 5, Runs: 1, In: time.Second}}, "no lane": {{Runs: 1}},
		"passed on": {{Lane: 5, Runs: 1, Draw: 3}}, "one of them later": {plain, {Lane: 6, Runs: 1, In: time.Second}},
	} {
		require.Empty(t, s.locksToTry(dues), name)
	}
	seen := map[int64]bool{}
	for lane := store.LaneID(1); lane < 1000; lane++ {
		for _, lock := range watchLocks(s.db.Names, &store.Due{Lane: lane, Limited: true, Mixed: true}) {
			require.Zero(t, lock&4095, "that is for the tenth")
			require.False(t, seen[lock])
			seen[lock] = true
		}
	}
}

// The server has one lock table for all sessions: a watch in many lanes takes little of it, and
// after a failure none.
func TestWatch_HoldsFewLocks(t *testing.T) {
	t.Parallel()
	s := New(conn.New("", slog.New(slog.DiscardHandler), conn.Options{}, func() bool { return false }), someWorkers(0), false)
	require.NoError(t, s.db.Connect(t.Context(), pgtest.Database(t)))
	t.Cleanup(s.db.Close)
	var err error
	l := &listener{Waker: s, channel: s.db.Names.Channel()}
	l.conn, err = s.db.DialAlone(t.Context())
	require.NoError(t, err)
	held := func() (n int) {
		require.NoError(t, s.db.General.QueryRow(t.Context(), `SELECT count(*) FROM pg_catalog.pg_locks AS locks
			JOIN pg_catalog.pg_database AS databases ON databases.oid = locks.database
			WHERE databases.datname = current_database() AND locks.locktype = 'advisory'`).Scan(&n))
		return n
	}
	lanes := func(from, to store.LaneID) (dues []store.Due) {
		for lane := from; lane < to; lane++ {
			dues = append(dues, store.Due{Lane: lane, Runs: 1, Limited: true, Mixed: true})
		}
		return dues
	}
	require.Positive(t, l.announceWatch(t.Context(), lanes(1, 11), 4))
	require.Equal(t, 100, held(), "two locks for each of ten lanes and five tenths")
	require.Positive(t, l.announceWatch(t.Context(), lanes(11, 1000), 4))
	require.Equal(t, watchLocksMost, held())
	require.Eventually(t, func() bool {
		l.releaseExpired(t.Context())
		return held() == 0
	}, 10*time.Second, tenth)
	require.Empty(t, l.tenths)

	require.Positive(t, l.announceWatch(t.Context(), lanes(1, 2), 4))
	l.tenths[0].until = lease.Running() - 1
	_, err = l.conn.Exec(t.Context(), "BEGIN; SELECT 1/0")
	require.Error(t, err)
	l.releaseExpired(t.Context()) // fails: the session is in an aborted transaction
	require.True(t, l.conn.IsClosed())
	require.Eventually(t, func() bool { return held() == 0 }, 10*time.Second, 10*time.Millisecond)
}
