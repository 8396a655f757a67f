package claiming

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
	"github.com/durable-worker/durable-worker/store/postgres/internal/settling"
)

// HandBack takes back a claim whose answer never arrived. It first inserts the lease that
// refuses the claim: it waits for a claim that is in progress, and one that arrives later
// finds that lease.
func (c *Claimer) HandBack(ctx context.Context, request store.ClaimRequest) (int, error) {
	if err := c.schema.Usable(ctx); err != nil {
		return 0, c.db.Fail("hand back", err)
	}
	worker, err := c.numbers.WorkerOf(ctx, request.Worker)
	if err != nil {
		return 0, c.db.Fail("hand back", err)
	}
	var ids []uuid.UUID
	err = c.db.Repeat(ctx, func() error {
		b := c.db.Guarded(ctx)
		b.Add(queries.RefuseClaim, uuid.UUID(request.Claim), worker, conn.Micro(request.Duration), request.Alone)
		b.Add(queries.HeldRuns, uuid.UUID(request.Claim)).Query(func(rows pgx.Rows) error {
			ids = ids[:0]
			return conn.ScanIDs(rows, func(id uuid.UUID) { ids = append(ids, id) })
		})
		return c.db.Send(ctx, c.db.Engine, b)
	})
	if err != nil {
		return 0, c.db.Fail("hand back", err)
	}
	held := 0
	for some := range slices.Chunk(ids, settling.MapRuns) {
		n, err := c.handBack(ctx, request, some)
		if err != nil {
			return 0, err
		}
		held += n
	}
	return held, nil
}

// handBack hands back some runs of a claim, and reports how many a transaction holds.
func (c *Claimer) handBack(ctx context.Context, request store.ClaimRequest, ids []uuid.UUID) (held int, err error) {
	settlement := store.Settlement{Claim: request.Claim, Worker: request.Worker, Limited: len(request.Admissions) > 0, Runs: make([]store.Settled, len(ids))}
	for i, id := range ids {
		settlement.Runs[i] = store.Settled{ID: id, Outcome: store.Outcome{Kind: store.HandedBack, Unbegun: true}}
	}
	verdicts, err := c.settler.Settle(ctx, []store.Settlement{settlement})
	for _, verdict := range verdicts {
		if verdict == store.Deferred {
			held++
		}
	}
	return held, err
}
