package storetest

import (
	"errors"
	"testing"

	"github.com/durable-worker/durable-worker/store"
)

func inputTxTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"an input is sent when it commits and not before":  txSend,
		"an input is gone when it rolls back":              txSendRollback,
		"a step is recorded when it commits":               txStep,
		"zombie records no step in a transaction":          txStepZombie,
		"a step that is stored already is a conflict":      txStepTwice,
		"a step of a transaction is gone if it rolls back": txStepRollback,
	}
}

func txSend(t *testing.T, f *fixture) {
	worker, holder := f.held()
	f.park(worker, holder, "approved")
	tx := f.begin()
	receipt, err := tx.Send(f.ctx, approval(holder.Run, `1`))
	if err != nil || receipt.Existing || receipt.Run != holder.Run {
		t.Fatalf("Send answered %+v, %v", receipt, err)
	}
	if _, err := tx.Send(f.ctx, store.NewInput{Run: holder.Run, Name: "note", Value: []byte(`"canary"`), By: "eva"}); err != nil {
		t.Fatal(err)
	}
	if again, err := tx.Send(f.ctx, approval(holder.Run, `1`)); err != nil || !again.Existing {
		t.Errorf("Send again answered %+v, %v", again, err)
	}
	f.wantSent(holder.Run)
	f.commit(tx)
	f.wantSent(holder.Run, "note")
	f.release()
	if _, claimed := f.claimOne(worker); claimed.ID != holder.Run {
		t.Errorf("claimed %+v", claimed)
	}
}

func txSendRollback(t *testing.T, f *fixture) {
	worker, holder := f.held()
	f.park(worker, holder, "approved")
	tx := f.begin()
	sent := approval(holder.Run, `1`)
	sent.By = "eva"
	if _, err := tx.Send(f.ctx, sent); err != nil {
		t.Fatal(err)
	}
	tx.Rollback()
	f.wantSent(holder.Run)
	f.release(store.Look{Run: holder.Run, Name: "approved"})
	f.nothingDue("the transaction was rolled back")
	if found := f.steps(holder.Run); len(found.Inputs) != 0 {
		t.Errorf("the run has %+v", found.Inputs)
	}
}

func txStep(t *testing.T, f *fixture) {
	worker, holder := f.held()
	tx := f.begin()
	if _, found, err := tx.RecordedStep(f.ctx, holder.Run, "pay"); err != nil || found {
		t.Fatalf("a step that was not recorded: %v, %v", found, err)
	}
	if err := tx.RecordStep(f.ctx, newStep(holder, "pay", `{"a": 1}`)); err != nil {
		t.Fatal(err)
	}
	step, found, err := tx.RecordedStep(f.ctx, holder.Run, "pay")
	if err != nil || !found || string(step.Value) != `{"a": 1}` || step.Kind != store.StepDone {
		t.Errorf("the transaction sees %+v, %v, %v", step, found, err)
	}
	f.commit(tx)
	if got := f.step(holder.Run, "pay"); string(got.Value) != `{"a": 1}` {
		t.Errorf("stored is %+v", got)
	}
	f.settle(one(holder.Claim, worker, holder.Run, success()))
}

func txStepZombie(t *testing.T, f *fixture) {
	z := f.zombie()
	tx := f.begin()
	lost(t, "RecordStep", tx.RecordStep(f.ctx, newStep(store.Holder{Run: z.run, Claim: z.stale}, "pay", `1`)))
	tx.Rollback()
	if f.names(z.run) != "" {
		t.Error("a zombie has recorded a step")
	}
}

func txStepTwice(t *testing.T, f *fixture) {
	_, holder := f.held()
	f.mustRecord(newStep(holder, "pay", `1`))
	tx := f.begin()
	if err := tx.RecordStep(f.ctx, newStep(holder, "pay", `2`)); !errors.Is(err, store.ErrConflict) {
		t.Errorf("RecordStep answered %v, want ErrConflict", err)
	}
	tx.Rollback()
	if got := f.step(holder.Run, "pay"); string(got.Value) != `1` {
		t.Errorf("stored is %+v", got)
	}
}

func txStepRollback(t *testing.T, f *fixture) {
	_, holder := f.held()
	tx := f.begin()
	if err := tx.RecordStep(f.ctx, newStep(holder, "pay", `1`)); err != nil {
		t.Fatal(err)
	}
	tx.Rollback()
	if f.names(holder.Run) != "" {
		t.Error("a step outlives its transaction")
	}
	f.mustRecord(newStep(holder, "pay", `2`))
}
