package durablecmd

import (
	"context"
	"errors"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// repeating is the store of a verb: a call whose connection breaks is made
// again a few times. All of these may be repeated after an answer was lost.
// Those that may not are the store's own: SaveSchedule, which would meet its own
// change, and RunSchedule, which would make a second run.
type repeating struct {
	backend.Store
	pause time.Duration // before the first repetition, doubled each time
}

// repetitions bounds how often a call is made again.
const repetitions = 4

// repeated calls until there is an answer, or an error that no repetition helps.
func repeated[T any](ctx context.Context, r repeating, call func() (T, error)) (T, error) {
	pause := r.pause
	for try := 0; ; try++ {
		answer, err := call()
		if err == nil || try == repetitions || ctx.Err() != nil || !backend.Disconnected(err) {
			return answer, err
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
func (r repeating) Run(ctx context.Context, id durable.RunID) (durable.Record, error) {
	return repeated(ctx, r, func() (durable.Record, error) { return r.Store.Run(ctx, id) })
}

// Runs is the store's, repeated.
func (r repeating) Runs(ctx context.Context, filter durable.Filter) (durable.Page, error) {
	return repeated(ctx, r, func() (durable.Page, error) { return r.Store.Runs(ctx, filter) })
}

// Counts is the store's, repeated.
func (r repeating) Counts(ctx context.Context) (map[durable.State]store.Count, error) {
	return repeated(ctx, r, func() (map[durable.State]store.Count, error) { return r.Store.Counts(ctx) })
}

// Queues is the store's, repeated.
func (r repeating) Queues(ctx context.Context) ([]store.QueueInfo, error) {
	return repeated(ctx, r, func() ([]store.QueueInfo, error) { return r.Store.Queues(ctx) })
}

// Jobs is the store's, repeated.
func (r repeating) Jobs(ctx context.Context) ([]durable.JobInfo, error) {
	return repeated(ctx, r, func() ([]durable.JobInfo, error) { return r.Store.Jobs(ctx) })
}

// Changes is the store's, repeated.
func (r repeating) Changes(ctx context.Context, filter store.ChangeFilter) ([]store.Change, error) {
	return repeated(ctx, r, func() ([]store.Change, error) { return r.Store.Changes(ctx, filter) })
}

// Operate is the store's, repeated: what was done the first time is then
// answered as unchanged, and a run that was deleted as missing.
func (r repeating) Operate(ctx context.Context, order store.RunCommand) ([]store.ChangedRun, error) {
	tries := 0
	changed, err := repeated(ctx, r, func() ([]store.ChangedRun, error) {
		tries++
		return r.Store.Operate(ctx, order)
	})
	if tries > 1 && order.Action == store.DeleteRuns {
		for i := range changed { // it was there, or is gone as was asked
			if changed[i].Result == store.RunNotFound {
				changed[i].Result = store.RunUnchanged
			}
		}
	}
	return changed, err
}

// Rerun is the store's, repeated: the run has its id already.
func (r repeating) Rerun(ctx context.Context, of durable.RunID, run durable.NewRun, by string) (durable.Receipt, error) {
	return repeated(ctx, r, func() (durable.Receipt, error) { return r.Store.Rerun(ctx, of, run, by) })
}

// SetQueue is the store's, repeated.
func (r repeating) SetQueue(ctx context.Context, name string, action store.QueueAction, by string) error {
	return repeatedly(ctx, r, func() error { return r.Store.SetQueue(ctx, name, action, by) })
}

// ListSchedules is the store's, repeated.
func (r repeating) ListSchedules(ctx context.Context, names ...string) ([]store.ScheduleRecord, error) {
	return repeated(ctx, r, func() ([]store.ScheduleRecord, error) { return r.Store.ListSchedules(ctx, names...) })
}

// ScheduleHistory is the store's, repeated.
func (r repeating) ScheduleHistory(ctx context.Context, name string, limit int) ([]store.HistoryEntry, error) {
	return repeated(ctx, r, func() ([]store.HistoryEntry, error) { return r.Store.ScheduleHistory(ctx, name, limit) })
}

// ChangeSchedule is the store's, repeated: a schedule that is gone after a
// deletion whose answer was lost is what was asked for.
func (r repeating) ChangeSchedule(ctx context.Context, name string, action store.ScheduleAction, by string) error {
	tries := 0
	err := repeatedly(ctx, r, func() error {
		tries++
		return r.Store.ChangeSchedule(ctx, name, action, by)
	})
	if tries > 1 && action == store.DeleteSchedule && errors.Is(err, durable.ErrNotFound) {
		return nil
	}
	return err
}

// Examine is the store's, repeated.
func (r repeating) Examine(ctx context.Context) (store.Findings, error) {
	return repeated(ctx, r, func() (store.Findings, error) { return r.Store.Examine(ctx) })
}
