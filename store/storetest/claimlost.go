package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/durable-worker/durable-worker/store"
)

// loser is a worker whose claims' answers get lost, and which does what workers
// do about it: it retries under the same id, by then with other steps, or
// hands the claim back. It never knows what a claim took but by an answer.
type loser struct {
	*fixture
	random *rand.Rand
	worker store.WorkerID
	lanes  []store.LaneID
	ended  map[store.RunID]int
}

// lostAnswers makes random claims, many of whose answers are lost, until every
// run has ended: each once, none left to the lease, none crashed.
func lostAnswers(t *testing.T, f *fixture) {
	const runs = 120
	for seed := range uint64(4) {
		t.Logf("seed %d", seed)
		for priority := range 4 {
			f.enqueue(newRuns(runs/4, func(r *store.NewRun) { r.Priority, r.OnCrash = priority, store.CrashPolicy(priority%2) })...)
		}
		l := loser{fixture: f, random: rand.New(rand.NewPCG(seed, 1)), worker: newWorker(fmt.Sprint("w", seed)), ended: map[store.RunID]int{}} //nolint:gosec // a test's
		for _, step := range f.request(l.worker, 1).Steps {
			l.lanes = append(l.lanes, step.Lane)
		}
		for range 100 * runs {
			if len(l.ended) == runs {
				break
			}
			l.turn()
		}
		counts := f.counts()
		if counts[store.Running] != 0 || counts[store.Pending] != 0 || counts[store.Dead] != 0 || len(l.ended) != runs {
			t.Fatalf("seed %d: %d of %d runs have ended; %v", seed, len(l.ended), runs, counts)
		}
		for id, times := range l.ended {
			if record := f.record(id); times != 1 || record.CrashCount != 0 || record.Attempt != 1 {
				t.Errorf("seed %d: run %s was answered %d times and is %+v", seed, id, times, record)
			}
		}
	}
}

// steps are random ones of the lanes, some of them nonsense.
func (l *loser) steps() []store.Step {
	steps := make([]store.Step, l.random.IntN(5))
	for i := range steps {
		steps[i] = store.Step{Lane: l.lanes[l.random.IntN(len(l.lanes))], Skip: max(l.random.IntN(12)-8, 0), Take: l.random.IntN(8)}
		if l.random.IntN(8) == 0 {
			steps[i].Lane = -steps[i].Lane
		}
	}
	return steps
}

// turn makes one claim and sees it through.
func (l *loser) turn() {
	l.t.Helper()
	request := l.request(l.worker, 1)
	for l.random.IntN(3) > 0 { // so often is the answer lost; or the claim never came
		request.Steps, request.Limit = l.steps(), 1+l.random.IntN(12)
		if l.random.IntN(4) > 0 {
			l.ask(request)
		}
		if l.random.IntN(5) == 0 {
			l.handBack(request)
			return
		}
	}
	request.Steps, request.Limit = l.steps(), 1+l.random.IntN(12)
	claimed := l.ask(request)
	if len(claimed) == 0 {
		return
	}
	for len(claimed) > 0 {
		n := 1 + l.random.IntN(len(claimed))
		settlement := all(request.Claim, l.worker, claimed[:n], success())
		settlement.Last, settlement.Claimed = n == len(claimed), len(claimed)
		for i, verdict := range l.settle(settlement) {
			if verdict == store.Applied {
				l.ended[claimed[i].ID]++
			}
		}
		claimed = claimed[n:]
	}
}

func (l *loser) ask(request store.ClaimRequest) []store.ClaimedRun {
	l.t.Helper()
	claimed, err := l.store.Claim(l.ctx, request)
	if err != nil {
		l.t.Fatalf("Claim: %v", err)
	}
	return claimed
}
