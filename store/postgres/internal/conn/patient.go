package conn

import (
	"context"
	"time"
)

// Patiently lets only some wait long for a lock concurrently: they keep their
// connections meanwhile, and others need some too.
func (d *DB) Patiently(ctx context.Context, try func() error) error {
	select {
	case d.patient <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-d.patient }()
	return try()
}

// Briefly tries with a short wait for locks and, where that was not enough, once
// more with a long one, patiently. It gives up when so many others wait that its
// turn to do so does not come in the same time.
func (d *DB) Briefly(ctx context.Context, first, most time.Duration, try func(most time.Duration) error) error {
	err := try(first)
	if Code(err) != LockNotAvailable || ctx.Err() != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	_ = d.Patiently(soon, func() error {
		err = try(most)
		return nil
	})
	return err
}
