package durable

import (
	"context"
	"encoding/json"
	"fmt"
)

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
