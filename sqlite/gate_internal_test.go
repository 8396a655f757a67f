package sqlite

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestGate(t *testing.T) {
	t.Run("the most urgent comes first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var g gate
			require.NoError(t, g.enter(t.Context(), enqueues))
			came := crowd(t, &g, []urgency{enqueues, claims, settles, heartbeats})
			g.leave()
			synctest.Wait()
			require.Equal(t, []urgency{heartbeats, settles, claims, enqueues}, *came)
		})
	})
	t.Run("nobody waits for ever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var g gate
			require.NoError(t, g.enter(t.Context(), enqueues))
			came := crowd(t, &g, append([]urgency{enqueues}, slices.Repeat([]urgency{heartbeats}, 50)...))
			g.leave()
			synctest.Wait()
			require.Equal(t, fairness-1, slices.Index(*came, enqueues))
		})
	})
	t.Run("who gives up does not hold up the others", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var g gate
			require.NoError(t, g.enter(t.Context(), enqueues))
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan error, 1)
			go func() { gone <- g.enter(ctx, heartbeats) }()
			synctest.Wait()
			came := crowd(t, &g, []urgency{claims})
			cancel()
			require.ErrorIs(t, <-gone, context.Canceled)
			g.leave()
			synctest.Wait()
			require.Equal(t, []urgency{claims}, *came)
		})
	})
}

// crowd lets writers wait in this order, and notes the order in which they
// come in.
func crowd(t *testing.T, g *gate, wait []urgency) *[]urgency {
	t.Helper()
	var came []urgency // guarded by the gate
	for _, u := range wait {
		go func() {
			if g.enter(context.Background(), u) == nil {
				came = append(came, u)
				g.leave()
			}
		}()
		synctest.Wait()
	}
	return &came
}

func TestClockNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		before := c.now()
		c.latest += 3600e6 // as if the machine's clock had been set back by an hour
		require.GreaterOrEqual(t, c.now(), before+3600e6)
		first := c.now()
		require.GreaterOrEqual(t, c.now(), first)
	})
}
