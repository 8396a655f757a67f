package durable_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
)

// gaps are the times between the end of a run and the start of the next.
type gaps struct {
	mu   sync.Mutex
	last time.Time // a run ended
	all  []time.Duration
}

func (g *gaps) handle(takes time.Duration) func(context.Context, *durable.Run[letter]) error {
	return func(context.Context, *durable.Run[letter]) error {
		g.mu.Lock()
		if !g.last.IsZero() {
			g.all = append(g.all, time.Since(g.last))
		}
		g.mu.Unlock()
		time.Sleep(takes) //nolint:forbidigo // virtual time: the handler works
		g.mu.Lock()
		g.last = time.Now()
		g.mu.Unlock()
		return nil
	}
}

// Behind a run that ends, the next of a schedule begins immediately where its end is
// notified, and at the next timed evaluation where it is not.
func TestSchedule_WaitEndsWithTheRun(t *testing.T) {
	for _, one := range []struct {
		name           string
		deaf           bool
		least, longest time.Duration // of the longest gap
	}{
		{"the end of the run is notified", false, 0, 50 * time.Millisecond},
		{"nothing is heard, timed looks find it", true, 300 * time.Millisecond, 1300 * time.Millisecond},
	} {
		t.Run(one.name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				job, g := durable.NewJob[letter]("tick"), &gaps{}
				evaluates := s.worker(durable.WorkerConfig{Name: "evaluates", NoListen: one.deaf})
				durable.Register(evaluates, durable.NewJob[letter]("other"), func(context.Context, *durable.Run[letter]) error { return nil })
				executes := s.worker(durable.WorkerConfig{Name: "executes", NoListen: one.deaf, PollInterval: 20 * time.Millisecond})
				durable.Register(executes, job, g.handle(3700*time.Millisecond))
				durable.AddSchedule(executes, "tick", job, letter{}, durable.Every(time.Second), durable.Overlap(durable.OverlapWait))
				stop, stopOther := s.begin(evaluates), s.begin(executes)
				s.pass(5 * time.Minute)
				require.NoError(t, stop())
				require.NoError(t, stopOther())
				g.mu.Lock()
				defer g.mu.Unlock()
				require.Greater(t, len(g.all), 50)
				slices.Sort(g.all)
				t.Logf("median gap %v, longest %v", g.all[len(g.all)/2], g.all[len(g.all)-1])
				require.Less(t, g.all[len(g.all)-1], one.longest)
				require.GreaterOrEqual(t, g.all[len(g.all)-1], one.least)
			})
		})
	}
}
