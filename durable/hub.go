package durable

import (
	"context"
	"sync"
)

// hub serves all that wait for runs on one client with one listener.
type hub struct {
	store Store

	mu    sync.Mutex
	watch *watch // nil while there is no waiter
}

// waiter is one Wait call.
type waiter struct {
	done chan struct{} // closed when there is nothing left to wait for

	ids     []RunID
	mu      sync.Mutex
	records map[RunID]Record
	missing map[RunID]struct{} // that have not ended
	err     error
}

func newWaiter(ids []RunID) *waiter {
	w := &waiter{done: make(chan struct{}), ids: ids, records: map[RunID]Record{}, missing: map[RunID]struct{}{}}
	for _, id := range ids {
		w.missing[id] = struct{}{}
	}
	return w
}

// tell records that a run has ended, or that it cannot be waited for.
func (w *waiter) tell(id RunID, record Record, err error) {
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

func (w *waiter) result() ([]Record, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return nil, w.err
	}
	records := make([]Record, len(w.ids))
	for i, id := range w.ids {
		records[i] = w.records[id]
	}
	return records, nil
}

// join begins to wait and returns what ends it. The first to join starts the
// watch; the last to leave ends it and waits until it has ended.
func (h *hub) join(ctx context.Context, w *waiter) (leave func()) {
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
