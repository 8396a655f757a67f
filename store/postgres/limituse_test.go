package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Code outside of runs beside everything that may come between two of its statements.

// limiterLimits are one limit of each kind, each with one place or start.
func limiterLimits() []store.Limit {
	return []store.Limit{
		semaphore("places", 1),
		{Name: "bucket", Kind: store.LimitTokenBucket, Max: 1, Period: time.Hour, Burst: 1},
		{Name: "fixed", Kind: store.LimitFixedWindow, Max: 1, Period: 24 * time.Hour},
		{Name: "sliding", Kind: store.LimitSlidingWindow, Max: 1, Period: time.Hour, Buckets: 10},
		{Name: "dynamic", Kind: store.LimitDynamicWindow, Max: 1, Period: time.Hour, Buckets: 10, Least: 1, Most: 1},
	}
}

// asking uses the key a of a limit, places for an owner.
func (l *limited) asking(usage store.LimitUsage, limit, owner string, grant *store.LimitGrant) func(ctx context.Context) error {
	request := store.LimitRequest{Usage: usage, Limit: limit, Key: "a"}
	switch usage {
	case store.UsageAcquire, store.UsageRenew:
		request.Owner, request.For = owner, time.Minute
	case store.UsageGive:
		request.Owner = owner
	case store.UsagePenalize:
		request.For = time.Minute
	}
	return func(ctx context.Context) (err error) {
		*grant, err = l.UseLimit(ctx, request)
		return err
	}
}

func (l *limited) ask(usage store.LimitUsage, limit, owner string) (grant store.LimitGrant) {
	l.t.Helper()
	require.NoError(l.t, l.asking(usage, limit, owner, &grant)(l.t.Context()))
	return grant
}

// pruning begins what the sweep does when it deletes idle gates, between their locks and
// their deletion. It returns what ends it.
func (l *limited) pruning() (tx pgx.Tx, prune func()) {
	l.t.Helper()
	tx = l.begin("select from gates for update")
	return tx, func() {
		l.t.Helper()
		_, err := tx.Exec(l.t.Context(), "delete from gates")
		require.NoError(l.t, err)
		require.NoError(l.t, tx.Commit(l.t.Context()))
	}
}

// pruned uses a limit while the gates that it needs are deleted under it.
func (l *limited) pruned(usage store.LimitUsage, limit, owner string) (grant store.LimitGrant) {
	l.t.Helper()
	l.makeGates(limit)
	tx, prune := l.pruning()
	ended := l.during(tx, l.asking(usage, limit, owner, &grant))
	prune()
	ended()
	require.Equal(l.t, 1, l.count("select count(*) from gates where gate = $1", l.gate(limit, "a")), usage)
	return grant
}

// TestUseLimit_GatePrunedUnderIt has the sweep delete the gate of a key while each use of a
// limit waits for it: the use begins again, and its effect counts.
func TestUseLimit_GatePrunedUnderIt(t *testing.T) {
	t.Parallel()
	for _, limit := range limiterLimits() {
		t.Run(limit.Name, func(t *testing.T) {
			t.Parallel()
			l := openLimited(t, limiterLimits()...)
			taken := store.UsageAcquire
			if limit.Rate() {
				taken = store.UsageTake
			}
			require.True(t, l.pruned(taken, limit.Name, "ann").Granted)
			require.False(t, l.ask(taken, limit.Name, "bob").Granted, "it counts")
			if limit.Rate() {
				l.forget()
				require.True(t, l.pruned(store.UsageCharge, limit.Name, "").Granted)
				require.False(t, l.ask(taken, limit.Name, "bob").Granted, "it counts")
			} else {
				require.True(t, l.pruned(store.UsageRenew, limit.Name, "ann").Granted)
				require.True(t, l.pruned(store.UsageGive, limit.Name, "ann").Granted)
				require.Zero(t, l.count("select count(*) from permits"))
			}
			l.forget()
			require.True(t, l.pruned(store.UsagePenalize, limit.Name, "").Granted)
			require.Equal(t, 1, l.count("select count(*) from gates where gate = $1 and not_before > now()", l.gate(limit.Name, "a")))
			require.False(t, l.ask(taken, limit.Name, "bob").Granted, "it is penalized")
		})
	}
}

// makeGates makes the gates that a key of a limit has.
func (l *limited) makeGates(limit string) {
	l.t.Helper()
	_, err := l.conn().Exec(l.t.Context(), "insert into gates (gate, key) values ($1, 'a'), ($2, '') on conflict do nothing", l.gate(limit, "a"), l.gate(limit, ""))
	require.NoError(l.t, err)
}

// forget empties the gates, as if their periods had passed.
func (l *limited) forget() {
	l.t.Helper()
	_, err := l.conn().Exec(l.t.Context(), "delete from gates")
	require.NoError(l.t, err)
}

// TestUseLimit_NoCycleWithAnAdmission has an admission that has the gate which all keys of a
// dynamic window share make the gate of a key, while a use of that key waits for it.
func TestUseLimit_NoCycleWithAnAdmission(t *testing.T) {
	t.Parallel()
	for _, made := range []bool{true, false} {
		l := openLimited(t, limiterLimits()...)
		var grant store.LimitGrant
		gates := []any{l.gate("dynamic", ""), l.gate("dynamic", "a")}
		if made {
			l.makeGates("dynamic")
			_, err := l.conn().Exec(t.Context(), "delete from gates where gate = $1", gates[1])
			require.NoError(t, err)
		}
		admitting := l.begin("insert into gates (gate) values ($1) on conflict do nothing", gates[0])
		_, err := admitting.Exec(t.Context(), "select from gates where gate = $1 for update", gates[0])
		require.NoError(t, err)
		ended := l.during(admitting, l.asking(store.UsageTake, "dynamic", "", &grant))
		_, err = admitting.Exec(t.Context(), "set local lock_timeout = '50ms'")
		require.NoError(t, err)
		_, err = admitting.Exec(t.Context(), "insert into gates (gate) values ($1) on conflict do nothing", gates[1])
		require.NoError(t, err, "the use has made the gate, and waits")
		require.NoError(t, admitting.Commit(t.Context()))
		ended()
		require.True(t, grant.Granted)
	}
}

// TestUseLimit_BesideTheSweep uses few keys of every kind of limit while another session
// deletes their gates as the sweep does, as often as it can: no use fails, and no place or start is given twice.
func TestUseLimit_BesideTheSweep(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("places", 1), store.Limit{Name: "rate", Kind: store.LimitFixedWindow, Max: 1000, Period: 24 * time.Hour},
		store.Limit{Name: "dynamic", Kind: store.LimitDynamicWindow, Max: 1000, Period: time.Hour, Buckets: 10, Least: 1, Most: 1000})
	const callers, rounds = 6, 60
	var all sync.WaitGroup
	var held [3]atomic.Int32
	var granted atomic.Int32
	faults := make(chan error, 6*callers*rounds)
	for c := range callers {
		all.Go(func() {
			for i := range rounds {
				n := (i + c) % len(held)
				ask := func(request store.LimitRequest) bool {
					request.Key = fmt.Sprint("k", n)
					grant, err := l.UseLimit(t.Context(), request)
					faults <- err
					return grant.Granted
				}
				owner := fmt.Sprint(c)
				if ask(store.LimitRequest{Usage: store.UsageAcquire, Limit: "places", Owner: owner, For: time.Minute}) {
					if held[n].Add(1) > 1 {
						faults <- errors.New("two have one place")
					}
					held[n].Add(-1)
					if !ask(store.LimitRequest{Usage: store.UsageGive, Limit: "places", Owner: owner}) {
						faults <- errors.New("a permit has been lost")
					}
				}
				if i%2 == 0 && ask(store.LimitRequest{Usage: store.UsageTake, Limit: "rate"}) {
					granted.Add(1)
				}
				ask(store.LimitRequest{Usage: store.UsageCharge, Limit: "dynamic"})
			}
		})
	}
	prune, conn := asSent(t, queries.PruneGates, l.schema+"."), l.conn()
	ended, sweeping := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sweeping)
		for {
			select {
			case <-ended:
				return
			default:
				_, err := conn.Exec(t.Context(), prune, 1000)
				if err != nil {
					faults <- err
					return
				}
			}
		}
	}()
	all.Wait()
	close(ended)
	<-sweeping
	close(faults)
	for fault := range faults {
		require.NoError(t, fault)
	}
	require.EqualValues(t, callers*rounds/2, granted.Load())
	require.Equal(t, callers*rounds/2, l.count("select sum(n) from gates, unnest(bucket_n) n where gate >> 43 = (select id from limits where name = 'rate')"))
	require.Equal(t, callers*rounds, l.count("select sum(n) from gates, unnest(bucket_n) n where gate = $1", l.gate("dynamic", "")))
	l.sound("at the end")
}

// TestASecretThatWasTakenBackIsNoticed has a failover take a limit back that is then declared
// again: with another secret, its keys have other gates.
func TestASecretThatWasTakenBackIsNoticed(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	l.enqueue(limitedRun(use("doc", "a")))
	request, runs := l.admit(1)
	require.Len(t, runs, 1)
	l.settle(request, runs, store.Outcome{Kind: store.Success})
	before := l.gate("doc", "a")
	l.exec("update limits set secret = gen_random_uuid()")
	after := l.gate("doc", "a")
	require.NotEqual(t, before, after)
	for _, key := range []store.Key{{}, {Text: "k", Policy: store.KeyReplace}} {
		run := limitedRun(use("doc", "a"))
		run.Key = key
		l.enqueue(run)
		if key.Text != "" { // the second replaces the first
			l.exec("update limits set secret = gen_random_uuid()")
			after = l.gate("doc", "a")
			again := limitedRun(use("doc", "a"))
			again.Key = key
			l.enqueue(again)
		}
		require.NotZero(t, l.count("select count(*) from waiting where gate = $1", after), "key %q", key.Text)
	}
}
