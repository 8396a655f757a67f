package observe

import "time"

// StepResult says how the execution of a step ended.
type StepResult int8

// The results of executed steps. Steps that a handler finds recorded are not executed.
const (
	StepDone   StepResult = iota // its result was recorded
	StepTried                    // it failed, and its attempts are not used up
	StepFailed                   // its failure was recorded for good
	StepError                    // it failed, and nothing was recorded: the attempt of the run fails
)

// stepResults bounds the results.
const stepResults = int(StepError) + 1

// String returns the result's word.
func (r StepResult) String() string {
	return [stepResults]string{"done", "tried", "failed", "error"}[r]
}

// StepResults lists the results.
func StepResults() []StepResult { return []StepResult{StepDone, StepTried, StepFailed, StepError} }

// Stepped counts the execution of a step.
func (c *LaneCounts) Stepped(result StepResult) { c.steps[result].Add(1) }

// StepWritten counts the time from the end of a step until it was recorded.
func (t *Tally) StepWritten(took time.Duration) { t.stepWrites.add(int64(took)) }

// Released counts runs that were made due because their inputs had come.
func (t *Tally) Released(runs int) { t.released.Add(int64(runs)) }

// stepTotals are the executions of steps, by result; nil: there were none.
func (c *LaneCounts) stepTotals() map[StepResult]int64 {
	var totals map[StepResult]int64
	for _, result := range StepResults() {
		if n := c.steps[result].Load(); n > 0 {
			if totals == nil {
				totals = map[StepResult]int64{}
			}
			totals[result] = n
		}
	}
	return totals
}
