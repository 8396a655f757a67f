package durable

import (
	"context"
	"encoding/json"
	"fmt"
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
	err = again(ctx, func(ctx context.Context) (err error) {
		receipts, err = c.to.Enqueue(ctx, runs...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return receipts, nil
}

// again makes a call whose repeat is harmless, and repeats it when its answer was lost.
func again(ctx context.Context, call func(context.Context) error) error {
	for try := 1; ; try++ {
		within, cancel := context.WithTimeout(ctx, enqueueLimit)
		err := call(within)
		cancel()
		if err == nil || store.IsRefusal(err) || ctx.Err() != nil || try == enqueueTries {
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

// Send is store.Sender. A call whose reply was lost is repeated, as by Enqueue; the first value of
// a name counts, so a repeat changes nothing.
func (c *Client) Send(ctx context.Context, input store.NewInput) (receipt store.SendReceipt, err error) {
	err = again(ctx, func(ctx context.Context) (err error) {
		receipt, err = c.store.Send(ctx, input)
		return err
	})
	return receipt, err
}

// Result waits until a run has ended, in any process, and decodes what its handler passed to
// SetResult. A run that has succeeded without a result gives the zero R. A run that is dead
// or cancelled gives an *EndedError. The other errors are those of Client.Wait, and one for a
// result that is not an R.
func Result[R any](ctx context.Context, client *Client, id RunID) (R, error) {
	var result R
	records, err := client.Wait(ctx, id)
	if err != nil {
		return result, err
	}
	record := &records[0]
	if err := record.Ended(); err != nil {
		return result, err
	}
	return decodeResult[R](id, record.Result)
}

func decodeResult[R any](id RunID, text []byte) (result R, err error) {
	if len(text) == 0 {
		return result, nil
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return result, fmt.Errorf("decode result of run %s: %w", id, err)
	}
	return result, nil
}

// Wait blocks until every one of the runs has ended, in any process, and
// returns their records in the order of the ids, without attempts and
// checkpoints. The worker that ends a run wakes it; without a wake-up it finds
// out by polling, at the latest every two seconds. All waits on one Client share
// one listener, which ends with the last of them.
//
// The error is ErrNotFound when there is no such run, or when it has been deleted, and
// ctx's own when ctx ends first. A store that cannot be reached is retried for
// about a minute.
func (c *Client) Wait(ctx context.Context, ids ...RunID) ([]Record, error) {
	return c.hub.Wait(ctx, ids)
}

// PutSchedule makes a Client a store.Scheduler, for Job.Schedule. A call whose reply was lost is
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
