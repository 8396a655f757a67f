package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

func inputOf(row *queries.Input) store.Input {
	return store.Input{Name: row.Name, At: instant(row.At), By: textOf(row.Sender), Value: row.Value, GaveUp: row.Digest == nil}
}

// Send stores an input and releases its run, in one transaction; see store.Sender.
func (s *Store) Send(ctx context.Context, input store.NewInput) (store.SendReceipt, error) {
	if err := input.Check(); err != nil {
		return store.SendReceipt{}, err
	}
	var receipt store.SendReceipt
	var released store.ReleaseResult
	err := s.writeAround(ctx, enqueues, func(ctx context.Context, c *change) (err error) {
		if receipt, err = c.send(ctx, &input); err == nil {
			released, err = s.releaseNoticed(ctx, c, ownNotices)
		}
		return err
	})
	if err != nil {
		return store.SendReceipt{}, fmt.Errorf("send: %w", heldByAnother(err))
	}
	if released.Released > 0 {
		s.hint()
	}
	return receipt, nil
}

// ownNotices is how many notices a sender takes: its own, and those of a few others.
const ownNotices = 20

// send stores an input and its notice.
func (c *change) send(ctx context.Context, input *store.NewInput) (receipt store.SendReceipt, err error) {
	if input.Under != (store.Holder{}) {
		if err := c.guard(ctx, input.Under); err != nil {
			return receipt, err
		}
	}
	if receipt.Run, err = c.addressee(ctx, input); err != nil {
		return receipt, err
	}
	id := receipt.Run[:]
	state, err := c.FindState(ctx, queries.FindStateParams{ID: id})
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("run %s: %w", receipt.Run, store.ErrNotFound)
	}
	if err != nil {
		return receipt, err
	}
	had, err := c.SumInputs(ctx, queries.SumInputsParams{RunID: id})
	if err != nil {
		return receipt, err
	}
	known, err := c.FindInput(ctx, queries.FindInputParams{RunID: id, Name: input.Name})
	if unlessNone(err) != nil {
		return receipt, err
	}
	digest := input.Digest
	if digest == "" {
		digest = store.DigestOf(input.Name, input.Value)
	}
	sent := rules.SentInput{
		Run: receipt.Run, Name: input.Name, Size: len(input.Value), State: store.State(state), Inputs: int(had.Number), Bytes: int(had.Bytes), //nolint:gosec // 0 to 5
		Found: err == nil, GaveUp: known.Digest == nil, Same: known.Digest != nil && *known.Digest == digest,
	}
	if sent.Found || sent.State.Terminal() || sent.Inputs >= store.MaxInputs || sent.Bytes+sent.Size > store.MaxStepsSize {
		receipt.Existing = true
		return receipt, rules.RefuseInput(sent)
	}
	if input.By != "" {
		if err := c.audit(ctx, rules.KindRun, receipt.Run.String(), store.SendsInput, input.By, input.Detail()); err != nil {
			return receipt, err
		}
	}
	return receipt, errors.Join(
		c.InsertInput(ctx, queries.InsertInputParams{
			RunID: id, At: c.now, Size: int64(sent.Size), Name: input.Name, Sender: rules.TextOrNil(input.By), Digest: &digest, Value: input.Value,
		}),
		c.InsertNotice(ctx, queries.InsertNoticeParams{DueAt: c.now, RunID: id, Name: input.Name}),
	)
}

// addressee finds the run that an input is for.
func (c *change) addressee(ctx context.Context, input *store.NewInput) (store.RunID, error) {
	if input.Key == "" {
		return input.Run, nil
	}
	holder, err := c.FindHolder(ctx, queries.FindHolderParams{Job: input.Job, Key: input.Key})
	if unlessNone(err) != nil {
		return store.RunID{}, err
	}
	if err != nil || holder.State == nil || store.State(*holder.State).Terminal() { //nolint:gosec // 0 to 5
		return store.RunID{}, fmt.Errorf("no unfinished run of job %s holds the key %q: %w", input.Job, input.Key, store.ErrNotFound)
	}
	return store.RunID(holder.RunID), nil
}

// GiveUp takes the place of an input that has not come; see store.Stepper.
func (s *Store) GiveUp(ctx context.Context, holder store.Holder, name string) (store.Input, error) {
	var input queries.Input
	err := s.write(ctx, settles, func(ctx context.Context, c *change) error {
		err := c.holds(ctx, holder)
		if err == nil {
			err = c.GiveUp(ctx, queries.GiveUpParams{RunID: holder.Run[:], At: c.now, Name: name})
		}
		if err == nil {
			input, err = c.FindInput(ctx, queries.FindInputParams{RunID: holder.Run[:], Name: name})
		}
		return err
	})
	if err != nil {
		return store.Input{}, fmt.Errorf("give up waiting: %w", heldByAnother(err))
	}
	return inputOf(&input), nil
}

// Send stores an input within the transaction; see store.Sender. The listeners of the store
// hear within a moment after the commit that its run is to be released.
func (t *Tx) Send(ctx context.Context, input store.NewInput) (store.SendReceipt, error) {
	if err := input.Check(); err != nil {
		return store.SendReceipt{}, err
	}
	var receipt store.SendReceipt
	err := t.within(ctx, func(ctx context.Context, c *change) (err error) {
		receipt, err = c.send(ctx, &input)
		return err
	})
	if err != nil {
		return store.SendReceipt{}, fmt.Errorf("send: %w", err)
	}
	return receipt, nil
}
