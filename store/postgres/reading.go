package postgres

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// LimitKeys lists the keys of a limit for which most runs wait.
func (s *Store) LimitKeys(ctx context.Context, limit string, most int) (store.LimitKeys, error) {
	return s.reader.LimitKeys(ctx, limit, most)
}

// Changes lists what was audited, newest first.
func (s *Store) Changes(ctx context.Context, filter store.ChangeFilter) (store.ChangePage, error) {
	return s.reader.Changes(ctx, filter)
}

// Counts returns the number of runs in each state.
func (s *Store) Counts(ctx context.Context) (map[store.State]store.Count, error) {
	return s.reader.Counts(ctx)
}

// CountMatching counts the runs that match a filter, by state.
func (s *Store) CountMatching(ctx context.Context, filter store.Filter) (map[store.State]store.Count, error) {
	return s.reader.CountMatching(ctx, filter)
}

// Facts returns what decides about one run, in one round trip.
func (s *Store) Facts(ctx context.Context, id store.RunID) (store.Facts, error) {
	return s.reader.Facts(ctx, id)
}

// Problems lists the dead runs that ended last.
func (s *Store) Problems(ctx context.Context, filter store.ProblemFilter) ([]store.Problem, error) {
	return s.reader.Problems(ctx, filter)
}

// Gate describes one key of a limit.
func (s *Store) Gate(ctx context.Context, limit, key string) (store.GateInfo, error) {
	return s.reader.Gate(ctx, limit, key)
}

// Run returns one run with its attempts.
func (s *Store) Run(ctx context.Context, id store.RunID) (store.Record, error) {
	return s.reader.Run(ctx, id)
}

// Jobs lists the declared jobs.
func (s *Store) Jobs(ctx context.Context) ([]store.JobInfo, error) {
	return s.reader.Jobs(ctx)
}

// ListLimits lists the limits by name.
func (s *Store) ListLimits(ctx context.Context, filter store.LimitFilter) ([]store.LimitInfo, error) {
	return s.reader.ListLimits(ctx, filter)
}

// CheckLimits looks for violations of the invariants of limits.
func (s *Store) CheckLimits(ctx context.Context) ([]store.LimitFault, error) {
	return s.reader.CheckLimits(ctx)
}

// Runs lists runs, newest first.
func (s *Store) Runs(ctx context.Context, filter store.Filter) (store.Page, error) {
	return s.reader.Runs(ctx, filter)
}

// Workers lists the workers as they last reported.
func (s *Store) Workers(ctx context.Context) ([]store.WorkerInfo, error) {
	return s.reader.Workers(ctx)
}

// Survey counts what waits and runs.
func (s *Store) Survey(ctx context.Context) (store.Survey, error) {
	return s.reader.Survey(ctx)
}

// Queues lists the queues by name.
func (s *Store) Queues(ctx context.Context) ([]store.QueueInfo, error) {
	return s.reader.Queues(ctx)
}

// Series returns what workers did.
func (s *Store) Series(ctx context.Context, query store.SeriesQuery) ([]store.SeriesPoint, error) {
	return s.reader.Series(ctx, query)
}

// ListSchedules lists schedules by name.
func (s *Store) ListSchedules(ctx context.Context, names ...string) ([]store.ScheduleRecord, error) {
	return s.reader.ListSchedules(ctx, names...)
}

// ScheduleHistory says what happened to a schedule's occurrences, newest first.
func (s *Store) ScheduleHistory(ctx context.Context, name string, limit int) ([]store.HistoryEntry, error) {
	return s.reader.ScheduleHistory(ctx, name, limit)
}
