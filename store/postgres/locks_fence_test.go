package postgres_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

// The server's clock was set back, so every fence is counted on from the stored
// ones: two grants that see the same ones would count to the same number.
func TestLocks_SlotsGrantedAtTheSameMomentShareNoFence(t *testing.T) {
	t.Parallel()
	const slots, rounds = 16, 20
	s := openStore(t, "")
	locks := s.Locks()
	ask := func() (lock.Request, lock.Answer, error) {
		r := lock.Request{Name: "timer", Slots: slots, Claim: lease.NewClaimID(), Duration: time.Minute}
		answer, err := locks.Acquire(t.Context(), r)
		return r, answer, err
	}
	r, _, err := ask() // makes the rows
	require.NoError(t, err)
	_, err = locks.Release(t.Context(), r.Name, r.Claim)
	require.NoError(t, err)
	ahead := time.Now().Add(24 * time.Hour).UnixMicro()
	_, err = connect(t, s.url).Exec(t.Context(), `UPDATE `+s.schema+`.locks SET fence = $1`, ahead)
	require.NoError(t, err)

	seen := map[lease.Fence]bool{}
	last := lease.Fence(ahead)
	for range rounds {
		var requests [slots]lock.Request
		var answers [slots]lock.Answer
		var errs [slots]error
		var all sync.WaitGroup
		for i := range slots {
			all.Go(func() { requests[i], answers[i], errs[i] = ask() })
		}
		all.Wait()
		most := last
		for i, answer := range answers {
			require.NoError(t, errs[i])
			if !answer.Granted {
				continue // it looked at a slot that another was taking
			}
			require.Falsef(t, seen[answer.Fence], "two grants share fence %d", answer.Fence)
			require.Greater(t, answer.Fence, last)
			seen[answer.Fence], most = true, max(most, answer.Fence)
			_, err := locks.Release(t.Context(), "timer", requests[i].Claim)
			require.NoError(t, err)
		}
		last = most
	}
}
