package operate

import (
	"context"
	"sync"

	"github.com/durable-worker/durable-worker/store"
)

// once keeps what was read for one answer.
type once struct {
	mu      sync.Mutex
	survey  *store.Survey
	workers []store.WorkerInfo // nil: not read yet
}

type onceKey struct{}

// ReadOnce returns a context under which several methods read what waits, and which
// workers there are, only once: they answer from the same survey. It is for one page.
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
	kept := onceOf(ctx)
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if kept.survey == nil {
		survey, err := o.store.Survey(ctx)
		if err != nil {
			return survey, err
		}
		kept.survey = &survey
	}
	return *kept.survey, nil
}

// workers are those of the store.
func (o *Operator) workers(ctx context.Context) ([]store.WorkerInfo, error) {
	kept := onceOf(ctx)
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if kept.workers == nil {
		workers, err := o.store.Workers(ctx)
		if err != nil {
			return nil, err
		}
		kept.workers = whole(workers)
	}
	return kept.workers, nil
}
