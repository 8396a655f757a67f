package steps

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// send stores an input in a transaction of its own: that of a person together with its row of the
// audit log. Code sends in one round trip, and needs no right to write to the audit log.
func (s *Steps) send(ctx context.Context, input *store.NewInput) (receipt store.SendReceipt, err error) {
	if input.By == "" {
		return s.SendIn(ctx, s.db.General, input)
	}
	err = conn.InTx(ctx, s.db.General, func(tx pgx.Tx) error {
		b := s.db.Guarded(ctx)
		b.Add(queries.Idle)
		if err := s.db.Send(ctx, tx, b); err != nil {
			return err
		}
		receipt, err = s.SendIn(ctx, tx, input)
		return err
	})
	return receipt, err
}

// audit writes to the audit log, in the transaction of the input, that a person has sent it.
func (s *Steps) audit(ctx context.Context, to conn.Sender, input *store.NewInput, run store.RunID) error {
	if input.By == "" {
		return nil
	}
	b := s.db.NewBatch()
	b.Add(queries.AuditChange, input.By, rules.KindRun, run.String(), store.SendsInput, string(input.Detail()))
	return s.db.Send(ctx, to, b)
}
