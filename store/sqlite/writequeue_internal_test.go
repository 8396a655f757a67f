package sqlite

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

func TestWriteQueue(t *testing.T) {
	t.Run("the most urgent comes first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var g writeQueue
			require.NoError(t, g.enter(t.Context(), enqueues))
			came := crowd(t, &g, []urgency{enqueues, claims, settles, heartbeats})
			g.leave()
			synctest.Wait()
			require.Equal(t, []urgency{heartbeats, settles, claims, enqueues}, *came)
		})
	})
	t.Run("no one waits forever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var g writeQueue
			require.NoError(t, g.enter(t.Context(), enqueues))
			came := crowd(t, &g, append([]urgency{enqueues}, slices.Repeat([]urgency{heartbeats}, 50)...))
			g.leave()
			synctest.Wait()
			require.Equal(t, fairness-1, slices.Index(*came, enqueues))
		})
	})
	t.Run("who gives up does not hold up the others", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var g writeQueue
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
func crowd(t *testing.T, g *writeQueue, wait []urgency) *[]urgency {
	t.Helper()
	var came []urgency // guarded by the queue
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

func TestClockGoesOnFromWhereAnotherProcessWas(t *testing.T) {
	var c clock
	machine := c.now()
	elapsed := int64(lease.Elapsed() - 8*time.Second)
	require.True(t, c.raise(queries.FindClockRow{Latest: machine - 60e6, Elapsed: elapsed}))
	require.Less(t, c.now(), machine+60e6, "what is behind the machine's clock changes nothing")
	require.True(t, c.raise(queries.FindClockRow{Latest: machine + 3600e6, Elapsed: elapsed, Slow: 1}))
	require.GreaterOrEqual(t, c.now(), machine+3607e6)
	require.Less(t, c.now(), machine+3608e6+30e6)
	require.Positive(t, c.mark().Slow)
	require.Equal(t, 7*time.Hour, slower(8*time.Hour), "an hour is made up for in eight")
	latest := c.now()
	require.False(t, c.raise(queries.FindClockRow{Latest: machine + 25*3600e6}), "more than a day is a mistake")
	require.Less(t, c.now(), latest+60e6)
	require.GreaterOrEqual(t, c.now(), latest)
}
