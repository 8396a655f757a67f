package conn

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSparing_ACallWaitsForTheOneUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := Sparing{open: func() int { return 1 }}
		p.Enter(t.Context(), time.Minute)
		var entered atomic.Int32
		for range 2 {
			go func() {
				p.Enter(t.Context(), time.Minute)
				entered.Add(1)
			}()
		}
		synctest.Wait()
		require.Zero(t, entered.Load())
		p.Leave()
		synctest.Wait()
		require.EqualValues(t, 1, entered.Load())
		p.Leave()
		synctest.Wait()
		require.EqualValues(t, 2, entered.Load())
	})
}

func TestSparing_ACallGoesAheadInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := 1
		p := Sparing{open: func() int { return open }}
		p.Enter(t.Context(), HotWait)
		began := time.Now()
		p.Enter(t.Context(), HotWait)
		require.Equal(t, HotWait, time.Since(began), "the first does not end")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		p.Enter(ended, HotWait)
		require.Equal(t, HotWait, time.Since(began), "a call whose context has ended waits for nothing")
		for range 3 {
			p.Leave()
		}
		open = 2
		p.Enter(t.Context(), HotWait)
		p.Enter(t.Context(), HotWait)
		require.Equal(t, HotWait, time.Since(began), "there are two connections")
		require.Equal(t, 2, p.busy)
		require.Empty(t, p.waiting)
	})
}

func TestSparing_NothingIsSparedWhereAllConnectionsAreOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := 3
		p := Sparing{open: func() int { return open }, most: 4}
		for range 3 {
			p.Enter(t.Context(), backgroundWait)
		}
		began := time.Now()
		var entered atomic.Int32
		for range 2 {
			go func() { p.Enter(t.Context(), backgroundWait); entered.Add(1) }()
		}
		synctest.Wait()
		require.Zero(t, entered.Load())
		open = 4
		p.Enter(t.Context(), backgroundWait)
		p.Leave()
		synctest.Wait()
		require.EqualValues(t, 2, entered.Load())
		require.Equal(t, began, time.Now())
	})
}

// A call waits for a part of its time only: it has to be made, too.
func TestSparing_ALineTakesAQuarterOfTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := Sparing{open: func() int { return 1 }}
		p.Enter(t.Context(), backgroundWait)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		p.Enter(ctx, backgroundWait)
		require.Equal(t, time.Second/4, time.Since(began))
	})
}

func TestSparing_ABusyWorkerDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := Sparing{open: func() int { return 1 }}
		p.Enter(t.Context(), HotWait)
		began := time.Now()
		for range 2 * calmWaits {
			p.Enter(t.Context(), HotWait)
		}
		require.Equal(t, calmWaits*HotWait, time.Since(began))
		p.since -= 2 * calmFor
		began = time.Now()
		p.Enter(t.Context(), HotWait)
		require.Equal(t, HotWait, time.Since(began), "it is calm again")
	})
}
