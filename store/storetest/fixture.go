package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// patience bounds how long a test waits for something that should happen
// immediately. Only a store that fails makes it wait so long.
const patience = 2 * time.Minute

// fixture is one store under test, with the calls most tests make.
type fixture struct {
	t       *testing.T
	ctx     context.Context
	backend Backend
	store   store.Store
}

func newFixture(t *testing.T, backend Backend) *fixture {
	t.Helper()
	return &fixture{t: t, ctx: t.Context(), backend: backend, store: backend.New(t)}
}

func (f *fixture) advance(d time.Duration) {
	f.t.Helper()
	f.backend.Advance(f.t, f.store, d)
}

// now reads the store's clock: a Reclaim whose horizon is long past takes no
// lease.
func (f *fixture) now() time.Time {
	f.t.Helper()
	done, err := f.store.Reclaim(f.ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: 1, Horizon: time.Unix(1, 0)})
	if err != nil {
		f.t.Fatalf("Reclaim: %v", err)
	}
	return done.Now
}

// newRun makes a run of job "mail" that the changes make special.
func newRun(changes ...func(*store.NewRun)) store.NewRun {
	run := store.NewRun{
		ID: store.NewRunID(), Job: "mail", Queue: store.DefaultQueue,
		Args: []byte(`{}`), MaxAttempts: store.DefaultMaxAttempts,
	}
	for _, change := range changes {
		change(&run)
	}
	return run
}

func newRuns(n int, changes ...func(*store.NewRun)) []store.NewRun {
	runs := make([]store.NewRun, n)
	for i := range runs {
		runs[i] = newRun(changes...)
	}
	return runs
}

func (f *fixture) enqueue(runs ...store.NewRun) {
	f.t.Helper()
	receipts, err := f.store.Enqueue(f.ctx, runs...)
	if err != nil {
		f.t.Fatalf("Enqueue: %v", err)
	}
	if len(receipts) != len(runs) {
		f.t.Fatalf("Enqueue of %d runs answered %d receipts", len(runs), len(receipts))
	}
	for i, receipt := range receipts {
		if receipt.ID != runs[i].ID || receipt.Existing {
			f.t.Fatalf("receipt %d is %+v, want a new run %s", i, receipt, runs[i].ID)
		}
	}
}

func newWorker(name string) store.WorkerID {
	return store.WorkerID{Name: name, Instance: uuid.New()}
}

// request requests up to n runs of every lane of job "mail" on the default
// queue, isolated ones left out.
func (f *fixture) request(worker store.WorkerID, n int) store.ClaimRequest {
	f.t.Helper()
	heads, err := f.store.Heads(f.ctx, store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}})
	if err != nil {
		f.t.Fatalf("Heads: %v", err)
	}
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: worker, Duration: 30 * time.Second, Limit: n}
	for _, head := range heads {
		if head.Lane > 0 && head.Line == 0 {
			request.Steps = append(request.Steps, store.Step{Lane: head.Lane, Take: n})
		}
	}
	return request
}

// claim claims up to n runs under a new claim.
func (f *fixture) claim(worker store.WorkerID, n int) (lease.ClaimID, []store.ClaimedRun) {
	f.t.Helper()
	request := f.request(worker, n)
	claimed, err := f.store.Claim(f.ctx, request)
	if err != nil {
		f.t.Fatalf("Claim: %v", err)
	}
	return request.Claim, claimed
}

// claimOne claims the run that waits first.
func (f *fixture) claimOne(worker store.WorkerID) (lease.ClaimID, store.ClaimedRun) {
	f.t.Helper()
	claim, claimed := f.claim(worker, 1)
	if len(claimed) != 1 {
		f.t.Fatalf("claimed %d runs, want 1", len(claimed))
	}
	return claim, claimed[0]
}

func (f *fixture) settle(settlements ...store.Settlement) []store.Verdict {
	f.t.Helper()
	verdicts, err := f.store.Settle(f.ctx, settlements)
	if err != nil {
		f.t.Fatalf("Settle: %v", err)
	}
	var want int
	for _, settlement := range settlements {
		want += len(settlement.Runs)
	}
	if len(verdicts) != want {
		f.t.Fatalf("Settle of %d runs answered %d verdicts", want, len(verdicts))
	}
	return verdicts
}

func (f *fixture) reclaim() store.ReclaimResult {
	f.t.Helper()
	done, err := f.store.Reclaim(f.ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: 100})
	if err != nil {
		f.t.Fatalf("Reclaim: %v", err)
	}
	return done
}

func (f *fixture) record(id store.RunID) store.Record {
	f.t.Helper()
	record, err := f.store.Run(f.ctx, id)
	if err != nil {
		f.t.Fatalf("Run: %v", err)
	}
	return record
}

func (f *fixture) counts() map[store.State]int64 {
	f.t.Helper()
	counts, err := f.store.Counts(f.ctx)
	if err != nil {
		f.t.Fatalf("Counts: %v", err)
	}
	numbers := make(map[store.State]int64, len(counts))
	for state, count := range counts {
		numbers[state] = count.N
	}
	return numbers
}

// one settles one run of a claim, the claim's last.
func one(claim lease.ClaimID, worker store.WorkerID, id store.RunID, outcome store.Outcome) store.Settlement {
	return store.Settlement{
		Claim: claim, Worker: worker, Last: true,
		Runs: []store.Settled{{ID: id, Outcome: outcome}},
	}
}

// all settles everything that a claim was given alike.
func all(claim lease.ClaimID, worker store.WorkerID, claimed []store.ClaimedRun, outcome store.Outcome) store.Settlement {
	settlement := store.Settlement{Claim: claim, Worker: worker, Last: true}
	for _, c := range claimed {
		settlement.Runs = append(settlement.Runs, store.Settled{ID: c.ID, Outcome: outcome})
	}
	return settlement
}

func success() store.Outcome { return store.Outcome{Kind: store.Success} }
