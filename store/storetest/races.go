package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func raceTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"sixteen claimers take two thousand runs, each once":          claimersRace,
		"the same claim sent concurrently by many gets one answer":    sameClaimRace,
		"of settle, reclaim and renew exactly one has its way":        settleReclaimRenewRace,
		"the same settle sent concurrently by many takes effect once": sameSettleRace,
		"the same runs enqueued concurrently by many are stored once": sameEnqueueRace,
		"one lease is reclaimed once, however many try":               reclaimRace,
		"every verb beside every other neither fails nor deadlocks":   verbsRace,
	}
}

// together runs functions at the same moment and waits for all. It fails when
// they do not end, or when one of them fails.
func (f *fixture) together(functions ...func(ctx context.Context) error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.ctx, patience)
	defer cancel()
	start := make(chan struct{})
	errs := make([]error, len(functions))
	var group sync.WaitGroup
	for i, function := range functions {
		group.Go(func() {
			<-start
			errs[i] = function(ctx)
		})
	}
	close(start)
	ended := make(chan struct{})
	go func() {
		group.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(2 * patience):
		f.t.Fatalf("calls have not returned %v after their context ended", patience)
	}
	for i, err := range errs {
		if err != nil {
			f.t.Errorf("goroutine %d: %v", i, err)
		}
	}
}

// repeat gives n functions.
func repeat(n int, function func(i int) func(context.Context) error) []func(context.Context) error {
	functions := make([]func(context.Context) error, n)
	for i := range functions {
		functions[i] = function(i)
	}
	return functions
}

// settled settles until nothing is deferred: a transaction that locks a run's row
// for a moment may be delayed in that moment by a busy machine.
func settled(ctx context.Context, db store.Store, settlement store.Settlement) ([]store.Verdict, error) {
	verdicts := slices.Repeat([]store.Verdict{store.Deferred}, len(settlement.Runs))
	for slices.Contains(verdicts, store.Deferred) {
		answer, err := db.Settle(ctx, []store.Settlement{settlement})
		if err != nil {
			return nil, err
		}
		for i := range verdicts {
			if verdicts[i] == store.Deferred {
				verdicts[i] = answer[i]
			}
		}
	}
	return verdicts, nil
}

func claimersRace(t *testing.T, f *fixture) {
	const runs, claimers, batch = 2000, 16, 37
	f.enqueue(newRuns(runs)...)
	template := f.request(store.WorkerID{}, batch)
	var mu sync.Mutex
	takers := map[store.RunID]int{}
	f.together(repeat(claimers, func(i int) func(context.Context) error {
		return func(ctx context.Context) error {
			request := template
			request.Worker = newWorker(fmt.Sprintf("w%d", i))
			for {
				request.Claim = lease.NewClaimID()
				claimed, err := f.store.Claim(ctx, request)
				if err != nil {
					return err
				}
				mu.Lock()
				for _, c := range claimed {
					takers[c.ID]++
				}
				taken := len(takers)
				mu.Unlock()
				if taken == runs {
					return nil
				}
			}
		}
	})...)
	for id, n := range takers {
		if n != 1 {
			t.Errorf("run %s was claimed %d times", id, n)
		}
	}
	if counts := f.counts(); counts[store.Running] != runs {
		t.Errorf("counts %v, want %d running", counts, runs)
	}
}

func sameClaimRace(t *testing.T, f *fixture) {
	f.enqueue(newRuns(100)...)
	request := f.request(newWorker("w1"), 10)
	answers := make([][]store.ClaimedRun, 8)
	f.together(repeat(len(answers), func(i int) func(context.Context) error {
		return func(ctx context.Context) error {
			var err error
			answers[i], err = f.store.Claim(ctx, request)
			return err
		}
	})...)
	for i, answer := range answers {
		if len(answer) != 10 {
			t.Fatalf("answer %d has %d runs, want 10", i, len(answer))
		}
		for j := range answer {
			if answer[j].ID != answers[0][j].ID || answer[j].Fence != answers[0][j].Fence || answer[j].Attempt != 1 {
				t.Fatalf("answer %d is not answer 0", i)
			}
		}
	}
	if counts := f.counts(); counts[store.Running] != 10 {
		t.Errorf("counts %v, want 10 running", counts)
	}
}

func settleReclaimRenewRace(t *testing.T, f *fixture) {
	const n = 40
	f.enqueue(newRuns(n)...)
	worker := newWorker("w1")
	claims, runs := make([]lease.ClaimID, n), make([]store.RunID, n)
	for i := range n {
		claim, claimed := f.claimOne(worker)
		claims[i], runs[i] = claim, claimed.ID
	}
	f.advance(31 * time.Second)
	verdicts, renewed, crashed := make([]store.Verdict, n), make([]bool, n), make([]store.ReclaimResult, n)
	var functions []func(context.Context) error
	for i := range n {
		functions = append(functions, func(ctx context.Context) error {
			answer, err := settled(ctx, f.store, one(claims[i], worker, runs[i], success()))
			if err == nil {
				verdicts[i] = answer[0]
			}
			return err
		}, func(ctx context.Context) error {
			answer, err := f.store.Renew(ctx, []lease.ClaimID{claims[i]}, time.Hour)
			renewed[i] = len(answer) == 1
			return err
		}, func(ctx context.Context) error {
			var err error
			crashed[i], err = f.store.Reclaim(ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: 2})
			return err
		})
	}
	f.together(functions...)
	reclaimed := map[store.RunID]int{}
	for _, done := range crashed {
		for _, run := range done.Runs {
			reclaimed[run.ID]++
		}
	}
	for i := range n {
		record := f.record(runs[i])
		switch verdicts[i] {
		case store.Applied:
			if reclaimed[runs[i]] != 0 || record.State != store.Succeeded || record.CrashCount != 0 {
				t.Errorf("a settle was accepted and the run was reclaimed %d times: %+v", reclaimed[runs[i]], record)
			}
		case store.Rejected:
			if reclaimed[runs[i]] != 1 || renewed[i] || record.State != store.Pending || record.CrashCount != 1 {
				t.Errorf("a settle was refused, reclaims %d, renewed %v: %+v", reclaimed[runs[i]], renewed[i], record)
			}
		default:
			t.Errorf("verdict %d", verdicts[i])
		}
	}
}

func sameSettleRace(t *testing.T, f *fixture) {
	f.enqueue(newRuns(50)...)
	worker := newWorker("w1")
	claim, claimed := f.claim(worker, 50)
	settlement := all(claim, worker, claimed, store.Outcome{Kind: store.Failure, After: time.Hour, Error: "failed"})
	answers := make([][]store.Verdict, 8)
	f.together(repeat(len(answers), func(i int) func(context.Context) error {
		return func(ctx context.Context) error {
			var err error
			answers[i], err = settled(ctx, f.store, settlement)
			return err
		}
	})...)
	if t.Failed() {
		return
	}
	for j, c := range claimed {
		accepted := 0
		for _, answer := range answers {
			if answer[j] == store.Applied {
				accepted++
			} else if answer[j] != store.AlreadyApplied {
				t.Errorf("verdict %d, want accepted or landed", answer[j])
			}
		}
		if record := f.record(c.ID); accepted != 1 || len(record.Attempts) != 1 || record.Attempt != 1 {
			t.Errorf("%d writes were accepted: %+v", accepted, record)
		}
	}
}

func sameEnqueueRace(t *testing.T, f *fixture) {
	runs := newRuns(200)
	answers := make([][]store.Receipt, 8)
	f.together(repeat(len(answers), func(i int) func(context.Context) error {
		return func(ctx context.Context) error {
			var err error
			answers[i], err = f.store.Enqueue(ctx, runs...)
			return err
		}
	})...)
	if t.Failed() {
		return
	}
	stored := 0
	for _, answer := range answers {
		for _, receipt := range answer {
			if !receipt.Existing {
				stored++
			}
		}
	}
	_, claimed := f.claim(newWorker("w1"), 1000)
	if stored != len(runs) || len(claimed) != len(runs) {
		t.Errorf("%d were stored and %d claimed, want %d", stored, len(claimed), len(runs))
	}
}

func reclaimRace(t *testing.T, f *fixture) {
	const leases, batch = 30, 10
	f.enqueue(newRuns(leases * batch)...)
	for range leases {
		f.claim(newWorker("w1"), batch)
	}
	f.advance(31 * time.Second)
	var mu sync.Mutex
	crashes := map[store.RunID]int{}
	f.together(repeat(8, func(int) func(context.Context) error {
		return func(ctx context.Context) error {
			for range leases {
				done, err := f.store.Reclaim(ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: 3})
				if err != nil {
					return err
				}
				mu.Lock()
				for _, run := range done.Runs {
					crashes[run.ID]++
				}
				mu.Unlock()
			}
			return nil
		}
	})...)
	for id, n := range crashes {
		if n != 1 {
			t.Errorf("run %s was reclaimed %d times", id, n)
		}
	}
	if counts := f.counts(); len(crashes) != leases*batch || counts[store.Pending] != leases*batch {
		t.Errorf("%d runs were reclaimed, want %d: %v", len(crashes), leases*batch, counts)
	}
}
