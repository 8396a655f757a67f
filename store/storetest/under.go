package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func underTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"runs are stored while the claim is current":               underCurrent,
		"zombie enqueues nothing":                                  underZombie,
		"zombie enqueues nothing when no worker has claimed again": underReclaimed,
		"a claim enqueues nothing for a run that has ended":        underEnded,
		"an expired lease still enqueues until it is reclaimed":    underExpired,
		"bad runs are refused":                                     underInvalid,
		"enqueues under a claim and reclaims of it are one after":  underRace,
	}
}

func underCurrent(t *testing.T, f *fixture) {
	_, holder := f.held()
	runs := newRuns(3, func(r *store.NewRun) { r.Queue = "child" })
	for try := range 2 {
		receipts, err := f.store.EnqueueUnder(f.ctx, holder, runs...)
		if err != nil || len(receipts) != len(runs) {
			t.Fatalf("EnqueueUnder answered %v, %v", receipts, err)
		}
		for i, receipt := range receipts {
			if receipt.ID != runs[i].ID || receipt.Existing != (try > 0) {
				t.Errorf("receipt %d of try %d: %+v", i, try, receipt)
			}
		}
	}
	if counts := f.counts(); counts[store.Pending] != 3 || counts[store.Running] != 1 {
		t.Errorf("counts %v, want 3 pending and 1 running", counts)
	}
	heads, err := f.store.Heads(f.ctx, store.Serves{Queues: []string{"child"}, Jobs: []string{"mail"}})
	if err != nil || len(heads) != 1 || !heads[0].Waiting {
		t.Errorf("heads %+v, %v: want a run that waits", heads, err)
	}
}

// underRefused enqueues under a claim that is not the run's any more.
func (f *fixture) underRefused(holder store.Holder) {
	f.t.Helper()
	before := f.counts()
	run := newRun(func(r *store.NewRun) { r.Job = "child" })
	_, err := f.store.EnqueueUnder(f.ctx, holder, run)
	lost(f.t, "EnqueueUnder", err)
	f.absent(run.ID)
	for state, n := range f.counts() {
		if before[state] != n {
			f.t.Errorf("%d runs are %v, before %d", n, state, before[state])
		}
	}
}

func underZombie(_ *testing.T, f *fixture) {
	z := f.zombie()
	f.underRefused(store.Holder{Run: z.run, Claim: z.stale})
	f.underRefused(store.Holder{Run: z.run})
	f.underRefused(store.Holder{Run: store.NewRunID(), Claim: z.held})
}

func underReclaimed(_ *testing.T, f *fixture) {
	_, holder := f.held()
	f.advance(31 * time.Second)
	f.reclaim()
	f.underRefused(holder)
}

func underEnded(_ *testing.T, f *fixture) {
	for _, outcome := range outcomes() {
		f.enqueue(newRun(func(r *store.NewRun) { r.Priority = 1 }))
		worker := newWorker("w1")
		claim, claimed := f.claimOne(worker)
		f.settle(one(claim, worker, claimed.ID, outcome))
		f.underRefused(store.Holder{Run: claimed.ID, Claim: claim})
	}
}

func underExpired(t *testing.T, f *fixture) {
	_, holder := f.held()
	f.advance(31 * time.Second)
	if _, err := f.store.EnqueueUnder(f.ctx, holder, newRun()); err != nil {
		t.Errorf("EnqueueUnder: %v", err)
	}
}

func underInvalid(t *testing.T, f *fixture) {
	_, holder := f.held()
	good := newRun()
	if _, err := f.store.EnqueueUnder(f.ctx, holder, good, store.NewRun{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("EnqueueUnder answered %v, want ErrInvalid", err)
	}
	f.absent(good.ID)
}

// underRace reclaims runs while their holders enqueue again and again: from the
// first refusal on nothing is stored, and nothing fails in any other way.
func underRace(_ *testing.T, f *fixture) {
	const n = 8
	f.enqueue(newRuns(n)...)
	var holders []store.Holder
	for range n {
		claim, claimed := f.claimOne(newWorker("w1"))
		holders = append(holders, store.Holder{Run: claimed.ID, Claim: claim})
	}
	f.advance(31 * time.Second)
	stored, refused := make([][]store.RunID, n), make([]store.RunID, n)
	functions := repeat(n, func(i int) func(context.Context) error {
		return func(ctx context.Context) error {
			for ctx.Err() == nil {
				run := newRun(func(r *store.NewRun) { r.Job = "child" })
				_, err := f.store.EnqueueUnder(ctx, holders[i], run)
				if errors.Is(err, lease.ErrLost) {
					refused[i] = run.ID
					return nil
				}
				if errors.Is(err, store.ErrConflict) { // the reclaim of the run was delayed by a busy machine
					continue
				}
				if err != nil {
					return err
				}
				stored[i] = append(stored[i], run.ID)
			}
			return ctx.Err()
		}
	})
	functions = append(functions, func(ctx context.Context) error {
		for left := n; left > 0; {
			done, err := f.store.Reclaim(ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: 1})
			if err != nil {
				return err
			}
			left -= len(done.Runs)
		}
		return nil
	})
	f.together(functions...)
	for i := range n {
		for _, id := range stored[i] {
			f.record(id)
		}
		f.absent(refused[i])
	}
}

func inputUnder(t *testing.T, f *fixture) {
	worker, sender := f.held()
	receiver := newRun(func(r *store.NewRun) { r.After = time.Hour })
	f.enqueue(receiver)
	input := approval(receiver.ID, `1`)
	input.Under = sender
	for range 2 {
		f.send(input)
	}
	if found := f.steps(receiver.ID); len(found.Inputs) != 1 || string(found.Inputs[0].Value) != `1` {
		t.Fatalf("the run has %+v", found.Inputs)
	}
	f.settle(one(sender.Claim, worker, sender.Run, store.Outcome{Kind: store.Snoozed, After: time.Hour}))
	for name, under := range map[string]store.Holder{"late": sender, "other": {Run: sender.Run}} {
		late := input
		late.Name, late.Under = name, under
		_, err := f.store.Send(f.ctx, late)
		lost(t, "Send", err)
	}
	if found := f.steps(receiver.ID); len(found.Inputs) != 1 {
		t.Errorf("a claim that has lost its run has sent %+v", found.Inputs)
	}
}
