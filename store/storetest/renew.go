package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func renewTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"many leases live as long as they are renewed together":                          manyRenewed,
		"a lease that is left out of a renewal of many expires when it did before":       leftOut,
		"of many leases those that were settled are not renewed, and the others are":     manySettled,
		"of many leases those that were taken over are lost, and the others are renewed": manyLost,
		"many expired leases that no worker has taken over are renewed":                  manyLate,
		"many leases of a worker that is gone are reclaimed, the longest expired first":  manyReclaimed,
		"the crash rule is stronger than a cancel, in every combination":                 crashRuleOfReclaim,
		"a lease of many runs is reclaimed in parts":                                     reclaimParts,
		"a reclaim of no lease reports whether one expires soon":                         reclaimOfNoLease,
		"a worker's row is written to find out whether writes work":                      touchWorker,
		"a lease that is renewed alone after it was with many expires by itself":         manyThenOne,
		"two that renew many leases each do not renew one another's":                     twoRenew,
		"a lease of which any part was taken over is lost":                               partLost,
		"in a race of reclaims and renewals of many leases each goes to one":             manyRace,
	}
}

// many is so many leases that an engine may renew them in another way than a few.
const many = 150

// hoard claims n runs, each with a claim of its own.
func (f *fixture) hoard(worker store.WorkerID, n int) (claims []lease.ClaimID, runs []store.RunID) {
	f.t.Helper()
	f.enqueue(newRuns(n)...)
	request := f.request(worker, 1)
	for range n {
		request.Claim = lease.NewClaimID()
		claimed, err := f.store.Claim(f.ctx, request)
		if err != nil || len(claimed) != 1 {
			f.t.Fatalf("claimed %d runs: %v", len(claimed), err)
		}
		claims, runs = append(claims, request.Claim), append(runs, claimed[0].ID)
	}
	return claims, runs
}

// renews renews claims for half a minute and expects that exactly those stand.
func (f *fixture) renews(claims []lease.ClaimID, standing ...[]lease.ClaimID) {
	f.t.Helper()
	renewed, err := f.store.Renew(f.ctx, claims, 30*time.Second)
	if err != nil {
		f.t.Fatalf("Renew: %v", err)
	}
	got := map[lease.ClaimID]bool{}
	for _, claim := range renewed {
		got[claim] = true
	}
	want := 0
	for _, part := range standing {
		want += len(part)
		for _, claim := range part {
			if !got[claim] {
				f.t.Fatalf("the lease of claim %s was not renewed", claim.Short())
			}
		}
	}
	if len(renewed) != want {
		f.t.Fatalf("%d leases were renewed, want %d", len(renewed), want)
	}
}

// reclaimed takes back everything that has expired and reports which runs.
func (f *fixture) reclaimed() map[store.RunID]bool {
	f.t.Helper()
	runs := map[store.RunID]bool{}
	for {
		done, err := f.store.Reclaim(f.ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
		if err != nil {
			f.t.Fatalf("Reclaim: %v", err)
		}
		for _, run := range done.Runs {
			runs[run.ID] = true
		}
		if done.Leases == 0 {
			return runs
		}
	}
}

func (f *fixture) wantReclaimed(runs ...store.RunID) {
	f.t.Helper()
	got := f.reclaimed()
	for _, run := range runs {
		if !got[run] {
			f.t.Fatalf("run %s was not reclaimed", run)
		}
	}
	if len(got) != len(runs) {
		f.t.Fatalf("%d runs were reclaimed, want %d", len(got), len(runs))
	}
}

func manyRenewed(_ *testing.T, f *fixture) {
	claims, runs := f.hoard(newWorker("w1"), many)
	for range 3 {
		f.advance(20 * time.Second)
		f.wantReclaimed()
		f.renews(claims, claims)
	}
	f.advance(31 * time.Second)
	f.wantReclaimed(runs...)
	f.renews(claims)
}

func leftOut(_ *testing.T, f *fixture) {
	claims, runs := f.hoard(newWorker("w1"), many)
	f.renews(claims, claims)
	f.advance(20 * time.Second)
	f.renews(claims[10:], claims[10:])
	f.wantReclaimed()
	f.advance(11 * time.Second)
	f.wantReclaimed(runs[:10]...)
	f.advance(20 * time.Second)
	f.wantReclaimed(runs[10:]...)
}

func manySettled(t *testing.T, f *fixture) {
	worker := newWorker("w1")
	claims, runs := f.hoard(worker, many)
	f.renews(claims, claims)
	for i := range 10 {
		if verdicts := f.settle(one(claims[i], worker, runs[i], success())); verdicts[0] != store.Applied {
			t.Fatalf("verdict %d, want accepted", verdicts[0])
		}
	}
	f.renews(claims, claims[10:])
	fresh, more := f.hoard(worker, 20)
	held := append(append([]lease.ClaimID{}, claims[10:]...), fresh...)
	f.renews(held, held)
	f.advance(31 * time.Second)
	f.wantReclaimed(append(runs[10:], more...)...)
}

func manyLost(t *testing.T, f *fixture) {
	worker := newWorker("w1")
	claims, runs := f.hoard(worker, many)
	f.renews(claims, claims)
	f.advance(31 * time.Second)
	done := f.reclaim()
	if done.Leases == 0 || done.Leases == many {
		t.Fatalf("%d leases were reclaimed by one call", done.Leases)
	}
	lost := map[store.RunID]bool{}
	for _, run := range done.Runs {
		lost[run.ID] = true
	}
	var standing []lease.ClaimID
	var stolen []store.RunID
	for i, run := range runs {
		if lost[run] {
			stolen = append(stolen, run)
			f.unchanged(run, func() {
				if verdicts := f.settle(one(claims[i], worker, run, success())); verdicts[0] != store.Rejected {
					t.Errorf("verdict %d on a lost run, want refused", verdicts[0])
				}
			})
			continue
		}
		standing = append(standing, claims[i])
	}
	f.renews(claims, standing)
	f.renews(standing, standing)
	f.wantReclaimed()
	thief, _ := f.claim(newWorker("w2"), len(stolen))
	f.renews(append(standing, thief), standing, []lease.ClaimID{thief})
}

func manyLate(_ *testing.T, f *fixture) {
	claims, runs := f.hoard(newWorker("w1"), many)
	f.advance(31 * time.Second)
	f.renews(claims, claims)
	f.advance(31 * time.Second)
	f.renews(claims, claims)
	f.wantReclaimed()
	f.advance(31 * time.Second)
	f.wantReclaimed(runs...)
}

func manyReclaimed(t *testing.T, f *fixture) {
	w1, w2 := newWorker("w1"), newWorker("w2")
	first, runs := f.hoard(w1, many)
	f.advance(time.Second)
	f.renews(first, first)
	f.advance(time.Second)
	f.enqueue(newRun())
	_, last := f.claimOne(w2)
	f.advance(time.Hour)
	done := f.reclaim()
	for _, run := range done.Runs {
		if run.ID == last.ID {
			t.Error("what expired last was reclaimed first")
		}
	}
	if len(done.Runs) == 0 || len(done.Runs) != done.Leases {
		t.Errorf("%d runs of %d leases were reclaimed", len(done.Runs), done.Leases)
	}
	if rest := f.reclaimed(); len(rest)+len(done.Runs) != len(runs)+1 || !rest[last.ID] {
		t.Errorf("%d runs were reclaimed then, want %d", len(rest), len(runs)+1-len(done.Runs))
	}
}

func manyThenOne(_ *testing.T, f *fixture) {
	claims, runs := f.hoard(newWorker("w1"), many)
	f.renews(claims, claims)
	f.advance(20 * time.Second)
	f.renews(claims[:1], claims[:1])
	f.advance(11 * time.Second)
	f.wantReclaimed(runs[1:]...)
	f.renews(claims, claims[:1])
	f.advance(31 * time.Second)
	f.wantReclaimed(runs[0])
}

func twoRenew(_ *testing.T, f *fixture) {
	first, left := f.hoard(newWorker("w1"), many)
	second, right := f.hoard(newWorker("w2"), many)
	f.renews(first, first)
	f.renews(second, second)
	f.advance(20 * time.Second)
	f.renews(second, second)
	f.advance(11 * time.Second)
	f.wantReclaimed(left...)
	f.renews(second, second)
	f.advance(31 * time.Second)
	f.wantReclaimed(right...)
}

// partLost reclaims one large lease in parts. Once the first of its runs was
// reclaimed, its worker cannot renew it; what has not been taken yet it can settle.
func partLost(t *testing.T, f *fixture) {
	const size = 50
	worker := newWorker("w1")
	f.enqueue(newRuns(size)...)
	claim, claimed := f.claim(worker, size)
	if len(claimed) != size {
		t.Fatalf("claimed %d runs, want %d", len(claimed), size)
	}
	f.advance(31 * time.Second)
	f.renews([]lease.ClaimID{claim}, []lease.ClaimID{claim})
	f.advance(31 * time.Second)
	taken := map[store.RunID]bool{}
	part := func() int {
		done, err := f.store.Reclaim(f.ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: 10, Runs: 7})
		if err != nil {
			t.Fatalf("%d runs were reclaimed, then Reclaim answered %v", len(taken), err)
		}
		for _, run := range done.Runs {
			taken[run.ID] = true
		}
		f.renews([]lease.ClaimID{claim})
		return len(done.Runs)
	}
	if part() != 7 {
		t.Fatalf("%d runs were reclaimed, want 7", len(taken))
	}
	f.renews(append(make([]lease.ClaimID, many), claim)) // also among many
	i := slices.IndexFunc(claimed, func(c store.ClaimedRun) bool { return !taken[c.ID] })
	settlement := one(claim, worker, claimed[i].ID, success())
	settlement.Last = false
	if verdicts := f.settle(settlement); verdicts[0] != store.Applied {
		t.Errorf("verdict %d on a run that was not reclaimed, want accepted", verdicts[0])
	}
	for part() > 0 {
	}
	if len(taken) != size-1 {
		t.Errorf("%d runs were reclaimed, want %d", len(taken), size-1)
	}
}

// manyRace lets a worker renew while others reclaim: a run is either reclaimed
// or its lease is renewed, never both, and no lease is left that no worker could
// reclaim.
func manyRace(t *testing.T, f *fixture) {
	worker := newWorker("w1")
	claims, runs := f.hoard(worker, many)
	for round := range 5 {
		if _, err := f.store.Renew(f.ctx, claims, time.Microsecond); err != nil {
			t.Fatalf("Renew: %v", err)
		}
		f.advance(time.Second)
		var renewed []lease.ClaimID
		done := make([]store.ReclaimResult, 2)
		f.together(func(ctx context.Context) (err error) {
			renewed, err = f.store.Renew(ctx, claims, time.Hour)
			return err
		}, func(ctx context.Context) (err error) {
			done[0], err = f.store.Reclaim(ctx, store.ReclaimRequest{MaxCrashes: 100, Limit: 7})
			return err
		}, func(ctx context.Context) (err error) {
			done[1], err = f.store.Reclaim(ctx, store.ReclaimRequest{MaxCrashes: 100, Limit: 7})
			return err
		})
		lost := map[store.RunID]bool{}
		for _, run := range append(done[0].Runs, done[1].Runs...) {
			lost[run.ID] = true
		}
		if len(renewed)+len(lost) != len(claims) {
			t.Fatalf("round %d: %d leases were renewed and %d runs reclaimed, want %d together", round, len(renewed), len(lost), len(claims))
		}
		standing := map[lease.ClaimID]bool{}
		for _, claim := range renewed {
			standing[claim] = true
		}
		var heldClaims []lease.ClaimID
		var heldRuns []store.RunID
		for i, claim := range claims {
			if standing[claim] == lost[runs[i]] {
				t.Fatalf("round %d: renewed %t and reclaimed %t", round, standing[claim], lost[runs[i]])
			}
			if standing[claim] {
				heldClaims, heldRuns = append(heldClaims, claim), append(heldRuns, runs[i])
			}
		}
		claims, runs = heldClaims, heldRuns
	}
	f.wantReclaimed()
	f.advance(2 * time.Hour)
	f.wantReclaimed(runs...)
}
