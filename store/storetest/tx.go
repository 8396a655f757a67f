package storetest

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// Transaction is a transaction of a store's user, with the store bound to it.
type Transaction struct {
	store.Tx
	Commit   func() error
	Rollback func()
}

func txTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"runs are there when it commits and not before":           txEnqueue,
		"runs are gone when it rolls back":                        txRollback,
		"what it did is seen through it":                          txReads,
		"bad runs are refused and it continues":                   txInvalid,
		"a run is stored once, however often":                     txTwice,
		"a key is held by one run, and free when it rolls back":   txKeys,
		"limited runs wait in their lines when it commits":        txLimits,
		"what is due after a while is due so long after the call": txDue,
		"completion takes effect when it commits":                 txComplete,
		"completion is gone when it rolls back":                   txCompleteRollback,
		"zombie cannot complete nor guard":                        txZombie,
		"a run that has ended cannot be completed or guarded":     txEnded,
		"a run that never was cannot be completed":                txUnknown,
		"a guarded run is completed by the same transaction":      txGuard,
		"log lines of a completion are kept with its attempt":     txLog,
		"a completion of unstorable text is refused":              txUnstorable,
		"of many completions of a run one is granted and landed":  txOneOfMany,
		"a schedule is there when it commits and not before":      txPut,
		"a schedule is changed and deleted when it commits":       txChangeSchedule,
		"what is wrong with a schedule is refused":                txPutRefused,
	}
}

// allTxTests are the tests of transactions, those of steps and inputs included.
func allTxTests() map[string]func(*testing.T, *fixture) {
	tests := txTests()
	maps.Copy(tests, inputTxTests())
	return tests
}

func (f *fixture) begin() Transaction {
	f.t.Helper()
	return f.backend.Begin(f.t, f.store)
}

func (f *fixture) commit(tx Transaction) {
	f.t.Helper()
	if err := tx.Commit(); err != nil {
		f.t.Fatalf("Commit: %v", err)
	}
}

// absent fails when a run is stored.
func (f *fixture) absent(id store.RunID) {
	f.t.Helper()
	if _, err := f.store.Run(f.ctx, id); !errors.Is(err, store.ErrNotFound) {
		f.t.Fatalf("Run answered %v, want ErrNotFound", err)
	}
}

// enqueueIn enqueues runs that are new through a transaction.
func (f *fixture) enqueueIn(tx Transaction, runs ...store.NewRun) {
	f.t.Helper()
	receipts, err := tx.Enqueue(f.ctx, runs...)
	if err != nil || len(receipts) != len(runs) {
		f.t.Fatalf("Enqueue answered %d receipts, %v", len(receipts), err)
	}
	for i, receipt := range receipts {
		if receipt.ID != runs[i].ID || receipt.Existing {
			f.t.Fatalf("receipt %d is %+v, want a new run %s", i, receipt, runs[i].ID)
		}
	}
}

// held claims a new run.
func (f *fixture) held() (store.WorkerID, store.Holder) {
	f.t.Helper()
	f.enqueue(newRun())
	worker := newWorker("w1")
	claim, claimed := f.claimOne(worker)
	return worker, store.Holder{Run: claimed.ID, Claim: claim}
}

// lost fails unless an answer says that the run is no longer the claim's.
func lost(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, lease.ErrLost) {
		t.Errorf("%s answered %v, want lease.ErrLost", what, err)
	}
}

func txEnqueue(t *testing.T, f *fixture) {
	run := newRun(func(r *store.NewRun) {
		r.Tags, r.Args = []string{`a "b"`, `c\d,{e}`}, []byte(`{"é": "\"\\, {NULL}"}`)
		r.Queue, r.ExpiresAt = "other", f.now().Add(time.Hour)
	})
	others := newRuns(30)
	tx := f.begin()
	f.enqueueIn(tx, append(others, run)...)
	f.absent(run.ID)
	f.commit(tx)
	record := f.record(run.ID)
	if record.State != store.Pending || string(record.Args) != string(run.Args) || len(record.Tags) != 2 ||
		record.Tags[0] != run.Tags[0] || record.Tags[1] != run.Tags[1] || record.Queue != "other" ||
		record.ExpiresAt == nil || record.ExpiresAt.Sub(run.ExpiresAt).Abs() > time.Millisecond {
		t.Errorf("stored %+v, want %+v", record, run)
	}
	if _, claimed := f.claim(newWorker("w1"), 100); len(claimed) != len(others) {
		t.Errorf("%d runs were claimed, want %d", len(claimed), len(others))
	}
}

func txRollback(_ *testing.T, f *fixture) {
	run := newRun(func(r *store.NewRun) { r.Queue = "never-used-before" })
	tx := f.begin()
	f.enqueueIn(tx, run)
	tx.Rollback()
	f.absent(run.ID)
	tx = f.begin() // the lane may be gone too
	f.enqueueIn(tx, run)
	f.commit(tx)
	f.record(run.ID)
}

func txReads(t *testing.T, f *fixture) {
	_, holder := f.held()
	run := newRun(func(r *store.NewRun) { r.Job, r.Tags = "letter", []string{"t"} })
	tx := f.begin()
	f.enqueueIn(tx, run)
	if err := tx.Complete(f.ctx, holder, store.Completion{Result: []byte(`7`)}); err != nil {
		t.Fatalf("Complete: %v", err)
	}
	page, err := tx.Runs(f.ctx, store.Filter{Jobs: []string{"letter"}, States: []store.State{store.Pending}})
	if err != nil || len(page.Runs) != 1 || page.Runs[0].ID != run.ID || len(page.Runs[0].Tags) != 1 {
		t.Errorf("Runs answered %+v, %v", page, err)
	}
	record, err := tx.Run(f.ctx, holder.Run)
	if err != nil || record.State != store.Succeeded || string(record.Result) != "7" || len(record.Attempts) != 1 {
		t.Errorf("Run answered %+v, %v", record, err)
	}
	if _, err := tx.Run(f.ctx, store.NewRunID()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Run of no run answered %v, want ErrNotFound", err)
	}
	if _, err := tx.Runs(f.ctx, store.Filter{Limit: -1}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("Runs with a bad limit answered %v, want ErrInvalid", err)
	}
	if got := f.record(holder.Run).State; got != store.Running {
		t.Errorf("from outside the run is %v, want running", got)
	}
	tx.Rollback()
}

func txInvalid(t *testing.T, f *fixture) {
	run := newRun()
	tx := f.begin()
	if _, err := tx.Enqueue(f.ctx, newRun(), newRun(func(r *store.NewRun) { r.Args = []byte(`"\u0000"`) })); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("Enqueue answered %v, want ErrInvalid", err)
	}
	if receipts, err := tx.Enqueue(f.ctx); err != nil || len(receipts) != 0 {
		t.Errorf("Enqueue of nothing answered %v, %v", receipts, err)
	}
	f.enqueueIn(tx, run)
	f.commit(tx)
	if counts := f.counts(); counts[store.Pending] != 1 {
		t.Errorf("counts %v, want 1 pending", counts)
	}
}

func txTwice(t *testing.T, f *fixture) {
	stored, run := newRun(), newRun()
	f.enqueue(stored)
	tx := f.begin()
	f.enqueueIn(tx, run)
	receipts, err := tx.Enqueue(f.ctx, stored, run)
	if err != nil || !receipts[0].Existing || !receipts[1].Existing {
		t.Errorf("Enqueue answered %+v, %v, want both existing", receipts, err)
	}
	f.commit(tx)
	if _, claimed := f.claim(newWorker("w1"), 10); len(claimed) != 2 {
		t.Errorf("%d runs were claimed, want 2", len(claimed))
	}
}

func txDue(t *testing.T, f *fixture) {
	before := f.now()
	run := newRun(func(r *store.NewRun) { r.After = time.Hour })
	tx := f.begin()
	f.enqueueIn(tx, run)
	f.commit(tx)
	if due, after := f.record(run.ID).DueAt, f.now(); due.Before(before.Add(time.Hour)) || due.After(after.Add(time.Hour)) {
		t.Errorf("due at %v, want an hour after an instant from %v to %v", due, before, after)
	}
}

func txComplete(t *testing.T, f *fixture) {
	worker, holder := f.held()
	run := newRun()
	tx := f.begin()
	f.enqueueIn(tx, run)
	if err := tx.Complete(f.ctx, holder, store.Completion{Result: []byte(`{"a":1}`)}); err != nil {
		t.Fatalf("Complete: %v", err)
	}
	if record := f.record(holder.Run); record.State != store.Running {
		t.Errorf("before the commit the run is %v", record.State)
	}
	f.absent(run.ID)
	f.commit(tx)
	record := f.record(holder.Run)
	if record.State != store.Succeeded || string(record.Result) != `{"a":1}` || record.FinishedAt == nil || record.Error != nil || len(record.Attempts) != 1 {
		t.Errorf("completed %+v", record)
	}
	f.record(run.ID)
	for _, outcome := range outcomes() {
		if verdicts := f.settle(one(holder.Claim, worker, holder.Run, outcome)); verdicts[0] != store.AlreadyApplied {
			t.Errorf("a settle after the commit got verdict %d, want landed", verdicts[0])
		}
	}
	if renewed, err := f.store.Renew(f.ctx, []lease.ClaimID{holder.Claim}, time.Minute); err != nil || len(renewed) != 0 {
		t.Errorf("Renew answered %v, %v: the lease should have ended", renewed, err)
	}
}

func txCompleteRollback(t *testing.T, f *fixture) {
	worker, holder := f.held()
	tx := f.begin()
	if err := tx.Complete(f.ctx, holder, store.Completion{}); err != nil {
		t.Fatalf("Complete: %v", err)
	}
	tx.Rollback()
	verdicts := f.settle(one(holder.Claim, worker, holder.Run, store.Outcome{Kind: store.Failure, Error: "not committed"}))
	if record := f.record(holder.Run); verdicts[0] != store.Applied || record.State != store.Pending {
		t.Errorf("the settle got verdict %d, and the run is %v", verdicts[0], record.State)
	}
}

func txZombie(t *testing.T, f *fixture) {
	z := f.zombie()
	before := f.record(z.run)
	stale := store.Holder{Run: z.run, Claim: z.stale}
	tx := f.begin()
	lost(t, "Guard", tx.Guard(f.ctx, stale))
	lost(t, "Complete", tx.Complete(f.ctx, stale, store.Completion{Result: []byte(`"zombie"`)}))
	f.commit(tx)
	if after := f.record(z.run); after.State != store.Running || after.Result != nil || after.Fence != before.Fence {
		t.Errorf("a zombie changed %+v to %+v", before, after)
	}
	tx = f.begin()
	if err := tx.Complete(f.ctx, store.Holder{Run: z.run, Claim: z.held}, store.Completion{}); err != nil {
		t.Errorf("Complete of the successor: %v", err)
	}
	f.commit(tx)
}

func txEnded(t *testing.T, f *fixture) {
	worker, holder := f.held()
	tx := f.begin()
	if err := tx.Complete(f.ctx, holder, store.Completion{}); err != nil {
		t.Fatalf("Complete: %v", err)
	}
	lost(t, "Complete again", tx.Complete(f.ctx, holder, store.Completion{}))
	f.commit(tx)
	for _, outcome := range outcomes()[1:] {
		f.enqueue(newRun())
		claim, claimed := f.claimOne(worker)
		f.settle(one(claim, worker, claimed.ID, outcome))
		f.endedStaysEnded(store.Holder{Run: claimed.ID, Claim: claim})
	}
	f.endedStaysEnded(holder)
}

func (f *fixture) endedStaysEnded(holder store.Holder) {
	f.t.Helper()
	before := f.record(holder.Run)
	tx := f.begin()
	lost(f.t, "Guard", tx.Guard(f.ctx, holder))
	lost(f.t, "Complete", tx.Complete(f.ctx, holder, store.Completion{Result: []byte(`1`)}))
	f.commit(tx)
	if after := f.record(holder.Run); after.State != before.State || string(after.Result) != string(before.Result) {
		f.t.Errorf("%+v became %+v", before, after)
	}
	if before.State == store.Pending { // leave nothing to be claimed by the next
		if before.DueAt.After(f.now()) {
			return
		}
		worker := newWorker("w2")
		claim, claimed := f.claimOne(worker)
		f.settle(one(claim, worker, claimed.ID, success()))
	}
}

func txUnknown(t *testing.T, f *fixture) {
	_, holder := f.held()
	tx := f.begin()
	lost(t, "Complete", tx.Complete(f.ctx, store.Holder{Run: store.NewRunID(), Claim: holder.Claim}, store.Completion{}))
	lost(t, "Complete", tx.Complete(f.ctx, store.Holder{Run: holder.Run, Claim: lease.NewClaimID()}, store.Completion{}))
	lost(t, "Guard", tx.Guard(f.ctx, store.Holder{Run: holder.Run}))
	f.commit(tx)
	if record := f.record(holder.Run); record.State != store.Running {
		t.Errorf("the run is %v", record.State)
	}
}

func txGuard(t *testing.T, f *fixture) {
	_, holder := f.held()
	tx := f.begin()
	for range 2 {
		if err := tx.Guard(f.ctx, holder); err != nil {
			t.Fatalf("Guard: %v", err)
		}
	}
	if err := tx.Complete(f.ctx, holder, store.Completion{}); err != nil {
		t.Fatalf("Complete: %v", err)
	}
	f.commit(tx)
	if record := f.record(holder.Run); record.State != store.Succeeded || record.Result != nil {
		t.Errorf("completed %+v", record)
	}
}

func txOneOfMany(t *testing.T, f *fixture) {
	_, holder := f.held()
	granted := 0
	for range 5 {
		tx := f.begin()
		err := tx.Complete(f.ctx, holder, store.Completion{})
		if err == nil && tx.Commit() == nil {
			granted++
			continue
		}
		lost(t, "Complete", err)
		tx.Rollback()
	}
	if granted != 1 {
		t.Errorf("%d completions were granted, want 1", granted)
	}
}
