package steps

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
)

// readings are what is read of runs, each at its place.
type readings struct {
	all []store.RunSteps
	at  map[uuid.UUID]int
}

func readingsOf(ids []store.RunID) *readings {
	r := &readings{all: make([]store.RunSteps, len(ids)), at: make(map[uuid.UUID]int, len(ids))}
	for i, id := range ids {
		r.at[id] = i
	}
	return r
}

// steps reads rows of StepsOf and StepOf.
func (r *readings) steps(rows pgx.Rows) error {
	for rows.Next() {
		var id uuid.UUID
		var step store.StepRecord
		var kind int16
		var tries int32
		var took int64
		var until *time.Time
		var value string
		if err := rows.Scan(&id, &step.Name, &kind, &tries, &step.At, &took, &until, &value, &step.Error, &step.Code); err != nil {
			return err
		}
		step.Kind, step.Tries, step.At, step.Took = store.StepKind(kind), int(tries), step.At.UTC(), conn.FromMicro(took)
		if until != nil {
			step.Until = until.UTC()
		}
		step.Value = bytesOf(value)
		into := &r.all[r.at[id]]
		into.Steps = append(into.Steps, step)
	}
	return rows.Err()
}

// inputs reads rows of InputsOf and InputOf.
func (r *readings) inputs(rows pgx.Rows) error {
	for rows.Next() {
		var id uuid.UUID
		var input store.Input
		var value string
		var digest string
		if err := rows.Scan(&id, &input.Name, &input.At, &input.By, &value, &digest); err != nil {
			return err
		}
		input.At, input.Value, input.GaveUp = input.At.UTC(), bytesOf(value), digest == ""
		into := &r.all[r.at[id]]
		into.Inputs = append(into.Inputs, input)
	}
	return rows.Err()
}

// clocks reads rows of ClockOfRuns.
func (r *readings) clocks(rows pgx.Rows) error {
	for rows.Next() {
		var id uuid.UUID
		var now time.Time
		var expires *time.Time
		if err := rows.Scan(&id, &now, &expires); err != nil {
			return err
		}
		into := &r.all[r.at[id]]
		into.Now = now.UTC()
		if expires != nil {
			into.ExpiresAt = expires.UTC()
		}
	}
	return rows.Err()
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
