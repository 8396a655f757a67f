package claiming

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/admission"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// sendClaim sends the claim, together with the settles that have waited for it. The statement is
// ClaimRuns, or ClaimFreeRuns, which skips runs whose rows other transactions hold.
func (c *Claimer) sendClaim(ctx context.Context, statement string, args []any, got *admission.Dealing) error {
	if taken := c.settler.TakeJoined(); !taken.None() {
		b := c.db.Hot(ctx)
		taken.AddLast(b)
		b.Add(statement, args...).Query(got.Scan)
		err := c.db.Send(ctx, c.db.Engine, b)
		taken.Answer(err, 0, nil)
		if conn.Code(err) == "" { // done, or the server's answer is not known
			return err
		}
	}
	b := c.db.Hot(ctx)
	if statement == queries.ClaimFreeRuns {
		b = c.db.Guarded(ctx)
	}
	b.Add(statement, args...).Query(got.Scan)
	return c.db.Send(ctx, c.db.Engine, b)
}

// expectClaim lets settles wait for the claim that follows this one.
func (c *Claimer) expectClaim(request *store.ClaimRequest) {
	if len(request.Admissions) == 0 {
		c.settler.ExpectNext(request.Next)
	}
}
