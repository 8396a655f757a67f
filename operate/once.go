package operate

import (
	"context"
	"sync"

	"github.com/durable-worker/durable-worker/store"
)

// once keeps what was read for one answer.
type once struct {
	survey  kept[store.Survey]
	workers kept[[]store.WorkerInfo]
	rates   kept[[]store.SeriesPoint] // of each lane
	hour    kept[[]store.SeriesPoint] // of all lanes
	dead    kept[[]store.Problem]     // of the last hour
}

// kept is one thing that was read. Who asks for it while it is read waits.
type kept[T any] struct {
	mu   sync.Mutex
	read bool
	last T
}

// get returns what was read before, or reads it. After an error it is read again.
func (k *kept[T]) get(read func() (T, error)) (T, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.read {
		return k.last, nil
	}
	last, err := read()
	if err == nil {
		k.last, k.read = last, true
	}
	return last, err
}

type onceKey struct{}

// ReadOnce returns a context under which several methods read what waits, which workers
// there are, what was done and what has died in the last hour only once: they answer from
// the same survey. It is for one page.
func ReadOnce(ctx context.Context) context.Context {
	return context.WithValue(ctx, onceKey{}, &once{})
}

func onceOf(ctx context.Context) *once {
	if kept, ok := ctx.Value(onceKey{}).(*once); ok {
		return kept
	}
	return &once{}
}

// survey is the survey of the store.
func (o *Operator) survey(ctx context.Context) (store.Survey, error) {
	return onceOf(ctx).survey.get(func() (store.Survey, error) { return o.store.Survey(ctx) })
}

// workers are those of the store.
func (o *Operator) workers(ctx context.Context) ([]store.WorkerInfo, error) {
	return onceOf(ctx).workers.get(func() ([]store.WorkerInfo, error) {
		workers, err := o.store.Workers(ctx)
		return whole(workers), err
	})
}

// rates are what was done by the minute of each lane, for as long as a rate is measured.
func (o *Operator) rates(ctx context.Context) ([]store.SeriesPoint, error) {
	return onceOf(ctx).rates.get(func() ([]store.SeriesPoint, error) {
		return o.store.Series(ctx, store.SeriesQuery{Span: store.Minute, Scope: store.EachLane, Within: rated, NoTimes: true})
	})
}

// hour is what was done by the minute in the last hour.
func (o *Operator) hour(ctx context.Context) ([]store.SeriesPoint, error) {
	return onceOf(ctx).hour.get(func() ([]store.SeriesPoint, error) {
		return o.store.Series(ctx, hourQuery())
	})
}

// dead are the runs that have died in the hour before a survey and were not acknowledged,
// with their reasons as they are stored.
func (o *Operator) dead(ctx context.Context, survey *store.Survey) ([]store.Problem, error) {
	return onceOf(ctx).dead.get(func() ([]store.Problem, error) {
		return o.store.Problems(ctx, store.ProblemFilter{Since: survey.At.Add(-figuresOf)})
	})
}
