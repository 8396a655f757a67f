package steps

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Of returns what runs have recorded and were sent.
func (s *Steps) Of(ctx context.Context, ids []store.RunID) ([]store.RunSteps, error) {
	if err := s.schema.Usable(ctx); err != nil {
		return nil, s.db.Fail("steps", err)
	}
	found := readingsOf(ids)
	b := s.db.HotAloof(ctx)
	b.Add(queries.StepsOf, conn.UUIDs(ids)).Query(found.steps)
	b.Add(queries.InputsOf, conn.UUIDs(ids)).Query(found.inputs)
	b.Add(queries.ClockOfRuns, conn.UUIDs(ids)).Query(found.clocks)
	if err := s.db.Send(ctx, s.db.Aloof(), b); err != nil {
		return nil, s.db.Fail("steps", err)
	}
	return found.all, nil
}

// Record stores steps; see store.Stepper.
func (s *Steps) Record(ctx context.Context, steps []store.NewStep) ([]store.StepVerdict, error) {
	if len(steps) == 0 {
		return nil, nil
	}
	for i := range steps {
		if err := steps[i].Check(); err != nil {
			return nil, err
		}
	}
	if err := s.schema.Usable(ctx); err != nil {
		return nil, s.db.Fail("record steps", err)
	}
	c := columnsOf(steps)
	verdicts := make([]store.StepVerdict, len(steps))
	stored := 0
	b := s.db.HotAloof(ctx)
	b.Add(queries.RecordSteps, c.runs, c.claims, c.names, c.kinds, c.tries, c.took, c.values, c.errors, c.codes).Query(func(rows pgx.Rows) error {
		return scanNamed(rows, func(at named) {
			verdicts[c.index[at]] = store.StepStored
			stored++
		})
	})
	if err := s.db.Send(ctx, s.db.Aloof(), b); err != nil {
		return nil, s.db.Fail("record steps", err)
	}
	if stored < len(steps) {
		if err := s.judge(ctx, c, verdicts); err != nil {
			return nil, s.db.Fail("record steps", err)
		}
	}
	return verdicts, nil
}

// judge finds out what became of the steps that were not stored.
func (s *Steps) judge(ctx context.Context, c columns, verdicts []store.StepVerdict) error {
	b := s.db.HotAloof(ctx)
	b.Add(queries.StepFates, c.runs, c.claims, c.names).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var fate queries.StepFatesRow
			if err := rows.Scan(&fate.RunID, &fate.Name, &fate.Held, &fate.Known); err != nil {
				return err
			}
			at := c.index[named{fate.RunID, fate.Name}]
			switch {
			case verdicts[at] == store.StepStored:
			case !fate.Held:
				verdicts[at] = store.StepLost
			case fate.Known:
				verdicts[at] = store.StepKnown
			default:
				verdicts[at] = store.StepLocked
			}
		}
		return rows.Err()
	})
	return s.db.Send(ctx, s.db.Aloof(), b)
}

// named is the key of a step.
type named struct {
	run  uuid.UUID
	name string
}

// columns are steps as the arrays of a statement.
type columns struct {
	runs, claims          conn.UUIDs
	names                 []string
	kinds                 []int16
	tries                 []int32
	took                  []int64
	values, errors, codes []string
	index                 map[named]int
}

func columnsOf(steps []store.NewStep) columns {
	c := columns{index: make(map[named]int, len(steps))}
	for i := range steps {
		step := &steps[i]
		c.index[named{step.Run, step.Name}] = i
		c.runs = append(c.runs, step.Run)
		c.claims = append(c.claims, uuid.UUID(step.Claim))
		c.names = append(c.names, step.Name)
		c.kinds = append(c.kinds, int16(step.Kind))
		c.tries = append(c.tries, int32(step.Tries)) //nolint:gosec // checked
		c.took = append(c.took, conn.Micro(step.Took))
		c.values = append(c.values, string(step.Value))
		c.errors = append(c.errors, step.Error)
		c.codes = append(c.codes, step.Code)
	}
	return c
}

// In returns the step of a name as a transaction sees it.
func (s *Steps) In(ctx context.Context, to conn.Sender, id store.RunID, name string) (step store.StepRecord, found bool, err error) {
	read := readingsOf([]store.RunID{id})
	b := s.db.NewBatch()
	b.Add(queries.StepOf, id.String(), name).Query(read.steps)
	if err := s.db.Send(ctx, to, b); err != nil || len(read.all[0].Steps) == 0 {
		return step, false, err
	}
	return read.all[0].Steps[0], true, nil
}

// RecordIn stores a step in a caller's transaction that has locked the run.
func (s *Steps) RecordIn(ctx context.Context, to conn.Sender, step *store.NewStep) error {
	stored := false
	b := s.db.NewBatch()
	b.Add(queries.RecordStepIn, step.Run.String(), conn.Micro(step.Took), int64(step.Tries), int64(step.Kind), step.Name, string(step.Value), step.Error, step.Code).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			stored = true
		}
		return rows.Err()
	})
	if err := s.db.Send(ctx, to, b); err != nil {
		return err
	}
	if !stored {
		return fmt.Errorf("%w: step %q of run %s is stored already", store.ErrConflict, step.Name, step.Run)
	}
	return nil
}

// Forget deletes steps; see store.Stepper.
func (s *Steps) Forget(ctx context.Context, id store.RunID, names []string, by string) (int, error) {
	if err := s.schema.Usable(ctx); err != nil {
		return 0, s.db.Fail("forget steps", err)
	}
	rows, err := s.db.Queries(s.db.General).ForgetSteps(ctx, queries.ForgetStepsParams{RunID: id, Names: conn.OrEmpty(names), Actor: by})
	switch {
	case err != nil:
		return 0, s.db.Fail("forget steps", err)
	case len(rows) == 0:
		return 0, fmt.Errorf("run %s: %w", id, store.ErrNotFound)
	case rows[0].Executing:
		return 0, fmt.Errorf("forget steps: %w: run %s is executing", store.ErrConflict, id)
	}
	return int(rows[0].Forgotten), nil
}

// lost is the answer where a run is no longer the claim's.
func lost(what string, id store.RunID) error {
	return fmt.Errorf("%s: run %s: %w", what, id, lease.ErrLost)
}
