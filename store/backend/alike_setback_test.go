package backend_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/internal/verify"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// setBack is a history of several processes whose database loses, again and again, what it had
// acknowledged last. They live on, and so does what they remember.
type setBack struct {
	*history

	dsn       string
	processes []backend.Store
	instant   *pgtest.Instant // nil: none is kept
	outcomes  *verify.Outcomes
	settled   time.Duration // how many settles there were, as a clock
	losses    int
}

// TestNothingIsStuckWhenTheDatabaseIsSetBack plays histories in which failovers lose commits.
// Whatever was lost, no run is ever without a lease, and none that is due is kept from workers.
func TestNothingIsStuckWhenTheDatabaseIsSetBack(t *testing.T) {
	t.Parallel()
	for range (*histories + 1) / 2 {
		seed := *firstSeed
		if seed == 0 {
			seed = rand.Uint64()
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			newSetBack(t, seed).play(*steps)
		})
	}
}

// processes is how many there are.
const processes = 3

func newSetBack(t *testing.T, seed uint64) *setBack {
	t.Helper()
	b := &setBack{history: newHistory(t, seed, "postgres"), outcomes: verify.New(store.WorkerID{Name: "w"})}
	b.dsn = b.dsns[0]
	b.processes = []backend.Store{b.stores[0]}
	for len(b.processes) < processes {
		one, err := backend.Open(t.Context(), b.dsn, backend.Config{})
		require.NoError(t, err)
		t.Cleanup(one.Close)
		b.processes = append(b.processes, one)
	}
	b.acts, b.concluded = b.act, b.remember
	return b
}

// act has a worker use its own process. What belongs to no worker is any process's.
func (b *setBack) act(worker store.WorkerID) { b.stores[0] = b.processes[worker.Instance[0]%processes] }

// remember is what a worker remembers of its settles.
func (b *setBack) remember(settlements []store.Settlement, verdicts []store.Verdict) {
	i := 0
	for _, s := range settlements {
		for _, run := range s.Runs {
			if verdicts[i] == store.Applied {
				b.settled++
				outcome := run.Outcome
				b.outcomes.Remember(b.settled, verify.Run{Holder: store.Holder{Run: run.ID, Claim: s.Claim}, Limited: s.Limited, Claimed: s.Claimed, Outcome: &outcome}, 0)
			}
			i++
		}
	}
}

func (b *setBack) play(steps int) {
	verbs := b.verbs()
	for range steps {
		b.stores[0] = one(b.history, b.processes...)
		switch b.random.IntN(15) {
		case 0:
			b.keep()
		case 1:
			b.fail()
		case 2:
			b.failAmidSettles()
		case 3:
			b.failAmidEnqueues()
		default:
			verbs[b.random.IntN(len(verbs))]()
		}
	}
	b.fail()
	b.compare()
	b.expire()
	b.finish()
	b.sound()
	b.t.Logf("set back %d times", b.losses)
}

func (b *setBack) keep() {
	b.instant = pgtest.Keep(b.t, b.dsn, "durable")
	b.done = append(b.done, "keep")
}

// failAmidSettles loses the first settles of what a worker has claimed, before it settles the
// rest.
func (b *setBack) failAmidSettles() {
	i := slices.IndexFunc(b.held, func(held holding) bool { return len(held.runs) > 1 })
	if i < 0 {
		return
	}
	held := b.held[i].runs
	ends := make([]store.Settled, len(held))
	for j := range ends {
		ends[j] = store.Settled{ID: held[j], Outcome: one(b.history, store.Outcome{Kind: store.Success}, store.Outcome{Kind: store.Success},
			store.Outcome{Kind: store.Failure, Error: "e", After: time.Hour}, store.Outcome{Kind: store.HandedBack})}
	}
	first := 1 + b.random.IntN(len(ends)-1)
	b.keep()
	b.end(i, 1, ends[:first])
	b.fail()
	if i < len(b.held) {
		b.end(i, 1, ends[first:])
	}
	b.nothingIsWithoutALease()
}

// failAmidEnqueues loses what a program has enqueued, which then enqueues its like.
func (b *setBack) failAmidEnqueues() {
	b.stores[0] = b.processes[0]
	runs := b.newRuns()
	enqueue := func(what string) {
		b.each(what+b.ids(runs), func(s backend.Store) any {
			receipts, err := s.Enqueue(b.t.Context(), runs...)
			return []any{receipts, wordOf(err)}
		})
	}
	b.keep()
	enqueue("enqueue, to be lost, ")
	b.fail()
	b.stores[0] = b.processes[0]
	for i := range runs {
		runs[i].ID = store.NewRunID()
	}
	b.known = append(b.known, runs...)
	enqueue("enqueue their like ")
}

// fail sets the database back, if an instant is kept. The processes of some workers are gone
// with it; the others settle again what it has lost.
func (b *setBack) fail() {
	b.t.Helper()
	if b.instant == nil {
		return
	}
	b.instant.SetBack(b.t)
	b.instant = nil
	b.losses++
	b.done = append(b.done, "set back")
	for _, process := range b.processes {
		b.reconnect(process)
	}
	for _, process := range b.processes[1:] { // their workers notice that it is not the server of before; the first one only enqueues
		done, err := process.Reclaim(b.t.Context(), store.ReclaimRequest{MaxCrashes: 3, Limit: 100, Server: 1})
		require.NoError(b.t, err)
		require.Empty(b.t, done.Runs)
	}
	b.nothingIsWithoutALease()
	switch b.random.IntN(3) {
	case 0:
		b.held = nil
	case 1:
		b.verify()
	}
	b.sound()
	b.nothingIsWithoutALease()
}

// reconnect makes each kind of call until the process has noticed that its connections are gone.
func (b *setBack) reconnect(process backend.Store) {
	ctx := b.t.Context()
	for what, call := range map[string]func() error{
		"heads": func() error { _, err := process.Heads(ctx, store.Serves{}); return err },
		"renew": func() error { _, err := process.Renew(ctx, []lease.ClaimID{{1}}, time.Hour); return err },
		"runs":  func() error { _, err := process.Runs(ctx, store.Filter{Limit: 1}); return err },
		"run":   func() error { _, err := process.Enqueue(ctx, store.NewRun{}); return nilIfInvalid(err) },
	} {
		require.Eventually(b.t, func() bool { return call() == nil }, time.Minute, time.Millisecond, what)
	}
}

func nilIfInvalid(err error) error {
	if wordOf(err) == store.ErrInvalid.Error() {
		return nil
	}
	return err
}

// verify is what living workers do.
func (b *setBack) verify() {
	b.t.Helper()
	inHand := map[lease.ClaimID]bool{}
	for _, held := range b.held {
		for _, id := range held.runs {
			inHand[held.claims[0][id]] = true
		}
	}
	result, err := b.outcomes.Verify(b.t.Context(), b.stores[0], func(claim lease.ClaimID) bool { return inHand[claim] })
	require.NoError(b.t, err, b.last())
	b.done = append(b.done, fmt.Sprintf("verify: %+v", result))
	again, err := b.outcomes.Verify(b.t.Context(), b.stores[0], func(lease.ClaimID) bool { return false })
	require.NoError(b.t, err)
	require.Zero(b.t, again.Settled, "what was settled again is settled\nafter\n%s", b.last())
}

func (b *setBack) nothingIsWithoutALease() {
	b.t.Helper()
	without := pgtest.Ask(b.t, b.dsn, `select count(*)::text from durable.runs r where r.state = 1
		and not exists (select from durable.leases l where l.claim_id = r.claim_id and r.id = any (l.run_ids))`)
	require.Equal(b.t, "0", without, "running runs without a lease\nafter\n%s", b.last())
}

// expire has all leases expire, whose workers are gone: nothing is running then.
func (b *setBack) expire() {
	b.t.Helper()
	b.held = nil
	b.nothingIsWithoutALease()
	pgtest.Execute(b.t, b.dsn, "update durable.leases set beat = null, expires_at = now() - interval '1 second'")
	for {
		done, err := b.stores[0].Reclaim(b.t.Context(), store.ReclaimRequest{MaxCrashes: 3, Limit: 100})
		require.NoError(b.t, err)
		require.Empty(b.t, done.SetAside)
		if done.Leases == 0 {
			break
		}
	}
	require.Equal(b.t, "0", pgtest.Ask(b.t, b.dsn, "select count(*)::text from durable.runs where state = 1"), "after\n%s", b.last())
	require.Equal(b.t, "0", pgtest.Ask(b.t, b.dsn, "select count(*)::text from durable.leases"), "after\n%s", b.last())
}
