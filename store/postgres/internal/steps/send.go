package steps

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Send stores an input, and releases its run.
func (s *Steps) Send(ctx context.Context, input *store.NewInput) (store.SendReceipt, error) {
	var receipt store.SendReceipt
	if err := s.schema.Usable(ctx); err != nil {
		return receipt, s.db.Fail("send", err)
	}
	err := s.db.Repeat(ctx, func() (err error) {
		receipt, err = s.send(ctx, input)
		return err
	})
	if err != nil {
		return receipt, s.db.Fail("send", err)
	}
	if _, err := s.Release(ctx, store.ReleaseRequest{Limit: ownNotices}); err != nil {
		s.leave(ctx, receipt.Run, err)
	}
	return receipt, nil
}

// leave has a worker release a run whose input was stored. That is usual for a producer, whose
// role may store inputs and release nothing.
func (s *Steps) leave(ctx context.Context, run store.RunID, err error) {
	if conn.Code(err) != conn.LacksPrivilege {
		s.db.Log.Warn("releasing a run whose input has come failed, will be retried", "event", "input.not_released", "run", run, "error", err)
	}
	s.wake.Noticed(ctx, run)
}

// ownNotices is how many notices a sender takes: its own, and those of a few others.
const ownNotices = 20

// SendIn stores an input and its notice over a connection, or in the caller's transaction.
func (s *Steps) SendIn(ctx context.Context, to conn.Sender, input *store.NewInput) (store.SendReceipt, error) {
	if err := input.Check(); err != nil {
		return store.SendReceipt{}, err
	}
	receipt, err := s.addressee(ctx, to, input)
	if err != nil {
		return receipt, err
	}
	digest := input.Digest
	if digest == "" {
		digest = store.DigestOf(input.Name, input.Value)
	}
	var sent []queries.SendInputRow
	b := s.db.Begin(ctx, to)
	b.Add(queries.SendInput, receipt.Run.String(), string(input.Value), input.Name, input.By, digest, int64(store.MaxInputs), int64(store.MaxStepsSize)).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var row queries.SendInputRow
			if err := rows.Scan(&row.State, &row.Number, &row.Bytes, &row.Stored); err != nil {
				return err
			}
			sent = append(sent, row)
		}
		return rows.Err()
	})
	if err := s.db.Send(ctx, to, b); err != nil {
		return receipt, err
	}
	switch {
	case len(sent) == 0:
		return receipt, fmt.Errorf("run %s: %w", receipt.Run, store.ErrNotFound)
	case sent[0].Stored:
		return receipt, s.audit(ctx, to, input, receipt.Run)
	}
	receipt.Existing = true
	return receipt, s.refused(ctx, to, input, receipt.Run, digest, sent[0])
}

// addressee finds the run that an input is for.
func (s *Steps) addressee(ctx context.Context, to conn.Sender, input *store.NewInput) (receipt store.SendReceipt, err error) {
	if input.Key == "" {
		return store.SendReceipt{Run: input.Run}, nil
	}
	b := s.db.Begin(ctx, to)
	b.Add(queries.KeyHolder, input.Job, input.Key).Query(func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(id uuid.UUID) { receipt.Run = id })
	})
	if err := s.db.Send(ctx, to, b); err != nil {
		return receipt, err
	}
	if receipt.Run == uuid.Nil {
		return receipt, fmt.Errorf("no unfinished run of job %s holds the key %q: %w", input.Job, input.Key, store.ErrNotFound)
	}
	return receipt, nil
}

// refused says why an input was not stored; nil if the same value is there.
func (s *Steps) refused(ctx context.Context, to conn.Sender, input *store.NewInput, run store.RunID, digest string, row queries.SendInputRow) error {
	var known string
	found, gaveUp := false, false
	b := s.db.Begin(ctx, to)
	b.Add(queries.DigestOf, run.String(), input.Name).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(&known); err != nil {
				return err
			}
			found, gaveUp = true, known == ""
		}
		return rows.Err()
	})
	if err := s.db.Send(ctx, to, b); err != nil {
		return err
	}
	return rules.RefuseInput(rules.SentInput{
		Run: run, Name: input.Name, Size: len(input.Value), State: store.State(row.State), Inputs: int(row.Number), Bytes: int(row.Bytes),
		Found: found, GaveUp: gaveUp, Same: known == digest,
	})
}
