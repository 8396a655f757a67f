package durable

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/durable-worker/durable-worker/internal/await"
	"github.com/durable-worker/durable-worker/store"
)

// Client enqueues runs, waits for their results and schedules. Its methods may be called
// concurrently.
type Client struct {
	to    Enqueuer // where its runs go: the store, or a store on behalf of a run
	store Store
	hook  enqueueHook
	hub   *await.Hub
}

// NewClient returns a client of a store. It starts nothing: a client listens to
// the store only while it waits for runs.
func NewClient(store Store) *Client {
	return &Client{to: store, store: store, hub: await.NewHub(store)}
}

const (
	// enqueueTries bounds how often an enqueue whose answer was lost is repeated.
	enqueueTries = 4
	// enqueueLimit bounds one try, so that a connection that has gone silent
	// does not hold a caller whose context has no deadline.
	enqueueLimit = time.Minute
)

// Enqueue stores all the runs or none, in one statement for up to thousands, and returns a
// receipt for each, in order. A call whose reply was lost is repeated, a few times within
// about two seconds; the runs' own ids keep a repeat from storing them twice. When Enqueue
// returns an error other than ErrInvalid the outcome may be unknown; the caller may call it
// again with the same runs. A nil error means that the runs are stored durably.
func (c *Client) Enqueue(ctx context.Context, runs ...NewRun) (receipts []Receipt, err error) {
	if len(runs) == 0 {
		return nil, nil
	}
	ctx, runs, ended := observeEnqueue(ctx, c.hook, runs)
	defer func() { ended(err) }()
	err = again(ctx, func(ctx context.Context) error {
		receipts, err = c.to.Enqueue(ctx, runs...)
		return err
	})
	return receipts, err
}

// again repeats a call whose answer may have been lost.
func again(ctx context.Context, do func(ctx context.Context) error) error {
	for try := 1; ; try++ {
		within, cancel := context.WithTimeout(ctx, enqueueLimit)
		err := do(within)
		cancel()
		if err == nil || refused(err) || ctx.Err() != nil || try == enqueueTries {
			return err
		}
		pause := time.Duration(float64(50*time.Millisecond<<(2*try-2)) * (0.5 + rand.Float64())) //nolint:gosec // spreads load
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// PutSchedule makes a Client a Scheduler, for Job.Schedule. A call whose reply was lost is
// repeated, as by Enqueue.
func (c *Client) PutSchedule(ctx context.Context, s store.Schedule) error {
	return again(ctx, func(ctx context.Context) error { return c.store.PutSchedule(ctx, s) })
}

// ChangeSchedule pauses, resumes or deletes a schedule on behalf of by, a person or a program;
// ErrNotFound when there is none of the name. A call whose reply was lost is repeated, so
// ErrNotFound may also say that an earlier try has deleted it.
func (c *Client) ChangeSchedule(ctx context.Context, name string, action store.ScheduleAction, by string) error {
	return again(ctx, func(ctx context.Context) error { return c.store.ChangeSchedule(ctx, name, action, by) })
}
