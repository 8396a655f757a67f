package postgres

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
		p := sparing{open: func() int { return 1 }}
		p.enter(t.Context(), time.Minute)
		var entered atomic.Int32
		for range 2 {
			go func() {
				p.enter(t.Context(), time.Minute)
				entered.Add(1)
			}()
		}
		synctest.Wait()
		require.Zero(t, entered.Load())
		p.leave()
		synctest.Wait()
		require.EqualValues(t, 1, entered.Load())
		p.leave()
		synctest.Wait()
		require.EqualValues(t, 2, entered.Load())
	})
}

func TestSparing_ACallGoesAheadInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := 1
		p := sparing{open: func() int { return open }}
		p.enter(t.Context(), hotWait)
		began := time.Now()
		p.enter(t.Context(), hotWait)
		require.Equal(t, hotWait, time.Since(began), "the first does not end")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		p.enter(ended, hotWait)
		require.Equal(t, hotWait, time.Since(began), "a call whose context has ended waits for nothing")
		for range 3 {
			p.leave()
		}
		open = 2
		p.enter(t.Context(), hotWait)
		p.enter(t.Context(), hotWait)
		require.Equal(t, hotWait, time.Since(began), "there are two connections")
		require.Equal(t, 2, p.busy)
		require.Empty(t, p.waiting)
	})
}

func TestSparing_NothingIsSparedWhereAllConnectionsAreOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := 3
		p := sparing{open: func() int { return open }, most: 4}
		for range 3 {
			p.enter(t.Context(), backgroundWait)
		}
		began := time.Now()
		var entered atomic.Int32
		for range 2 {
			go func() { p.enter(t.Context(), backgroundWait); entered.Add(1) }()
		}
		synctest.Wait()
		require.Zero(t, entered.Load())
		open = 4
		p.enter(t.Context(), backgroundWait)
		p.leave()
		synctest.Wait()
		require.EqualValues(t, 2, entered.Load())
		require.Equal(t, began, time.Now())
	})
}

// A call waits for a part of its time only: it has to be made, too.
func TestSparing_ALineTakesAQuarterOfTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := sparing{open: func() int { return 1 }}
		p.enter(t.Context(), backgroundWait)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		p.enter(ctx, backgroundWait)
		require.Equal(t, time.Second/4, time.Since(began))
	})
}

func TestSparing_ABusyWorkerDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := sparing{open: func() int { return 1 }}
		p.enter(t.Context(), hotWait)
		began := time.Now()
		for range 2 * calmWaits {
			p.enter(t.Context(), hotWait)
		}
		require.Equal(t, calmWaits*hotWait, time.Since(began))
		p.since -= 2 * calmFor
		began = time.Now()
		p.enter(t.Context(), hotWait)
		require.Equal(t, hotWait, time.Since(began), "it is calm again")
	})
}
