package steps

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// send stores an input in a transaction of its own: that of a person together with its row of the
// audit log, that of a handler while its run is the claim's. Other code sends in one round trip, and needs no right to write to the audit log.
func (s *Steps) send(ctx context.Context, input *store.NewInput) (receipt store.SendReceipt, err error) {
	if input.By == "" && input.Under == (store.Holder{}) {
		return s.SendIn(ctx, s.db.General, input)
	}
	err = conn.InTx(ctx, s.db.General, func(tx pgx.Tx) error {
		b := s.db.Guarded(ctx)
		b.Add(queries.Idle)
		if err := s.db.Send(ctx, tx, b); err != nil {
			return err
		}
		if receipt, err = s.SendIn(ctx, tx, input); err != nil {
			return err
		}
		return s.holds(ctx, tx, input.Under)
	})
	return receipt, err
}

// holds checks, in the transaction of an input that a handler sends, that its run is still the
// claim's. It comes last, so that the run is not locked while another sender is waited for.
func (s *Steps) holds(ctx context.Context, tx conn.Sender, holder store.Holder) error {
	if holder == (store.Holder{}) {
		return nil
	}
	held := false
	b := s.db.GuardedFor(ctx, conn.HolderPatience)
	b.Add(queries.HoldRun, holder.Run, uuid.UUID(holder.Claim)).Query(func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(uuid.UUID) { held = true })
	})
	err := s.db.Send(ctx, tx, b)
	if conn.Code(err) == conn.LockNotAvailable {
		return fmt.Errorf("%w: another transaction has kept the run locked for %v: if that transaction is yours, send through it: %w", store.ErrConflict, conn.HolderPatience, err)
	}
	if err == nil && !held {
		err = lease.ErrLost
	}
	return err
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
