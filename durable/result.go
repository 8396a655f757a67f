package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Result waits until a run has ended, in whatever process, and decodes what its
// handler gave to SetResult. A run that has succeeded without a result gives the
// zero R. A run that is dead or cancelled gives an *EndedError. The other errors
// are those of Client.Wait, and a result that is no R.
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

// Returning ties the type of a job's results to the job, so that the code that reads
// them cannot take another:
//
//	var Resize = durable.Returning[Size](durable.NewJob[ResizeArgs]("resize"))
//
// Register it with RegisterReturning, whose handler returns the result, and read with
// Wait and Poll.
func Returning[R, A any](job Job[A]) ReturningJob[A, R] { return ReturningJob[A, R]{Job: job} }

// ReturningJob is a Job whose handlers return a value. Returning makes one.
type ReturningJob[A, R any] struct{ Job[A] }

// RegisterReturning is Register for a handler that returns its result. The result is
// stored when the error is nil; one that cannot be stored is a failed attempt.
func RegisterReturning[A, R any](w *Worker, job ReturningJob[A, R], handler func(ctx context.Context, run *Run[A]) (R, error)) {
	if handler == nil {
		Register(w, job.Job, nil)
		return
	}
	Register(w, job.Job, func(ctx context.Context, run *Run[A]) error {
		result, err := handler(ctx, run)
		if err != nil {
			return err
		}
		return run.SetResult(result)
	})
}

// Wait is Result for the job's type, decoded by its codec. A run of another job is
// ErrInvalid.
func (j ReturningJob[A, R]) Wait(ctx context.Context, client *Client, id RunID) (R, error) {
	records, err := client.Wait(ctx, id)
	if err != nil {
		var none R
		return none, err
	}
	return j.resultOf(&records[0])
}

// Poll reads the result without waiting. ended is false as long as the run has not
// ended. The errors are those of Wait.
func (j ReturningJob[A, R]) Poll(ctx context.Context, client *Client, id RunID) (result R, ended bool, err error) {
	record, err := client.store.Run(ctx, id)
	if err != nil || !record.State.Terminal() {
		return result, false, err
	}
	result, err = j.resultOf(&record)
	return result, true, err
}

func (j ReturningJob[A, R]) resultOf(record *Record) (result R, err error) {
	text, err := j.open(*record, ResultPart, record.Result)
	if len(record.Result) == 0 && !errors.Is(err, ErrInvalid) {
		text, err = nil, nil // there is nothing to decode
	}
	if err != nil {
		return result, err
	}
	if err := record.Ended(); err != nil {
		return result, err
	}
	return decodeResult[R](record.ID, text)
}

// Wait blocks until every one of the runs has ended, in whatever process, and
// returns their records in the order of the ids, without attempts and
// checkpoints. The worker that ends a run wakes it; without a wake-up it finds
// out by polling, at the latest every two seconds. All waits on one Client share
// one listener, which ends with the last of them.
//
// The error is ErrNotFound when there is no such run, or none any more, and
// ctx's own when ctx ends first. A store that cannot be reached is retried for
// about a minute.
func (c *Client) Wait(ctx context.Context, ids ...RunID) ([]Record, error) {
	return c.hub.Wait(ctx, ids)
}
