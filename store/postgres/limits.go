package postgres

import (
	"context"
	"errors"

	"github.com/durable-worker/durable-worker/store"
)

var errNoLimits = errors.New("limits: not yet")

// ListLimits lists the limits.
func (s *Store) ListLimits(context.Context, store.LimitFilter) ([]store.LimitInfo, error) {
	return nil, errNoLimits
}

// ChangeLimit changes a limit.
func (s *Store) ChangeLimit(context.Context, store.LimitChange) error { return errNoLimits }

// Gate describes one key of a limit.
func (s *Store) Gate(context.Context, string, string) (store.GateInfo, error) {
	return store.GateInfo{}, errNoLimits
}

// UseLimit takes places or starts of a limit for code outside of runs.
func (s *Store) UseLimit(context.Context, store.LimitRequest) (store.LimitGrant, error) {
	return store.LimitGrant{}, errNoLimits
}
