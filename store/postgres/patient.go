package postgres

import (
	"context"
	"time"
)

// patiently lets only some wait long for a lock concurrently: they keep their
// connections meanwhile, and others need some too.
func (s *Store) patiently(ctx context.Context, try func() error) error {
	select {
	case s.patient <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.patient }()
	return try()
}

// briefly tries with a short wait for locks and, where that was not enough, once
// more with a long one, patiently. It gives up when so many others wait that its
// turn to do so does not come in the same time.
func (s *Store) briefly(ctx context.Context, first, most time.Duration, try func(most time.Duration) error) error {
	err := try(first)
	if code(err) != lockNotAvailable || ctx.Err() != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	_ = s.patiently(soon, func() error {
		err = try(most)
		return nil
	})
	return err
}
