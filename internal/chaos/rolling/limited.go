package main

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/durable"
)

// limited runs two at a time, over all workers. Schemas before 9 have no limits.
var limited = durable.NewJob[args]("limited", durable.Limited(durable.NewLimit("pair", durable.Semaphore(2))))

func enqueueLimited(ctx context.Context, client *durable.Client, prefix string) error {
	for n := range runsEach {
		if _, err := limited.Enqueue(ctx, client, args{Name: fmt.Sprintf("%s-limited-%d", prefix, n)}); err != nil {
			return err
		}
	}
	return nil
}

// registerLimited takes the handler that remembers when it began and ended.
func (h handlers) registerLimited(w *durable.Worker) {
	durable.Register(w, limited, func(ctx context.Context, run *durable.Run[args]) error {
		if _, err := h.pool.Exec(ctx, "insert into spans (name) values ($1)", run.Args.Name); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
		if _, err := h.pool.Exec(ctx, "update spans set ended_at = clock_timestamp() where name = $1", run.Args.Name); err != nil {
			return err
		}
		return h.complete(ctx, run)
	})
}
