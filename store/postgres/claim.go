package postgres

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// Claim claims due runs.
func (s *Store) Claim(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
	return s.worker.claimer.Claim(ctx, request)
}

// Touch writes the worker's row, on one of the connections that reclaim.
func (s *Store) Touch(ctx context.Context, worker store.WorkerID) error {
	return s.worker.claimer.Touch(ctx, worker)
}

// HandBack takes back a claim whose answer never arrived.
func (s *Store) HandBack(ctx context.Context, request store.ClaimRequest) (int, error) {
	return s.worker.claimer.HandBack(ctx, request)
}

// Heads returns the lanes a worker serves with their first waiting runs.
func (s *Store) Heads(ctx context.Context, serves store.Serves) ([]store.Head, error) {
	return s.worker.claimer.Heads(ctx, serves)
}
