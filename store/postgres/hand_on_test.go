package postgres_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// next is a claim of whatever has room on any line of turns.
func (l *limited) next(limit int) store.ClaimRequest {
	l.t.Helper()
	heads, err := l.Heads(l.t.Context(), serves)
	require.NoError(l.t, err)
	r := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: l.worker, Duration: time.Minute, Limit: limit, Exhausted: new(bool)}
	for _, h := range heads {
		if h.Line != 0 {
			r.Admissions = append(r.Admissions, store.Admission{Line: h.Line, Take: limit})
		}
		if h.Line != 0 && h.Lane > 0 {
			r.Lanes = append(r.Lanes, h.Lane)
		}
	}
	return r
}

// settling is a settlement that waits for the claim with which it is sent.
func (l *limited) settling(r store.ClaimRequest, runs []store.ClaimedRun, next store.ClaimRequest) (ended func() []store.Verdict) {
	l.t.Helper()
	lines := make([]store.LineID, len(next.Admissions))
	for i, one := range next.Admissions {
		lines[i] = one.Line
	}
	l.PrepareHandOn(r.Claim, lines)
	done := make(chan []store.Verdict, 1)
	go func() { done <- l.settle(r, runs, store.Outcome{Kind: store.Success}) }()
	require.Eventually(l.t, func() bool { return l.SettlesThatWait() == 1 }, 10*time.Second, 100*time.Microsecond)
	return func() []store.Verdict { return <-done }
}

// handOn settles runs together with the next claim.
func (l *limited) handOn(r store.ClaimRequest, runs []store.ClaimedRun, limit int) (store.ClaimRequest, []store.ClaimedRun) {
	l.t.Helper()
	next := l.next(limit)
	settled := l.settling(r, runs, next)
	got, err := l.Claim(l.t.Context(), next)
	require.NoError(l.t, err)
	require.NotContains(l.t, settled(), store.Rejected)
	return next, got
}

// together reports whether one transaction has settled one run and started another.
func (l *limited) together(settled, started store.RunID) bool {
	l.t.Helper()
	return l.count("select count(*) from runs a join runs b on a.xmin::text = b.xmin::text where a.id = $1 and a.state = 2 and b.id = $2 and b.state = 1", settled, started) == 1
}

func bounded(n int, uses ...store.LimitUse) []store.NewRun {
	runs := make([]store.NewRun, n)
	for i := range runs {
		runs[i] = limitedRun(uses...)
	}
	return runs
}

// Settles hand their places on to the first ones that wait, in their transaction.
func TestHandOn_PlacesGoOnInTheTransactionThatFreesThem(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 3))
	ids := l.enqueue(bounded(11, use("doc", "a"))...)
	r, runs := l.admit(10)
	require.Equal(t, ids[:3], idsOf(runs))
	for first := 3; first < 9; first += 3 {
		before := runs
		r, runs = l.handOn(r, runs, 10)
		require.Equal(t, ids[first:first+3], idsOf(runs))
		require.True(t, l.together(before[0].ID, runs[0].ID))
		require.Equal(t, 3, l.count("select sum(k) from permits"))
		require.Zero(t, l.count("select count(*) from turns"), "the gate is full")
		l.sound("handed on")
	}
	r, runs = l.handOn(r, runs, 10)
	require.Equal(t, ids[9:], idsOf(runs), "fewer wait than there are places")
	_, none := l.handOn(r, runs, 10)
	require.Empty(t, none)
	require.Zero(t, l.count("select count(*) from permits"))
	require.Equal(t, 11, l.count("select count(*) from runs where state = 2"))
	require.Zero(t, l.count("select count(*) from leases"))
}

// Of many keys each gets one run before any gets a second, and no more than there is room for.
func TestHandOn_OneOfEachKeyFirst(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 2))
	var ids []store.RunID
	for _, key := range []string{"a", "b", "c"} {
		ids = append(ids, l.enqueue(bounded(6, use("doc", key))...)...)
	}
	r, runs := l.admit(6)
	require.Len(t, runs, 6)
	_, runs = l.handOn(r, runs, 4)
	require.Len(t, runs, 4)
	got := idsOf(runs)
	for _, first := range []store.RunID{ids[2], ids[8], ids[14]} {
		require.Contains(t, got, first)
	}
	require.NotZero(t, l.count("select count(*) from turns"), "two places are free")
	_, runs = l.admit(6)
	require.Len(t, runs, 2)
	require.Equal(t, 6, l.count("select sum(k) from permits"))
	l.sound("at the end")
}

// A run that needs two places is not passed by those that need one.
func TestHandOn_PassesNoHeavierOne(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 2))
	l.enqueue(bounded(2, use("doc", "a"))...)
	r, runs := l.admit(5)
	require.Len(t, runs, 2)
	heavy := use("doc", "a")
	heavy.Weight = 2
	l.enqueue(limitedRun(heavy), limitedRun(use("doc", "a")))
	next := l.next(5)
	settled := l.settling(r, runs[:1], next)
	got, err := l.Claim(t.Context(), next)
	require.NoError(t, err)
	settled()
	require.Empty(t, got)
}

// A run of a higher priority is first, whichever worker serves its lane.
func TestHandOn_PassesNoHigherPriority(t *testing.T) {
	t.Parallel()
	for name, served := range map[string]bool{"of the same worker": true, "of another worker": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := openLimited(t, semaphore("doc", 1))
			l.enqueue(bounded(2, use("doc", "a"))...)
			r, runs := l.admit(5)
			require.Len(t, runs, 1)
			urgent := newRun(durable.Priority(2))
			urgent.Limits = []store.LimitUse{use("doc", "a")}
			l.enqueue(urgent)
			next := l.next(5)
			if !served {
				lane := store.LaneID(l.count("select lane from waiting where run_id = $1", urgent.ID)) //nolint:gosec // few lanes
				next.Lanes = slices.DeleteFunc(next.Lanes, func(one store.LaneID) bool { return one == lane })
			}
			settled := l.settling(r, runs, next)
			got, err := l.Claim(t.Context(), next)
			require.NoError(t, err)
			settled()
			if served {
				require.Equal(t, []store.RunID{urgent.ID}, idsOf(got))
			} else {
				require.Empty(t, got, "the place is kept")
			}
			l.sound("at the end")
		})
	}
}

// A waiter that a user's transaction has locked keeps its place, and the settle does not wait.
func TestHandOn_AWaiterLockedByAnotherStaysInLine(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	ids := l.enqueue(bounded(3, use("doc", "a"))...)
	r, runs := l.admit(5)
	tx := l.begin("select from runs where id = $1 for update", ids[1])
	_, runs = l.handOn(r, runs, 5)
	require.Empty(t, runs)
	require.Equal(t, 1, l.count("select count(*) from runs where state = 2"))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Eventually(t, func() bool {
		_, runs = l.admit(5)
		return len(runs) == 1 && runs[0].ID == ids[1]
	}, 10*time.Second, time.Millisecond)
}

// A gate that an admission has locked is that admission's.
func TestHandOn_AGateOfAnotherIsLeft(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	ids := l.enqueue(bounded(2, use("doc", "a"))...)
	r, runs := l.admit(5)
	other := l.begin("select from gates for update")
	_, runs = l.handOn(r, runs, 5)
	require.Empty(t, runs)
	require.NoError(t, other.Rollback(t.Context()))
	require.Eventually(t, func() bool {
		_, runs = l.admit(5)
		return len(runs) == 1 && runs[0].ID == ids[1]
	}, 10*time.Second, time.Millisecond)
}

// A turn that comes while places are handed on is not lost: its waiter is not seen yet.
func TestHandOn_ATurnIsNotLost(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 2))
	l.enqueue(bounded(2, use("doc", "a"))...)
	r, runs := l.admit(5)
	require.Len(t, runs, 2)
	next := l.next(5)
	settled := l.settling(r, runs, next)
	l.stall("insert on turns") // after the settle has freed its places, before HandOn looks
	var none []store.ClaimedRun
	goOn := l.stalled(func(ctx context.Context) (err error) {
		none, err = l.Claim(ctx, next)
		return err
	})
	late := l.enqueue(bounded(1, use("doc", "a"))...)
	goOn()
	settled()
	if len(none) == 0 {
		require.Eventually(t, func() bool {
			_, none = l.admit(5)
			return len(none) == 1
		}, 10*time.Second, time.Millisecond)
	}
	require.Equal(t, late, idsOf(none))
	l.sound("at the end")
}

// Whatever limits runs have, no place is used twice, no run is passed by one that came after
// for the same key alone, and all of them succeed, if settles hand on what they can.
func TestHandOn_AtRandom(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 2), semaphore("api", 3), store.Limit{Name: "rate", Kind: store.LimitTokenBucket, Max: 100, Burst: 10, Period: time.Second})
	conn := l.conn()
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test
	some := func() store.NewRun {
		uses := []store.LimitUse{use("doc", string(rune('a'+random.IntN(3))))}
		switch random.IntN(10) {
		case 0:
			uses[0].Weight = 2
		case 1:
			uses = append(uses, use("api", ""))
		case 2:
			uses = append(uses, use("rate", ""))
		case 3, 4:
			uses[0].Limit = "api"
		}
		run := newRun(durable.Priority(random.IntN(8) / 7))
		run.Limits = uses
		return run
	}
	type held struct {
		r    store.ClaimRequest
		runs []store.ClaimedRun
	}
	var executing []held
	handed, enqueued := 0, 0
	const most = 150
	for open := 1; open > 0 || enqueued < most; {
		if enqueued < most && random.IntN(3) == 0 {
			n := 1 + random.IntN(8)
			enqueued += n
			for range n {
				l.enqueue(some())
			}
		}
		var r store.ClaimRequest
		var runs []store.ClaimedRun
		if limit := 1 + random.IntN(6); len(executing) == 0 {
			r, runs = l.admit(limit)
		} else {
			at := random.IntN(len(executing))
			ends := executing[at]
			executing = slices.Delete(executing, at, at+1)
			r, runs = l.handOn(ends.r, ends.runs, limit)
			if len(runs) > 0 {
				var together bool
				require.NoError(t, conn.QueryRow(t.Context(), "select a.xmin::text = b.xmin::text from runs a, runs b where a.id = $1 and b.id = $2", ends.runs[0].ID, runs[0].ID).Scan(&together))
				if together {
					handed++
				}
			}
		}
		var over int
		require.NoError(t, conn.QueryRow(t.Context(), "select count(*) from (select gate from permits join limits on limits.id = gate >> 43 group by gate having sum(k) > max(most)) over").Scan(&over))
		require.Zero(t, over)
		for i := range runs {
			var passed int
			require.NoError(t, conn.QueryRow(t.Context(), `select count(*) from waiting join lanes on lanes.id = waiting.lane, runs started join lanes own on own.id = started.lane
				where started.id = $1 and cardinality(started.gates) = 1 and started.weights is null and waiting.gate = started.gates[1] and not waiting.more
				and (lanes.priority > own.priority or lanes.priority = own.priority and (waiting.due_at, waiting.run_id) < (started.due_at, started.id))`, runs[i].ID).Scan(&passed))
			require.Zero(t, passed)
		}
		if len(runs) > 0 {
			executing = append(executing, held{r, runs})
		}
		require.NoError(t, conn.QueryRow(t.Context(), "select count(*) from runs where state <> 2").Scan(&open))
	}
	require.NotZero(t, handed)
	l.sound("at the end")
	require.Zero(t, l.count("select count(*) from permits"))
	require.Zero(t, l.count("select count(*) from leases"))
}

// Of a settle and the claim that it meets, each is done once, whichever message the connection
// is lost with.
func TestHandOn_CutInEveryMessage(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	direct := l.opened
	cutOff, c := openCut(t, direct)
	line := admit.LimitLine(admit.LimitOf(admit.GateID(l.gate("doc", "a"))))
	conn := l.conn()
	c.sweep(t, func(n int64) {
		l.opened = direct
		ids := l.enqueue(bounded(2, use("doc", "a"))...)
		l.opened = cutOff
		c.next.Store(-1)
		r, runs := l.admit(5)
		require.Equal(t, ids[:1], idsOf(runs))
		next := l.next(5)
		l.PrepareHandOn(r.Claim, []store.LineID{line})
		settlement := settlement(r, runs, store.Outcome{Kind: store.Success})
		settlement.Limited, settlement.Claimed = true, 1
		c.next.Store(n)
		done := make(chan error, 1)
		go func() {
			var err error
			for range 100 { // until the server has seen that the connection is gone
				var verdicts []store.Verdict
				verdicts, err = cutOff.Settle(t.Context(), []store.Settlement{settlement})
				if err == nil && verdicts[0] != store.Deferred {
					break
				}
			}
			done <- err
		}()
		require.Eventually(t, func() bool { return l.SettlesThatWait() == 1 }, 10*time.Second, 100*time.Microsecond)
		var second []store.ClaimedRun
		var err error
		for try := 0; ; try++ {
			second, err = cutOff.Claim(t.Context(), next)
			if err == nil && len(second) == 1 {
				break
			}
			require.Less(t, try, 1000, "cut at %d: %v", n, err)
			<-time.After(time.Millisecond)
		}
		require.NoError(t, <-done)
		require.Equal(t, ids[1:], idsOf(second))
		c.next.Store(-1)
		l.opened = direct
		require.Equal(t, []store.Verdict{store.Applied}, l.settle(next, second, store.Outcome{Kind: store.Success}))
		var permits int
		require.NoError(t, conn.QueryRow(t.Context(), "select count(*) from permits").Scan(&permits))
		require.Zero(t, permits)
		l.sound("at the end")
	})
}
