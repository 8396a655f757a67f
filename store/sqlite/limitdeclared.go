package sqlite

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/durable-worker/durable-worker/store"
)

// declareOne declares one limit, and notes it when other values are in effect from
// now on. One that is refused is passed, and stops no other.
func (c *change) declareOne(ctx context.Context, limit *store.Limit, started int64, changed *[]store.LimitID, passed func(error)) error {
	return c.around(ctx, func() error {
		id, err := c.declareLimit(ctx, limit, started)
		if errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrConflict) {
			passed(err)
			return nil
		}
		if id != 0 {
			*changed = append(*changed, id)
		}
		return err
	}, passed)
}

// jobLimitsText is how the limits of a job's runs are stored; none are null.
func jobLimitsText(limits []store.JobLimit) (*string, error) {
	if len(limits) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(limits)
	stored := string(text)
	return &stored, err
}

// specLimits is the part of a stored spec that says the limits of a schedule's
// runs.
type specLimits struct {
	Limits []store.LimitUse `json:"limits"`
}

// specText is the rule, the plan and the limits of a schedule, as one JSON object.
func specText(one *store.Schedule) string {
	if len(one.Limits) == 0 {
		return string(one.Spec())
	}
	var parts map[string]json.RawMessage
	if json.Unmarshal(one.Spec(), &parts) != nil || parts == nil {
		return string(one.Spec())
	}
	parts["limits"], _ = json.Marshal(one.Limits) // texts always can be
	text, _ := json.Marshal(parts)
	return string(text)
}

// readSpec reads what specText has written.
func readSpec(one *store.Schedule, text string) error {
	var limits specLimits
	err := errors.Join(one.SetSpec([]byte(text)), json.Unmarshal([]byte(text), &limits))
	one.Limits = limits.Limits
	return err
}
