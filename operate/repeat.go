package operate

import (
	"context"
	"errors"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// repeating is a store that repeats a call whose connection broke. It repeats
// only calls that are safe to repeat after their answer was lost. SaveSchedule,
// which would conflict with its own change, and RunSchedule, which would make a
// second run, are the store's own.
type repeating struct {
	store.Store

	disconnected func(error) bool
	repeating    func(error, time.Duration) // nil: not reported
	pause        time.Duration              // before the first repetition, doubled each time
}

// firstPause is the pause of an Operator.
const firstPause = 100 * time.Millisecond

// repetitions bounds how often a call is repeated.
const repetitions = 4

// repeated calls until there is an answer, or an error that no repetition helps.
func repeated[T any](ctx context.Context, r repeating, call func() (T, error)) (T, error) {
	pause := r.pause
	for try := 0; ; try++ {
		answer, err := call()
		if err == nil || try == repetitions || ctx.Err() != nil || !r.disconnected(err) {
			return answer, err
		}
		if r.repeating != nil {
			r.repeating(err, pause)
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(pause):
			pause *= 2
		}
	}
}

func repeatedly(ctx context.Context, r repeating, call func() error) error {
	_, err := repeated(ctx, r, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// Run is the store's, repeated.
func (r repeating) Run(ctx context.Context, id store.RunID) (store.Record, error) {
	return repeated(ctx, r, func() (store.Record, error) { return r.Store.Run(ctx, id) })
}

// Steps is the store's, repeated.
func (r repeating) Steps(ctx context.Context, ids []store.RunID) ([]store.RunSteps, error) {
	return repeated(ctx, r, func() ([]store.RunSteps, error) { return r.Store.Steps(ctx, ids) })
}

// Batch is the store's, repeated.
func (r repeating) Batch(ctx context.Context, id store.BatchID) (store.Batch, error) {
	return repeated(ctx, r, func() (store.Batch, error) { return r.Store.Batch(ctx, id) })
}

// Batches is the store's, repeated.
func (r repeating) Batches(ctx context.Context, filter store.BatchFilter) ([]store.Batch, error) {
	return repeated(ctx, r, func() ([]store.Batch, error) { return r.Store.Batches(ctx, filter) })
}

// Members is the store's, repeated.
func (r repeating) Members(ctx context.Context, id store.BatchID, after store.RunID, limit int) (store.MemberPage, error) {
	return repeated(ctx, r, func() (store.MemberPage, error) { return r.Store.Members(ctx, id, after, limit) })
}

// CloseBatch is the store's, repeated.
func (r repeating) CloseBatch(ctx context.Context, closing store.BatchClose) error {
	return repeatedly(ctx, r, func() error { return r.Store.CloseBatch(ctx, closing) })
}

// CancelBatch is the store's, repeated. A repetition finds the batch cancelled.
func (r repeating) CancelBatch(ctx context.Context, cancel store.BatchCancel) error {
	return repeatedly(ctx, r, func() error { return r.Store.CancelBatch(ctx, cancel) })
}

// Runs is the store's, repeated.
func (r repeating) Runs(ctx context.Context, filter store.Filter) (store.Page, error) {
	return repeated(ctx, r, func() (store.Page, error) { return r.Store.Runs(ctx, filter) })
}

// Counts is the store's, repeated.
func (r repeating) Counts(ctx context.Context) (map[store.State]store.Count, error) {
	return repeated(ctx, r, func() (map[store.State]store.Count, error) { return r.Store.Counts(ctx) })
}

// CountMatching is the store's, repeated.
func (r repeating) CountMatching(ctx context.Context, filter store.Filter) (map[store.State]store.Count, error) {
	return repeated(ctx, r, func() (map[store.State]store.Count, error) { return r.Store.CountMatching(ctx, filter) })
}

// Queues is the store's, repeated.
func (r repeating) Queues(ctx context.Context) ([]store.QueueInfo, error) {
	return repeated(ctx, r, func() ([]store.QueueInfo, error) { return r.Store.Queues(ctx) })
}

// Jobs is the store's, repeated.
func (r repeating) Jobs(ctx context.Context) ([]store.JobInfo, error) {
	return repeated(ctx, r, func() ([]store.JobInfo, error) { return r.Store.Jobs(ctx) })
}

// Workers is the store's, repeated.
func (r repeating) Workers(ctx context.Context) ([]store.WorkerInfo, error) {
	return repeated(ctx, r, func() ([]store.WorkerInfo, error) { return r.Store.Workers(ctx) })
}

// Survey is the store's, repeated.
func (r repeating) Survey(ctx context.Context) (store.Survey, error) {
	return repeated(ctx, r, func() (store.Survey, error) { return r.Store.Survey(ctx) })
}

// Series is the store's, repeated.
func (r repeating) Series(ctx context.Context, query store.SeriesQuery) ([]store.SeriesPoint, error) {
	return repeated(ctx, r, func() ([]store.SeriesPoint, error) { return r.Store.Series(ctx, query) })
}

// Changes is the store's, repeated.
func (r repeating) Changes(ctx context.Context, filter store.ChangeFilter) (store.ChangePage, error) {
	return repeated(ctx, r, func() (store.ChangePage, error) { return r.Store.Changes(ctx, filter) })
}

// Operate is the store's, repeated. A repetition finds what the first call
// changed unchanged, and what it deleted missing, which is unchanged too.
func (r repeating) Operate(ctx context.Context, command store.RunCommand) ([]store.ChangedRun, error) {
	tries := 0
	changed, err := repeated(ctx, r, func() ([]store.ChangedRun, error) {
		tries++
		return r.Store.Operate(ctx, command)
	})
	if tries > 1 && command.Action == store.DeleteRuns {
		for i := range changed {
			if changed[i].Result == store.RunNotFound {
				changed[i].Result = store.RunUnchanged
			}
		}
	}
	return changed, err
}

// Rerun is the store's, repeated. The run has its id already, so it is stored once.
func (r repeating) Rerun(ctx context.Context, of store.RunID, run store.NewRun, by string) (store.Receipt, error) {
	return repeated(ctx, r, func() (store.Receipt, error) { return r.Store.Rerun(ctx, of, run, by) })
}

// SetQueue is the store's, repeated.
func (r repeating) SetQueue(ctx context.Context, name string, action store.QueueAction, by string) error {
	return repeatedly(ctx, r, func() error { return r.Store.SetQueue(ctx, name, action, by) })
}

// EndSession is the store's, repeated.
func (r repeating) EndSession(ctx context.Context, session, by string) error {
	return repeatedly(ctx, r, func() error { return r.Store.EndSession(ctx, session, by) })
}

// ListSchedules is the store's, repeated.
func (r repeating) ListSchedules(ctx context.Context, names ...string) ([]store.ScheduleRecord, error) {
	return repeated(ctx, r, func() ([]store.ScheduleRecord, error) { return r.Store.ListSchedules(ctx, names...) })
}

// ScheduleHistory is the store's, repeated.
func (r repeating) ScheduleHistory(ctx context.Context, name string, limit int) ([]store.HistoryEntry, error) {
	return repeated(ctx, r, func() ([]store.HistoryEntry, error) { return r.Store.ScheduleHistory(ctx, name, limit) })
}

// ChangeSchedule is the store's, repeated. A schedule that is gone after a
// deletion whose answer was lost was deleted by it.
func (r repeating) ChangeSchedule(ctx context.Context, name string, action store.ScheduleAction, by string) error {
	tries := 0
	err := repeatedly(ctx, r, func() error {
		tries++
		return r.Store.ChangeSchedule(ctx, name, action, by)
	})
	if tries > 1 && action == store.DeleteSchedule && errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// ListLimits is the store's, repeated.
func (r repeating) ListLimits(ctx context.Context, filter store.LimitFilter) ([]store.LimitInfo, error) {
	return repeated(ctx, r, func() ([]store.LimitInfo, error) { return r.Store.ListLimits(ctx, filter) })
}

// Gate is the store's, repeated.
func (r repeating) Gate(ctx context.Context, limit, key string) (store.GateInfo, error) {
	return repeated(ctx, r, func() (store.GateInfo, error) { return r.Store.Gate(ctx, limit, key) })
}

// LimitKeys is the store's, repeated.
func (r repeating) LimitKeys(ctx context.Context, limit string, most int) (store.LimitKeys, error) {
	return repeated(ctx, r, func() (store.LimitKeys, error) { return r.Store.LimitKeys(ctx, limit, most) })
}

// ChangeLimit is the store's, repeated. A limit, or a permit, that is gone after a
// change that ends it and whose answer was lost was ended by it.
func (r repeating) ChangeLimit(ctx context.Context, change store.LimitChange) error {
	tries := 0
	err := repeatedly(ctx, r, func() error {
		tries++
		return r.Store.ChangeLimit(ctx, change)
	})
	ends := change.Command == store.DeleteLimit || change.Command == store.ReleasePermit
	if tries > 1 && ends && errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}
