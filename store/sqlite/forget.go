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

// ForgetSteps deletes steps of a run that is not executing; see store.Stepper.
func (s *Store) ForgetSteps(ctx context.Context, id store.RunID, names []string, by string) (forgotten int, err error) {
	err = s.write(ctx, reclaims, func(ctx context.Context, c *change) error {
		state, err := c.FindState(ctx, queries.FindStateParams{ID: id[:]})
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return store.ErrNotFound
		case err != nil:
			return err
		case store.State(state) == store.Running:
			return fmt.Errorf("%w: it is executing", store.ErrConflict)
		}
		if forgotten, err = c.forgetSteps(ctx, id, names, names); err != nil || forgotten == 0 {
			return err
		}
		return c.audit(ctx, rules.KindRun, id.String(), store.ForgetsSteps, by, store.ForgetDetail(names))
	})
	if err != nil {
		return 0, fmt.Errorf("forget steps of run %s: %w", id, err)
	}
	return forgotten, nil
}

// forgetSteps deletes steps, and marks of having given up, and returns how many steps.
func (c *change) forgetSteps(ctx context.Context, id store.RunID, steps, marks []string) (forgotten int, err error) {
	for _, name := range steps {
		deleted, err := c.DeleteStep(ctx, queries.DeleteStepParams{RunID: id[:], Name: name})
		if err != nil {
			return 0, err
		}
		forgotten += int(deleted)
	}
	for _, name := range marks {
		if err := c.DeleteMark(ctx, queries.DeleteMarkParams{RunID: id[:], Name: name}); err != nil {
			return 0, err
		}
	}
	return forgotten, nil
}

// forgetFailures deletes what a retry forgets.
func (c *change) forgetFailures(ctx context.Context, id store.RunID) error {
	steps, err := c.ListStepKinds(ctx, queries.ListStepKindsParams{RunID: id[:]})
	if err != nil {
		return err
	}
	marks, err := c.ListMarks(ctx, queries.ListMarksParams{RunID: id[:]})
	if err != nil {
		return err
	}
	var recorded store.RunSteps
	for _, step := range steps {
		recorded.Steps = append(recorded.Steps, store.StepRecord{Name: step.Name, Kind: store.StepKind(step.Kind), At: instant(step.At)}) //nolint:gosec // stored by this package
	}
	for _, mark := range marks {
		recorded.Inputs = append(recorded.Inputs, store.Input{Name: mark.Name, At: instant(mark.At), GaveUp: true})
	}
	failed, given := rules.ForgetFailures(&recorded)
	_, err = c.forgetSteps(ctx, id, failed, given)
	return err
}

// deleteRecorded deletes the steps and inputs of a run that is deleted, and returns how many
// bytes that costs about.
func (c *change) deleteRecorded(ctx context.Context, id []byte) (bytes int64, err error) {
	steps, err := c.DeleteSteps(ctx, queries.DeleteStepsParams{RunID: id})
	if err != nil {
		return 0, err
	}
	inputs, err := c.DeleteInputs(ctx, queries.DeleteInputsParams{RunID: id})
	for _, sizes := range [][]int64{steps, inputs} {
		for _, size := range sizes {
			bytes += pageSize + size
		}
	}
	return bytes, err
}

// pageSize is what the deletion of a row costs at least.
const pageSize = 4096
