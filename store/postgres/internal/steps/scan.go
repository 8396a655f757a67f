package steps

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
)

// scanSteps reads rows of StepsOf and StepOf.
func scanSteps(into *store.RunSteps) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		into.Steps = nil
		for rows.Next() {
			var step store.StepRecord
			var kind int16
			var tries int32
			var took int64
			var until *time.Time
			var value string
			if err := rows.Scan(&step.Name, &kind, &tries, &step.At, &took, &until, &value, &step.Error, &step.Code); err != nil {
				return err
			}
			step.Kind, step.Tries, step.At, step.Took = store.StepKind(kind), int(tries), step.At.UTC(), conn.FromMicro(took)
			if until != nil {
				step.Until = until.UTC()
			}
			step.Value = bytesOf(value)
			into.Steps = append(into.Steps, step)
		}
		return rows.Err()
	}
}

// scanInputs reads rows of InputsOf and InputOf.
func scanInputs(into *store.RunSteps) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		into.Inputs = nil
		for rows.Next() {
			var input store.Input
			var value string
			var digest string
			if err := rows.Scan(&input.Name, &input.At, &input.By, &value, &digest); err != nil {
				return err
			}
			input.At, input.Value, input.GaveUp = input.At.UTC(), bytesOf(value), digest == ""
			into.Inputs = append(into.Inputs, input)
		}
		return rows.Err()
	}
}

// scanClock reads the row of ClockOfRun.
func scanClock(into *store.RunSteps) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var expires *time.Time
			if err := rows.Scan(&into.Now, &expires); err != nil {
				return err
			}
			if expires != nil {
				into.ExpiresAt = expires.UTC()
			}
		}
		into.Now = into.Now.UTC()
		return rows.Err()
	}
}

// scanNamed reads rows of a run and a name.
func scanNamed(rows pgx.Rows, each func(named)) error {
	for rows.Next() {
		var id uuid.UUID
		var name string
		if err := rows.Scan(&id, &name); err != nil {
			return err
		}
		each(named{id, name})
	}
	return rows.Err()
}

func bytesOf(text string) []byte {
	if text == "" {
		return nil
	}
	return []byte(text)
}
