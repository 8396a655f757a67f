package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// Steps returns what a run has recorded and was sent; see store.Stepper.
func (s *Store) Steps(ctx context.Context, ids []store.RunID) ([]store.RunSteps, error) {
	found, err := s.recorded(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("steps: %w", s.explain(err))
	}
	return found, nil
}

// recorded reads steps and inputs in one snapshot.
func (s *Store) recorded(ctx context.Context, ids []store.RunID) ([]store.RunSteps, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := s.reads.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // it has only read
	snapshot := reader.WithTx(tx)
	all := make([]store.RunSteps, len(ids))
	for i, id := range ids {
		all[i], err = recordedOf(ctx, snapshot, id)
		if err != nil {
			return nil, err
		}
		all[i].Now = instant(s.clock.now())
	}
	return all, nil
}

func recordedOf(ctx context.Context, snapshot *queries.Queries, id store.RunID) (found store.RunSteps, err error) {
	steps, err := snapshot.ListSteps(ctx, queries.ListStepsParams{RunID: id[:]})
	if err != nil {
		return found, err
	}
	inputs, err := snapshot.ListInputs(ctx, queries.ListInputsParams{RunID: id[:]})
	for i := range steps {
		found.Steps = append(found.Steps, stepOf(&steps[i]))
	}
	for i := range inputs {
		found.Inputs = append(found.Inputs, inputOf(&inputs[i]))
	}
	if err != nil {
		return found, err
	}
	expires, err := snapshot.FindExpiry(ctx, queries.FindExpiryParams{ID: id[:]})
	if expires != nil {
		found.ExpiresAt = instant(*expires)
	}
	return found, unlessNone(err)
}

func stepOf(row *queries.Step) store.StepRecord {
	step := store.StepRecord{
		Name: row.Name, Kind: store.StepKind(row.Kind), Tries: int(row.Tries), At: instant(row.At), Value: row.Value, //nolint:gosec // stored by this package
		Error: textOf(row.Error), Code: textOf(row.Code),
	}
	if row.Took != nil {
		step.Took = duration(*row.Took)
	}
	if row.Until != nil {
		step.Until = instant(*row.Until)
	}
	return step
}

// textOf is the text that rules.TextOrNil has stored.
func textOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// RecordSteps stores steps, all in one transaction; see store.Stepper. No other transaction
// writes meanwhile, so that none is answered with StepLocked.
func (s *Store) RecordSteps(ctx context.Context, steps []store.NewStep) ([]store.StepVerdict, error) {
	for i := range steps {
		if err := steps[i].Check(); err != nil {
			return nil, err
		}
	}
	verdicts := make([]store.StepVerdict, len(steps))
	err := s.write(ctx, settles, func(ctx context.Context, c *change) (err error) {
		for i := range steps {
			if verdicts[i], err = c.recordStep(ctx, &steps[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("record steps: %w", heldByAnother(err))
	}
	return verdicts, nil
}

// heldByAnother says of an error that the file stays locked.
func heldByAnother(err error) error {
	if busy(err) {
		return fmt.Errorf("%w: the file stays locked: if one of your own transactions holds it, do this through that transaction: %w", store.ErrConflict, err)
	}
	return err
}

// recordStep stores a step of a run that is running under its claim.
func (c *change) recordStep(ctx context.Context, step *store.NewStep) (store.StepVerdict, error) {
	took := step.Took.Microseconds()
	row := queries.RecordStepParams{
		At: c.now, Took: &took, Tries: int64(step.Tries), Kind: int64(step.Kind), Name: step.Name,
		Error: rules.TextOrNil(step.Error), Code: rules.TextOrNil(step.Code), RunID: step.Run[:], ClaimID: step.Claim[:],
	}
	if len(step.Value) > 0 {
		row.Value = step.Value
	}
	stored, err := c.RecordStep(ctx, row)
	if err != nil || stored > 0 {
		return store.StepStored, err
	}
	if err := c.holds(ctx, step.Holder); !errors.Is(err, lease.ErrLost) {
		return store.StepKnown, err
	}
	return store.StepLost, nil
}

// holds finds out whether a run is running under its claim; if not, it is lost.
func (c *change) holds(ctx context.Context, holder store.Holder) error {
	row, err := c.FindClaimOfRun(ctx, queries.FindClaimOfRunParams{ID: holder.Run[:]})
	if err := unlessNone(err); err != nil {
		return err
	}
	if store.State(row.State) != store.Running || string(row.ClaimID) != string(holder.Claim[:]) {
		return fmt.Errorf("run %s: %w", holder.Run, lease.ErrLost)
	}
	return nil
}

// BeginWait records a wait, and begins a new stretch of the run's life with it; see
// store.Stepper.
func (s *Store) BeginWait(ctx context.Context, wait store.NewWait) (store.RunSteps, error) {
	if err := wait.Check(); err != nil {
		return store.RunSteps{}, err
	}
	var found store.RunSteps
	err := s.write(ctx, settles, func(ctx context.Context, c *change) (err error) {
		found, err = c.beginWait(ctx, &wait)
		return err
	})
	if err != nil {
		return store.RunSteps{}, fmt.Errorf("begin to wait: %w", heldByAnother(err))
	}
	return found, nil
}

func (c *change) beginWait(ctx context.Context, wait *store.NewWait) (found store.RunSteps, err error) {
	if err := c.holds(ctx, wait.Holder); err != nil {
		return found, err
	}
	row := queries.RecordWaitParams{RunID: wait.Run[:], At: c.now, Until: micros(wait.Until), Children: int64(wait.Children), Kind: int64(wait.Kind), Name: wait.Name}
	if row.Until == nil && (wait.For > 0 || wait.Kind == store.StepSleep) {
		until := c.now + wait.For.Microseconds()
		row.Until = &until
	}
	begun, err := c.RecordWait(ctx, row)
	if err == nil && begun > 0 {
		err = c.BeginStretch(ctx, queries.BeginStretchParams{ID: wait.Run[:], ClaimID: wait.Claim[:]})
	}
	if err != nil {
		return found, err
	}
	step, err := c.FindStep(ctx, queries.FindStepParams{RunID: wait.Run[:], Name: wait.Name})
	if err != nil {
		return found, err
	}
	found = store.RunSteps{Now: instant(c.now), Steps: []store.StepRecord{stepOf(&step)}}
	input, err := c.FindInput(ctx, queries.FindInputParams{RunID: wait.Run[:], Name: wait.Name})
	if err == nil {
		found.Inputs = []store.Input{inputOf(&input)}
	}
	return found, unlessNone(err)
}

// RecordedStep returns a step as the transaction sees it; see store.TxStepper.
func (t *Tx) RecordedStep(ctx context.Context, id store.RunID, name string) (store.StepRecord, bool, error) {
	err := t.usable(ctx)
	var row queries.Step
	if err == nil {
		row, err = queries.New(t.tx).FindStep(ctx, queries.FindStepParams{RunID: id[:], Name: name})
	}
	if errors.Is(err, sql.ErrNoRows) {
		return store.StepRecord{}, false, nil
	}
	if err != nil {
		return store.StepRecord{}, false, fmt.Errorf("read step: %w", t.store.explain(err))
	}
	return stepOf(&row), true, nil
}

// RecordStep stores a step within the transaction, and takes the write lock of the file until
// that ends; see store.TxStepper.
func (t *Tx) RecordStep(ctx context.Context, step store.NewStep) error {
	if err := step.Check(); err != nil {
		return err
	}
	err := t.within(ctx, func(ctx context.Context, c *change) error {
		if err := c.guard(ctx, step.Holder); err != nil {
			return err
		}
		verdict, err := c.recordStep(ctx, &step)
		if err == nil && verdict != store.StepStored {
			err = fmt.Errorf("%w: step %q of run %s is stored already", store.ErrConflict, step.Name, step.Run)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("record step of run %s: %w", step.Run, err)
	}
	return nil
}
