// Package verify remembers how the runs ended that a worker has settled, and settles again
// those whose outcomes the database has lost.
//
// A database may lose what it has acknowledged: in a failover to a standby that had not
// received the last commits, and in a restore. Runs that a worker has settled are then
// running again, under leases that no worker renews. When these expire, the runs would be
// executed a second time, and charged a crash that did not happen; those that must not begin
// twice would end in dead. The worker that has settled them is alive and knows how they ended.
package verify

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

const (
	// remembered is how far back outcomes are remembered, counted from the last one. mostRuns
	// and mostBytes bound how many, and the texts and results that they keep. Up to twice as
	// much is remembered.
	remembered = 30 * time.Second
	mostRuns   = 25_000
	mostBytes  = 4 << 20
)

// Run is a run that was settled.
type Run struct {
	store.Holder

	Lane    store.LaneID
	Claimed int // runs of the claim
	Limited bool
	Outcome *store.Outcome // nil: it has plainly succeeded
}

// Store is what outcomes are verified with.
type Store interface {
	// StillHeld returns those of the runs that are running under the claim named with each.
	StillHeld(ctx context.Context, holders []store.Holder) ([]store.RunID, error)
	// Settle writes outcomes under the condition that their claims hold the runs.
	Settle(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error)
}

// Outcomes are the latest of one worker. They are not safe for concurrent use.
type Outcomes struct {
	worker store.WorkerID
	lately lately
}

// New returns the outcomes of a worker that has settled nothing yet.
func New(worker store.WorkerID) *Outcomes {
	return &Outcomes{worker: worker, lately: lately{span: remembered, most: mostRuns, bytes: mostBytes}}
}

// Remember takes note of a run that was settled at an instant of the worker's monotonic clock,
// and whose outcome keeps so many bytes.
func (o *Outcomes) Remember(now time.Duration, run Run, bytes int) { o.lately.add(now, run, bytes) }

// Result is what Verify has found.
type Result struct {
	Settled int  // runs that were settled again
	Locked  bool // others are locked by another transaction: verify them again
}

// Verify settles those of the runs again that the store holds under the claims under which
// they were settled. The lease of a claim that the worker no longer has ends with its last
// run. It stops at the first error; a repeat is harmless.
func (o *Outcomes) Verify(ctx context.Context, to Store, hasClaim func(lease.ClaimID) bool) (Result, error) {
	var result Result
	for runs := range slices.Chunk(o.lately.all(), store.VerifyMost) {
		holders := make([]store.Holder, len(runs))
		for i := range runs {
			holders[i] = runs[i].Holder
		}
		held, err := to.StillHeld(ctx, holders)
		if err != nil {
			return result, err
		}
		if len(held) == 0 {
			continue
		}
		verdicts, err := to.Settle(ctx, o.settlements(runs, held, hasClaim))
		if err != nil {
			return result, err
		}
		for _, verdict := range verdicts {
			switch verdict {
			case store.Applied:
				result.Settled++
			case store.Deferred:
				result.Locked = true
			case store.AlreadyApplied, store.Rejected: // by a settle, or a reclaim, in between
			}
		}
	}
	return result, nil
}

// settlements are those of the runs that are held, claim by claim.
func (o *Outcomes) settlements(runs []Run, held []store.RunID, hasClaim func(lease.ClaimID) bool) (all []store.Settlement) {
	still := make(map[store.RunID]bool, len(held))
	for _, id := range held {
		still[id] = true
	}
	lost := slices.DeleteFunc(slices.Clone(runs), func(run Run) bool { return !still[run.Run] })
	slices.SortStableFunc(lost, func(a, b Run) int { return bytes.Compare(a.Claim[:], b.Claim[:]) })
	for i := range lost {
		run := &lost[i]
		if i == 0 || run.Claim != lost[i-1].Claim {
			all = append(all, store.Settlement{Claim: run.Claim, Worker: o.worker, Limited: run.Limited, Last: !hasClaim(run.Claim), Claimed: run.Claimed})
		}
		settled := store.Settled{ID: run.Run, Lane: run.Lane, Outcome: store.Outcome{Kind: store.Success}}
		if run.Outcome != nil {
			settled.Outcome = *run.Outcome
		}
		last := &all[len(all)-1]
		last.Runs = append(last.Runs, settled)
	}
	return all
}
