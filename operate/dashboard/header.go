package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// headerFor is how long the figures of the header are shared between pages: many
// people cost the store what one does.
const headerFor = time.Second

// headers keeps the figures that are on every page.
type headers struct {
	turn chan struct{} // held while the store is asked

	mu   sync.Mutex
	last figures
	read time.Time // when, on the monotonic clock; zero: never
}

// figures are on every page, in the menu.
type figures struct {
	operate.Survey

	Counts map[store.State]store.Count // nil: not known yet
}

func newHeaders() *headers { return &headers{turn: make(chan struct{}, 1)} }

// header returns the figures of the last second. After an error it returns the last
// ones with it.
func (d *dashboard) header(ctx context.Context) (figures, error) {
	h := d.headers
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return figures{}, ctx.Err()
	}
	defer func() { <-h.turn }()
	if !h.fresh() {
		var read figures
		err := together(ctx, func(ctx context.Context) (err error) {
			read.Survey, err = d.operator.Survey(ctx)
			return err
		}, func(ctx context.Context) error {
			read.Counts = d.operator.LastCounts(ctx).Counts
			return nil
		})
		if err != nil {
			return h.shown(), err
		}
		h.keep(read)
	}
	return h.shown(), nil
}

func (h *headers) fresh() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.read.IsZero() && time.Since(h.read) < headerFor
}

func (h *headers) keep(f figures) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.read = f, time.Now()
}

// shown are the last figures, with the time that has passed since.
func (h *headers) shown() figures {
	h.mu.Lock()
	defer h.mu.Unlock()
	shown := h.last
	if !h.read.IsZero() {
		shown.At = shown.At.Add(time.Since(h.read))
	}
	return shown
}
