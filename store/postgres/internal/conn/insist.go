package conn

import (
	"context"
	"time"
)

// HolderPatience is how long calls of a handler wait for a transaction that has locked its run,
// or a key. A settle or a reclaim is done by then.
const HolderPatience = time.Second

// insistPause is the first pause of a call whose row is locked; each further one is four
// times as long, which makes five tries in HolderPatience.
const insistPause = 10 * time.Millisecond

// Insist tries for about HolderPatience while a row is locked. It holds no connection between
// its tries.
func Insist(ctx context.Context, try func() error) error {
	err := try()
	for pause := insistPause; Code(err) == LockNotAvailable && pause < HolderPatience && Rest(ctx, pause); pause *= 4 {
		err = try()
	}
	return err
}

// Rest waits for d and reports false when ctx ended.
func Rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
