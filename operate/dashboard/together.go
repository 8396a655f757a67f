package dashboard

import (
	"context"
	"errors"
	"sync"
)

// together calls what a page asks the store for at the same time, and returns when all have
// returned: the page takes as long as the longest. The panic of one continues in the caller,
// whose request it belongs to.
func together(ctx context.Context, asks ...func(ctx context.Context) error) error {
	faults, panics := make([]error, len(asks)), make([]any, len(asks))
	var under sync.WaitGroup
	for i, ask := range asks {
		under.Go(func() {
			defer func() { panics[i] = recover() }()
			faults[i] = ask(ctx)
		})
	}
	under.Wait()
	for _, fault := range panics {
		if fault != nil {
			panic(fault)
		}
	}
	return errors.Join(faults...)
}
