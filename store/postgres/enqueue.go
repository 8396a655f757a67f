package postgres

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// Enqueue stores runs.
func (s *Store) Enqueue(ctx context.Context, runs ...store.NewRun) ([]store.Receipt, error) {
	return s.enqueuer.Enqueue(ctx, runs...)
}

// Rerun stores a run that is made after another one.
func (s *Store) Rerun(ctx context.Context, of store.RunID, run store.NewRun, by string) (store.Receipt, error) {
	return s.enqueuer.Rerun(ctx, of, run, by)
}

// EnqueueUnder stores the runs while the holder's run is its claim's.
func (s *Store) EnqueueUnder(ctx context.Context, holder store.Holder, runs ...store.NewRun) ([]store.Receipt, error) {
	return s.enqueuer.EnqueueUnder(ctx, holder, runs...)
}

// Call stores children, and that their parents wait for them; see store.Caller.
func (s *Store) Call(ctx context.Context, calls []store.Call) error {
	return s.enqueuer.Call(ctx, calls)
}

// Deaths returns deaths for which runs are to be stored; see store.Deaths.
func (s *Store) Deaths(ctx context.Context, jobs []string, limit int) ([]store.DeathRecord, error) {
	return s.enqueuer.Deaths(ctx, jobs, limit)
}

// EnqueueForDeaths stores the runs of deaths; see store.Deaths.
func (s *Store) EnqueueForDeaths(ctx context.Context, runs []store.DeathRun) (int, error) {
	return s.enqueuer.ForDeaths(ctx, runs)
}
