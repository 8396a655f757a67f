package stepping

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// BeginChildren records that the run waits for children, and returns what is recorded under the
// name.
func (b *Book) BeginChildren(ctx context.Context, name string, n int) (*store.StepRecord, error) {
	known, _, err := b.beginWait(ctx, store.NewWait{Name: name, Kind: store.StepChildren, Children: n})
	return known, err
}

// ParkForChildren closes the branch of ctx until the children of a name have ended.
func (b *Book) ParkForChildren(ctx context.Context, name string) error {
	return b.park(ctx, &ParkError{Name: name, Until: -1, Kind: store.StepChildren})
}
