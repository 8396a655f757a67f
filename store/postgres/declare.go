package postgres

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// Declare stores a worker, its jobs and its schedules.
func (s *Store) Declare(ctx context.Context, declaration store.Declaration) error {
	return s.declarer.Declare(ctx, declaration)
}

// ChangeLimit changes a limit on behalf of an operator.
func (s *Store) ChangeLimit(ctx context.Context, change store.LimitChange) error {
	return s.declarer.ChangeLimit(ctx, change)
}

// SetQueue pauses or resumes a queue: its row, and the copy in its lanes, which is what claims
// look at.
func (s *Store) SetQueue(ctx context.Context, name string, action store.QueueAction, by string) error {
	return s.declarer.SetQueue(ctx, name, action, by)
}

// ReportWorker stores what a worker is and did, in one statement.
func (s *Store) ReportWorker(ctx context.Context, report store.WorkerReport) (store.Shared, error) {
	return s.declarer.ReportWorker(ctx, report)
}
