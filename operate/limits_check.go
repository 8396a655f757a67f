package operate

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

// LimitFaults is what CheckLimits has found. None is what a sound store answers.
type LimitFaults struct {
	Faults []LimitFaultView `json:"faults"`
}

// LimitFaultView is one thing that is not as it has to be.
type LimitFaultView struct {
	Fault store.LimitFaultKind `json:"fault"`
	Limit string               `json:"limit"` // empty: the line of runs that have all their permits
	Key   string               `json:"key"`
	Run   *store.RunID         `json:"run"` // one that it concerns; nil: none
	Text  string               `json:"text"`
}

// CheckLimits looks for limits that are exceeded, permits that nothing holds, and runs
// that could start and that no worker would look at, whenever you ask. It changes
// nothing.
func (o *Operator) CheckLimits(ctx context.Context) (LimitFaults, error) {
	list := LimitFaults{Faults: []LimitFaultView{}}
	faults, err := o.store.CheckLimits(ctx)
	for i := range faults {
		f := &faults[i]
		view := LimitFaultView{Fault: f.Fault, Limit: f.Limit, Key: f.Key, Text: f.Text}
		if f.Run != uuid.Nil {
			view.Run = &f.Run
		}
		list.Faults = append(list.Faults, view)
	}
	return list, err
}

// ExamineLimits says what CheckLimits finds.
func (o *Operator) ExamineLimits(ctx context.Context) (f store.Findings) {
	const name = "limits"
	list, err := o.CheckLimits(ctx)
	switch {
	case err != nil:
		f.Fail(name, err.Error(), "repeat it when the database answers")
	case len(list.Faults) == 0:
		f.Fine(name, "none is exceeded, and no waiting run is stuck")
	}
	for _, one := range list.Faults {
		f.Fail(name, fmt.Sprintf("%s=%s is %s: %s", one.Limit, one.Key, one.Fault, one.Text), "workers repair what is stuck or orphaned within an hour; please report it")
	}
	return f
}
