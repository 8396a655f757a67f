package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/durable-worker/durable-worker/store"
)

// WorkerList lists workers by name and then by instance, as they last reported.
type WorkerList struct {
	Workers []store.WorkerInfo `json:"workers"`
	Next    *string            `json:"next"` // the After of the next part; nil: this was the last one
}

// Workers lists the workers that are alive, and those that have fallen silent within
// store.ListedFor.
func (o *Operator) Workers(ctx context.Context, part Part) (WorkerList, error) {
	workers, err := o.workers(ctx)
	if err != nil {
		return WorkerList{Workers: []store.WorkerInfo{}}, err
	}
	workers, next, err := cut(workers, part, func(w *store.WorkerInfo) place { return place{w.Name, w.Instance.String()} })
	return WorkerList{Workers: whole(workers), Next: next}, err
}

// Worker returns the one worker of a name, or of an instance, of which the first
// characters will do. Names may repeat: the error then lists the instances.
func (o *Operator) Worker(ctx context.Context, name string) (store.WorkerInfo, error) {
	if err := checkWanted(name); err != nil {
		return store.WorkerInfo{}, err
	}
	workers, err := o.workers(ctx)
	if err != nil {
		return store.WorkerInfo{}, err
	}
	var found []store.WorkerInfo
	var named []string
	for _, w := range workers {
		if w.Name == name || len(name) >= leastPrefix && strings.HasPrefix(w.Instance.String(), name) {
			found = append(found, w)
			named = append(named, w.Instance.String())
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return store.WorkerInfo{}, fmt.Errorf("worker %q: %w", name, store.ErrNotFound)
	default:
		return store.WorkerInfo{}, fmt.Errorf("%w: %d workers are called %q: name one of the instances %s", store.ErrInvalid, len(found), name,
			strings.Join(named[:min(len(named), namedMost)], ", "))
	}
}

const (
	leastPrefix = 4  // characters of an instance
	namedMost   = 10 // workers that a text names
)

// ServedBy returns the living workers that take runs of a job from a queue.
func (o *Operator) ServedBy(ctx context.Context, queue, job string) ([]store.WorkerInfo, error) {
	workers, err := o.workers(ctx)
	return slices.DeleteFunc(workers, func(w store.WorkerInfo) bool { return !w.Serves(queue, job) }), err
}
