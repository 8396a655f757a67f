package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func limitRandomTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"no limit is exceeded, nothing is stuck and no permit is left, whatever workers do": limitsAtRandom,
	}
}

// limitBook counts from outside what is executing under limits: from when a claim
// has answered until just before its settle, so never more than the store has.
type limitBook struct {
	*fixture

	mu     sync.Mutex
	places map[string]int // of each limit
	inUse  map[string]int // by "limit=key"
	runs   map[store.RunID][]store.LimitUse
	lost   []admitted // whose worker has crashed
	starts int
	faults []string
}

// book counts a run in, or out.
func (b *limitBook) book(id store.RunID, sign int) {
	for _, use := range b.runs[id] {
		key := use.Limit + "=" + use.Key
		b.inUse[key] += sign * use.Places()
		if n := b.inUse[key]; n > b.places[use.Limit] {
			b.faults = append(b.faults, fmt.Sprintf("%d places of %s are in use, and it has %d", n, key, b.places[use.Limit]))
		}
	}
}

func limitsAtRandom(t *testing.T, f *fixture) {
	const rounds, workers = 4, 5
	b := &limitBook{fixture: f, places: map[string]int{"api": 3, "tenant": 2, "mutex": 1}, inUse: map[string]int{}, runs: map[store.RunID][]store.LimitUse{}}
	for name, places := range b.places {
		f.declareLimits(semaphore(name, places))
	}
	for range rounds {
		b.together(repeat(workers, func(i int) func(context.Context) error {
			return func(ctx context.Context) error { return b.work(ctx, i) }
		})...)
		b.sound()
		b.recover()
		b.sound()
	}
	for empty := 0; empty < 2; {
		claims := append(admittedAll(b.admitAll(50)), b.admitAll(50, "other")...)
		claims = append(claims, b.alone()...)
		claims.end(success())
		if b.counts()[store.Pending] == 0 {
			break
		}
		if empty++; len(claims) > 0 {
			empty = 0
		}
		f.advance(2 * time.Second) // what was kept, and what is due later
	}
	for _, fault := range b.faults {
		t.Error(fault)
	}
	if counts := b.counts(); counts[store.Pending] != 0 || counts[store.Running] != 0 {
		t.Errorf("stuck: %v", counts)
	}
	infos, err := f.store.ListLimits(f.ctx, store.LimitFilter{})
	if err != nil || len(infos) != 3 {
		t.Fatalf("listed %d limits, %v", len(infos), err)
	}
	for _, info := range infos {
		if info.InUse.N != 0 || info.Waiting.N != 0 {
			t.Errorf("%s has %d places in use and %d waiters at the end", info.Name, info.InUse.N, info.Waiting.N)
		}
	}
	if b.starts < 50 {
		t.Errorf("no more than %d runs were started", b.starts)
	}
}

// work is what one worker, client and operator does for a while.
func (b *limitBook) work(ctx context.Context, number int) error {
	queue := []string{store.DefaultQueue, "other"}[number%2]
	worker := newWorker(fmt.Sprintf("w%d", number))
	var held []admitted
	var mine []store.RunID
	for range 40 {
		switch n := rand.IntN(10); {
		case n < 4:
			run := b.newRun()
			mine = append(mine, run.ID)
			if _, err := b.store.Enqueue(ctx, run); err != nil {
				return err
			}
		case n < 7:
			a, err := b.claimSome(ctx, worker, queue)
			if err != nil {
				return err
			}
			if len(a.runs) > 0 {
				held = append(held, a)
			}
		case n < 9 && len(held) > 0:
			if err := b.endSome(ctx, held[0]); err != nil {
				return err
			}
			held = held[1:]
		case n == 9 && len(mine) > 0:
			action := []store.RunAction{store.CancelRuns, store.DeleteRuns, store.RetryRuns}[rand.IntN(3)]
			id := mine[rand.IntN(len(mine))]
			if _, err := b.store.Operate(ctx, store.RunCommand{Action: action, Runs: []store.RunID{id}, By: "ann"}); err != nil {
				return err
			}
		}
	}
	b.mu.Lock()
	b.lost = append(b.lost, held...)
	b.mu.Unlock()
	return nil
}

// newRun makes a run with some limits, and notes them.
func (b *limitBook) newRun() store.NewRun {
	var texts []string
	for _, text := range []string{"api", "tenant=a", "tenant=b", "mutex"} {
		if rand.IntN(3) == 0 {
			texts = append(texts, text)
		}
	}
	if len(texts) == 0 {
		texts = []string{"api*2"}
	}
	rand.Shuffle(len(texts), func(i, j int) { texts[i], texts[j] = texts[j], texts[i] })
	run := newRun(limited(texts...), func(r *store.NewRun) {
		r.Priority, r.MaxAttempts = rand.IntN(2), 1000
		if rand.IntN(2) == 0 {
			r.Queue = "other"
		}
	})
	b.mu.Lock()
	b.runs[run.ID] = run.Limits
	b.mu.Unlock()
	return run
}

func (b *limitBook) claimSome(ctx context.Context, worker store.WorkerID, queue string) (admitted, error) {
	heads, err := b.store.Heads(ctx, store.Serves{Queues: []string{queue}, Jobs: []string{"mail"}})
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: worker, Duration: 30 * time.Second, Limit: 1 + rand.IntN(4)}
	for _, head := range heads {
		switch {
		case head.Line > 0:
			request.Admissions = append(request.Admissions, store.Admission{Line: head.Line, Take: request.Limit})
		case head.Line == 0 && head.Lane > 0:
			request.Lanes = append(request.Lanes, head.Lane)
		}
	}
	if err != nil || len(request.Admissions) == 0 {
		return admitted{}, err
	}
	claimed, err := b.store.Claim(ctx, request)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.starts += len(claimed)
	for _, r := range claimed {
		b.book(r.ID, 1)
	}
	return admitted{f: b.fixture, claim: request.Claim, worker: worker, runs: claimed}, err
}

// endSome settles the runs of a claim, each in its own way.
func (b *limitBook) endSome(ctx context.Context, a admitted) error {
	b.mu.Lock()
	for _, r := range a.runs {
		b.book(r.ID, -1)
	}
	b.mu.Unlock()
	s := a.settlement(success())
	for i := range s.Runs {
		s.Runs[i].Outcome = []store.Outcome{
			success(), success(), {Kind: store.Failure, Error: "e"}, {Kind: store.Death, Error: "e"}, {Kind: store.HandedBack},
			{Kind: store.Snoozed, After: time.Second}, {Kind: store.Success, Result: []byte(`1`)},
		}[rand.IntN(7)]
	}
	verdicts, err := settled(ctx, b.store, s)
	for _, verdict := range verdicts {
		if verdict != store.Applied {
			return fmt.Errorf("a settle was %v", verdict)
		}
	}
	return err
}

// recover has the leases of crashed workers reclaimed, and lets the workers come
// back too late.
func (b *limitBook) recover() {
	b.t.Helper()
	b.advance(31 * time.Second)
	for len(b.reclaim().Runs) > 0 {
	}
	for _, a := range b.lost {
		for _, r := range a.runs {
			b.book(r.ID, -1)
		}
		verdicts, err := settled(b.ctx, b.store, a.settlement(success()))
		if err != nil {
			b.t.Fatal(err)
		}
		for _, verdict := range verdicts {
			if verdict != store.Rejected {
				b.t.Errorf("a late settle was %v", verdict)
			}
		}
	}
	b.lost = nil
	for key, n := range b.inUse {
		if n != 0 {
			b.t.Fatalf("the book has %d places of %s in use", n, key)
		}
	}
}

// alone claims isolated runs, one at a time.
func (b *limitBook) alone() (claims admittedAll) {
	b.t.Helper()
	heads, err := b.store.Heads(b.ctx, store.Serves{Queues: []string{store.DefaultQueue, "other"}, Jobs: []string{"mail"}})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, head := range heads {
		for head.Line < 0 {
			request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: newWorker("alone"), Duration: 30 * time.Second, Limit: 1, Alone: true,
				Admissions: []store.Admission{{Line: head.Line, Take: 1}}, Lanes: []store.LaneID{head.Lane}}
			claimed, err := b.store.Claim(b.ctx, request)
			if err != nil {
				b.t.Fatal(err)
			}
			if len(claimed) == 0 {
				break
			}
			a := admitted{f: b.fixture, claim: request.Claim, worker: request.Worker, runs: claimed}
			a.end(success())
			claims = append(claims, admitted{f: b.fixture})
		}
	}
	return claims
}
