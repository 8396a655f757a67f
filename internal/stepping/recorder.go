package stepping

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// Recorder makes the calls of the store for all handlers of a worker, those of many together.
type Recorder struct {
	host     Host
	steps    together[store.NewStep, store.StepVerdict]
	calls    together[store.Call, struct{}]
	readings together[store.RunID, store.RunSteps]
	outcomes together[[]store.RunID, []store.RunOutcome]
}

// Bounds of one call of the store.
const (
	mostTogether  = 200
	bytesTogether = 1 << 20
	// mostRead bounds whose steps are read together: a run may have store.MaxStepsSize bytes.
	mostRead = 50
)

// stepKey is what no two steps, or calls, of one call of the store share.
type stepKey struct {
	run  store.RunID
	name string
}

// NewRecorder returns the recorder of a worker.
func NewRecorder(host Host) *Recorder {
	begin := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), host.Timeout())
	}
	return &Recorder{
		host: host,
		steps: together[store.NewStep, store.StepVerdict]{
			most: mostTogether, bound: bytesTogether, begin: begin,
			call: func(ctx context.Context, all []store.NewStep) ([]store.StepVerdict, error) {
				return host.Store.RecordSteps(ctx, all)
			},
			weight: func(s *store.NewStep) int { return 64 + len(s.Value) + len(s.Error) },
			key:    func(s *store.NewStep) any { return stepKey{s.Run, s.Name} },
		},
		calls: together[store.Call, struct{}]{
			most: mostTogether, bound: bytesTogether, begin: begin, weight: sizeOfCall,
			key: func(c *store.Call) any { return c.Run },
			call: func(ctx context.Context, all []store.Call) ([]struct{}, error) {
				return make([]struct{}, len(all)), host.Store.Call(ctx, all)
			},
		},
		readings: together[store.RunID, store.RunSteps]{
			most: mostRead, bound: mostRead, begin: begin,
			call: func(ctx context.Context, all []store.RunID) ([]store.RunSteps, error) {
				return host.Store.Steps(ctx, all)
			},
			weight: func(*store.RunID) int { return 1 },
			key:    func(id *store.RunID) any { return *id },
		},
		outcomes: together[[]store.RunID, []store.RunOutcome]{
			most: mostTogether, bound: store.MaxSources, begin: begin,
			weight: func(ids *[]store.RunID) int { return len(*ids) },
			call: func(ctx context.Context, all [][]store.RunID) ([][]store.RunOutcome, error) {
				return outcomesOf(ctx, host.Store, all)
			},
		},
	}
}

func sizeOfCall(c *store.Call) int {
	size := 64
	for i := range c.Children {
		size += 256 + len(c.Children[i].Args)
	}
	return size
}

// outcomesOf reads how the runs of many callers have ended.
func outcomesOf(ctx context.Context, from Store, all [][]store.RunID) ([][]store.RunOutcome, error) {
	var ids []store.RunID
	for _, some := range all {
		ids = append(ids, some...)
	}
	found, err := from.Outcomes(ctx, ids)
	if err != nil {
		return nil, err
	}
	answers := make([][]store.RunOutcome, len(all))
	for i, some := range all {
		answers[i], found = found[:len(some):len(some)], found[len(some):]
	}
	return answers, nil
}

// recordSteadily stores a step.
func (b *Book) recordSteadily(ctx context.Context, step store.NewStep) (verdict store.StepVerdict, err error) {
	err = b.steadily(ctx, func() error {
		verdict, err = b.recorder.steps.insist(ctx, b.x, step)
		if err == nil && verdict == store.StepLocked {
			return store.ErrConflict
		}
		return err
	})
	if verdict == store.StepLocked { // to the last try, which the store has answered
		return verdict, nil
	}
	return verdict, err
}

// Outcomes returns how runs have ended, in the order of the ids; at most store.MaxSources.
func (b *Book) Outcomes(ctx context.Context, ids []store.RunID) ([]store.RunOutcome, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return b.recorder.outcomes.insist(ctx, b.x, ids)
}
