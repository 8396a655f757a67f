package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Diagnosis is a list of findings with the number of those that need action.
type Diagnosis struct {
	Findings store.Findings `json:"findings"`
	Warnings int            `json:"warnings"`
	Failed   int            `json:"failed"`
}

// Diagnose counts findings.
func Diagnose(findings store.Findings) Diagnosis {
	d := Diagnosis{Findings: whole(findings)}
	for _, finding := range findings {
		switch finding.Level {
		case store.Failed:
			d.Failed++
		case store.Warning:
			d.Warnings++
		}
	}
	return d
}

// Examine returns the findings of the storage engine (see Config.Examine). It
// changes nothing. An error comes with what had been found until then.
func (o *Operator) Examine(ctx context.Context) (store.Findings, error) {
	if o.config.Examine == nil {
		return nil, nil
	}
	return o.config.Examine(ctx)
}

// ExamineSchedules looks for schedules that cannot do what they say.
func (o *Operator) ExamineSchedules(ctx context.Context) (f store.Findings) {
	schedules, err := o.store.ListSchedules(ctx)
	if err != nil {
		f.Fail("schedules", err.Error(), "repeat it when the database answers")
		return f
	}
	for _, a := range fewOfEach(attendSchedules(schedules, time.Time{})) { // none is late
		f.Warn("schedules", a.Text, a.hint())
	}
	if len(f) == 0 {
		f.Fine("schedules", fmt.Sprintf("%d, all can be evaluated and are declared", len(schedules)))
	}
	return f
}
