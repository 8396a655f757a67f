package stepping

import (
	"context"
	"sync"

	"github.com/durable-worker/durable-worker/store"
)

// Recorder writes the steps of all handlers of a worker. One write is under way at a time, and
// takes all steps that have come during the one before: a step alone waits for none, and many
// share a transaction. The caller whose step comes first writes for all; then the first of those
// that have come meanwhile does.
type Recorder struct {
	host Host

	mu      sync.Mutex
	waiting []*recording
	writing bool
}

// NewRecorder returns the recorder of a worker.
func NewRecorder(host Host) *Recorder { return &Recorder{host: host} }

// Bounds of one write.
const (
	recordSteps = 200
	recordBytes = 1 << 20
)

// recording is one step on its way to the store.
type recording struct {
	step    store.NewStep
	leads   chan struct{} // closed when its caller is to write
	written chan struct{} // closed when verdict and err are set
	verdict store.StepVerdict
	err     error
}

// size is what a step adds to a statement, roughly.
func (r *recording) size() int { return 64 + len(r.step.Value) + len(r.step.Error) }

// record stores a step with others, and returns the store's verdict.
func (c *Recorder) record(step store.NewStep) (store.StepVerdict, error) {
	own := &recording{step: step, leads: make(chan struct{}), written: make(chan struct{})}
	c.mu.Lock()
	c.waiting = append(c.waiting, own)
	first := !c.writing
	c.writing = true
	c.mu.Unlock()
	if !first {
		select {
		case <-own.written:
			return own.verdict, own.err
		case <-own.leads:
		}
	}
	batch := c.take()
	c.write(batch)
	c.mu.Lock()
	if c.writing = len(c.waiting) > 0; c.writing {
		close(c.waiting[0].leads)
	}
	c.mu.Unlock()
	for _, r := range batch {
		close(r.written)
	}
	return own.verdict, own.err
}

// take takes what one write may hold, never one step of a run twice. The step of the caller who
// leads is the first.
func (c *Recorder) take() (batch []*recording) {
	c.mu.Lock()
	defer c.mu.Unlock()
	type key struct {
		run  store.RunID
		name string
	}
	taken, bytes := map[key]bool{}, 0
	var left []*recording
	for _, r := range c.waiting {
		k := key{r.step.Run, r.step.Name}
		if len(batch) > 0 && (len(batch) == recordSteps || bytes+r.size() > recordBytes || taken[k]) {
			left = append(left, r)
			continue
		}
		taken[k] = true
		bytes += r.size()
		batch = append(batch, r)
	}
	c.waiting = left
	return batch
}

// write makes one call of the store. It ends with no caller's context, as others wait for it too.
func (c *Recorder) write(batch []*recording) {
	steps := make([]store.NewStep, len(batch))
	for i, r := range batch {
		steps[i] = r.step
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.host.Timeout())
	defer cancel()
	verdicts, err := c.host.Store.RecordSteps(ctx, steps)
	for i, r := range batch {
		if r.err = err; err == nil {
			r.verdict = verdicts[i]
		}
	}
}

// recordSteadily stores a step, first together with others; what is refused together is tried
// alone.
func (b *Book) recordSteadily(ctx context.Context, step store.NewStep) (verdict store.StepVerdict, err error) {
	err = b.steadily(ctx, func() error {
		together := true
		verdict = 0
		err := b.x.Insist(ctx, func(ctx context.Context) (err error) {
			if together {
				together = false
				verdict, err = b.recorder.record(step)
				return err
			}
			verdicts, err := b.host.Store.RecordSteps(ctx, []store.NewStep{step})
			if err == nil {
				verdict = verdicts[0]
			}
			return err
		})
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
