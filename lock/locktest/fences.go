package locktest

import (
	"context"
	"testing"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

// distinctFences lets many take slots of one name at the same moment, again and
// again: no two grants share a fence, and those of a round are above all of the
// round before.
func distinctFences(t *testing.T, f *fixture) {
	const slots, askers, rounds = 24, 32, 8
	seen := map[lease.Fence]int{}
	last := lease.Fence(0)
	for round := range rounds {
		requests, answers := make([]lock.Request, askers), make([]lock.Answer, askers)
		f.together(askers, func(ctx context.Context, i int) (err error) {
			requests[i] = request("timer", slots)
			answers[i], err = f.locks.Acquire(ctx, requests[i])
			return err
		})
		most, granted := last, 0
		for i, answer := range answers {
			if !answer.Granted {
				continue
			}
			granted++
			if slot, shared := seen[answer.Fence]; shared {
				t.Errorf("round %d: slot %d and slot %d share fence %d", round, answer.Slot, slot, answer.Fence)
			}
			if answer.Fence <= last {
				t.Errorf("round %d: slot %d got fence %d, and %d was granted before", round, answer.Slot, answer.Fence, last)
			}
			seen[answer.Fence], most = answer.Slot, max(most, answer.Fence)
			f.release(held{answer, "timer", requests[i].Claim}, true)
		}
		if granted < 2 {
			t.Errorf("round %d: %d grants", round, granted)
		}
		last = most
	}
}
