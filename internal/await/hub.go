package await

import (
	"context"
	"fmt"
	"sync"

	"github.com/durable-worker/durable-worker/store"
)

// Hub serves all who wait for runs on one client with one listener.
type Hub struct {
	store store.Store

	mu    sync.Mutex
	watch *watch // nil while there is no waiter
}

// NewHub returns a hub that listens only while there is something to wait for.
func NewHub(db store.Store) *Hub { return &Hub{store: db} }

// Wait blocks until every one of the runs has ended and returns their records in
// the order of the ids.
func (h *Hub) Wait(ctx context.Context, ids []store.RunID) ([]store.Record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	w := newWaiter(ids)
	leave := h.join(ctx, w)
	defer leave()
	select {
	case <-w.done:
		records, err := w.result()
		if err != nil {
			err = fmt.Errorf("wait: %w", err)
		}
		return records, err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait: %w", context.Cause(ctx))
	}
}

// waiter is one Wait call.
type waiter struct {
	done chan struct{} // closed when there is nothing left to wait for

	ids     []store.RunID
	mu      sync.Mutex
	records map[store.RunID]store.Record
	missing map[store.RunID]struct{} // that have not ended
	err     error
}

func newWaiter(ids []store.RunID) *waiter {
	w := &waiter{done: make(chan struct{}), ids: ids, records: map[store.RunID]store.Record{}, missing: map[store.RunID]struct{}{}}
	for _, id := range ids {
		w.missing[id] = struct{}{}
	}
	return w
}

// tell records that a run has ended, or that it cannot be waited for.
func (w *waiter) tell(id store.RunID, record store.Record, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, waits := w.missing[id]; !waits || w.err != nil {
		return
	}
	if err == nil {
		w.records[id] = record
	}
	delete(w.missing, id)
	if w.err = err; err != nil || len(w.missing) == 0 {
		close(w.done)
	}
}

func (w *waiter) result() ([]store.Record, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return nil, w.err
	}
	records := make([]store.Record, len(w.ids))
	for i, id := range w.ids {
		records[i] = w.records[id]
	}
	return records, nil
}

// join begins to wait and returns what ends it. The first to join starts the
// watch; the last to leave ends it and waits until it has ended.
func (h *Hub) join(ctx context.Context, w *waiter) (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watch == nil {
		h.watch = newWatch(ctx, h.store)
	}
	watching := h.watch
	watching.waiters++
	watching.add(w)
	return func() {
		h.mu.Lock()
		watching.remove(w)
		watching.waiters--
		last := watching.waiters == 0
		if last {
			h.watch = nil
		}
		h.mu.Unlock()
		if last {
			watching.stop()
		}
	}
}
