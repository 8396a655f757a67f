package operate

import (
	"context"
	"fmt"

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
	for i := range schedules {
		s := &schedules[i]
		switch {
		case s.Fault != nil:
			f.Warn("schedules", fmt.Sprintf("%s cannot be evaluated: %s", s.Name, *s.Fault), "correct its declaration, or edit it")
		case s.Orphaned && s.Paused:
			f.Warn("schedules", s.Name+" is paused, and no worker declares it any more", "delete it, or deploy the code that declares it")
		case s.Orphaned:
			f.Warn("schedules", s.Name+" still fires although no worker declares it any more", "delete it, or deploy the code that declares it")
		}
	}
	if len(f) == 0 {
		f.Fine("schedules", fmt.Sprintf("%d, all can be evaluated and are declared", len(schedules)))
	}
	return f
}
