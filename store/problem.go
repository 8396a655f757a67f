package store

import (
	"fmt"
	"slices"
	"time"
)

// MaxProblems is the most problems of one answer.
const MaxProblems = 5000

// ProblemScope says which dead runs are meant.
type ProblemScope int8

// The scopes.
const (
	OpenProblems         ProblemScope = iota // those that no operator has acknowledged
	AcknowledgedProblems                     // the others
)

// ProblemFilter narrows a list of problems. The zero value lists the newest that are open.
type ProblemFilter struct {
	Scope  ProblemScope
	Jobs   []string  // only of these jobs; none: any
	Queues []string  // only on these queues; none: any
	Since  time.Time // only runs that ended at or after it; the zero time: any
	Limit  int       // 1 to MaxProblems; zero: MaxProblems
}

// Problem is a run that ended dead, as short as can be.
type Problem struct {
	Run     RunID
	Job     string
	Queue   string
	EndedAt time.Time
	Reason  string // at most MaxProblemReason bytes of it

	AcknowledgedAt *time.Time // nil: it was not
	AcknowledgedBy string
}

// MaxProblemReason is how many bytes of a reason a list of problems has.
const MaxProblemReason = 500

// Most is how many problems the filter asks for. It returns ErrInvalid for a filter
// that makes no sense.
func (f *ProblemFilter) Most() (int, error) {
	words := Filter{Jobs: f.Jobs, Queues: f.Queues}
	if err := words.checkWords(); err != nil {
		return 0, err
	}
	if !slices.Contains([]ProblemScope{OpenProblems, AcknowledgedProblems}, f.Scope) {
		return 0, fmt.Errorf("%w: scope %d: want 0 or 1", ErrInvalid, f.Scope)
	}
	if err := checkSince(f.Since); err != nil {
		return 0, err
	}
	return most(f.Limit, MaxProblems, MaxProblems)
}
