package stepping

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/store"
)

// Call stores the children of a name, and that the run waits for them, and returns what is recorded
// of that.
func (b *Book) Call(ctx context.Context, name string, children []store.NewRun) (*store.StepRecord, error) {
	b.mu.Lock()
	err := b.full(name)
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	err = b.steadily(ctx, func() error {
		_, err := b.recorder.calls.insist(ctx, b.x, store.Call{Holder: b.x.Holder(), Name: name, Children: children})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("call %q: %w", name, err)
	}
	step := store.StepRecord{Name: name, Kind: store.StepChildren, Tries: len(children), At: b.Now()}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stretch = true
	b.keep(step)
	return &step, nil
}

// BeginChildren records that the run waits for a batch of its own, and returns what is recorded
// under the name.
func (b *Book) BeginChildren(ctx context.Context, name string, n int) (*store.StepRecord, error) {
	known, _, err := b.beginWait(ctx, store.NewWait{Name: name, Kind: store.StepChildren, Children: n})
	return known, err
}

// ParkForChildren closes the branch of ctx until the children of a name have ended.
func (b *Book) ParkForChildren(ctx context.Context, name string) error {
	return b.park(ctx, &ParkError{Name: name, Until: -1, Kind: store.StepChildren})
}
