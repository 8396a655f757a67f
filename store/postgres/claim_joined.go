package postgres

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/admission"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// sendClaim sends the claim, together with the settles that have waited for it. The statement is
// ClaimRuns, or ClaimFreeRuns, which skips runs whose rows other transactions hold.
func (s *Store) sendClaim(ctx context.Context, statement string, args []any, got *admission.Dealing) error {
	if taken := s.settler.TakeJoined(); !taken.None() {
		b := s.db.Hot(ctx)
		taken.AddLast(b)
		b.Add(statement, args...).Query(got.Scan)
		err := s.db.Send(ctx, s.db.Engine, b)
		taken.Answer(err, 0, nil)
		if conn.Code(err) == "" { // done, or the server's answer is not known
			return err
		}
	}
	b := s.db.Hot(ctx)
	if statement == queries.ClaimFreeRuns {
		b = s.db.Guarded(ctx)
	}
	b.Add(statement, args...).Query(got.Scan)
	return s.db.Send(ctx, s.db.Engine, b)
}

// expectClaim lets settles wait for the claim that follows this one.
func (s *Store) expectClaim(request *store.ClaimRequest) {
	if len(request.Admissions) == 0 {
		s.settler.ExpectNext(request.Next)
	}
}
