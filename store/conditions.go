package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// MaxSources bounds for how many ends of runs one run may wait: the sources of a dependent, or the
// children that a handler waits for under one name.
const MaxSources = 1000

// Want says how a source must have ended. The numbers are stored.
type Want int16

// What may be wanted of a source.
const (
	WantSucceeded Want = 1 // a dead source holds its dependents, as it may be retried
	WantEnded     Want = 2 // in whatever way; deleted too
	WantFailed    Want = 3 // dead, cancelled or deleted
	WantAlive     Want = 4 // as WantSucceeded, but a dead source cancels its dependents
)

var wantNames = map[Want]string{ //nolint:gochecknoglobals // a constant table
	WantSucceeded: "succeeded", WantEnded: "ended", WantFailed: "failed", WantAlive: "succeeded_not_dead",
}

// String returns the word of what is wanted.
func (w Want) String() string {
	if name, ok := wantNames[w]; ok {
		return name
	}
	return fmt.Sprintf("want(%d)", int16(w))
}

// MarshalText writes the word of what is wanted.
func (w Want) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads the word of what is wanted.
func (w *Want) UnmarshalText(text []byte) error {
	for want, name := range wantNames {
		if name == string(text) {
			*w = want
			return nil
		}
	}
	return fmt.Errorf("%q is not what can be wanted of a run: want succeeded, ended, failed or succeeded_not_dead", text)
}

// Condition is what must have become of other runs and batches, its sources, before a run is due. A
// run with conditions is a dependent: pending, and due when all of them are met. What was met stays
// met, and a dependent that was released stays released. One of which a condition can never be met
// is cancelled, with the reason.
//
//	the source is                   Succeeded           Ended    Failed                       Alive
//	succeeded                       met                 met      never                        met
//	dead                            not yet: it holds   met      met                          never
//	cancelled, deleted              never               met      met                          never
//	a batch whose members run       not yet             not yet  met by the first that fails  not yet
//	a batch that ended with dead    not yet: it holds   met      met                          never
//	one with cancelled, cancelled   never               met      met                          never
type Condition struct {
	Want    Want
	Runs    []RunID    // all of them; of WantFailed: any of them
	Batches []NewBatch // likewise
}

// Sources is how many sources the condition has.
func (c *Condition) Sources() int { return len(c.Runs) + len(c.Batches) }

// CancelOnDead has a dead source cancel the dependent, where it would hold it until the source is
// retried. It is for a condition that wants success; store.CheckRuns refuses it of others.
func (c Condition) CancelOnDead() Condition {
	if c.Want != WantSucceeded && c.Want != WantAlive {
		c.Want = wantMisfit
		return c
	}
	c.Want = WantAlive
	return c
}

// wantMisfit is CancelOnDead of a condition that a dead source does not hold.
const wantMisfit Want = -1

// RunOutcome is how a run has ended, if it has.
type RunOutcome struct {
	ID     RunID
	Found  bool // it exists
	Job    string
	State  State
	Result []byte // JSON; nil: none
	Reason string // of a dead or cancelled run
	// FinishedAt is when it ended, on the store's clock; zero: it has not.
	FinishedAt time.Time
}

// Link is one end that a run waits for, or that another run waits for of it.
type Link struct {
	Run   RunID // the other one
	Job   string
	State State
	Found bool // the other one exists
	Batch bool // it is a batch; State is succeeded, dead, cancelled or running, as the batch is
	Want  Want
	AnyOf int    // not zero: one of those with the same number is enough
	Met   bool   // of a dependent
	Name  string // of the step of a handler that waits for its child; empty: of a dependent
}

// RunLinks are the links of a run, unmet ones first, at most MaxLinks in each direction. The parent
// is the first of those that wait.
type RunLinks struct {
	WaitsFor  []Link
	WaitedFor []Link // by these
	// Sources and Waiters count all of them, up to MaxLinksCounted.
	Sources, Waiters Count
	Batch            *BatchID // of which the run is a member; nil: it is in none
}

// Bounds of the links that are read at a time in one direction, and of those that are counted.
const (
	MaxLinks        = 200
	MaxLinksCounted = 10_000
)

// Hold is a dead run that holds its dependents.
type Hold struct {
	Run        RunID
	Job        string
	DeadSince  time.Time
	Dependents Count // that want its success
}

// Bounds of an answer of Holds.
const (
	MaxHolds         = 200  // dead runs in it
	MaxHoldsExamined = 5000 // dead runs that are looked at
	MaxHeldCounted   = 1000 // dependents of one that are counted
)

// What runs.links says of a run, in bits. The numbers are stored.
const (
	LinkAwaited = 1 // its end is noted: others wait for it
	LinkParent  = 2 // it has children, which are cancelled with it
	LinkMember  = 4 // it belongs to a batch, which counts its ends
)

// Linker reads what runs have to do with each other.
type Linker interface {
	// Outcomes returns how runs have ended, in the order of the ids, of which some may be the same;
	// at most MaxSources.
	Outcomes(ctx context.Context, ids []RunID) ([]RunOutcome, error)
	// Links returns what a run waits for, and who waits for it.
	Links(ctx context.Context, id RunID) (RunLinks, error)
	// Waiters returns the runs that wait for a run and have not had what they wait for, in the
	// order of their ids, from those after a cursor on; at most MaxSources.
	Waiters(ctx context.Context, id, after RunID) ([]RunID, error)
	// Holds returns the dead runs that hold dependents which want their success, and that no
	// operator has acknowledged: of the MaxHoldsExamined that died last, at most MaxHolds, the
	// newest first.
	Holds(ctx context.Context) ([]Hold, error)
}

// waitFaults returns what is wrong with what a run waits for.
func (r *NewRun) waitFaults() (faults []error) {
	if r.Batch != nil {
		if err := r.Batch.check(); err != nil {
			faults = append(faults, err)
		}
	}
	if len(r.DependsOn) == 0 {
		return faults
	}
	sources := 0
	for i := range r.DependsOn {
		c := &r.DependsOn[i]
		sources += c.Sources()
		for k := range c.Batches {
			if err := c.Batches[k].check(); err != nil {
				faults = append(faults, err)
			}
		}
		switch {
		case c.Want == wantMisfit:
			faults = append(faults, errors.New("CancelOnDead is for OnSuccess: a dead run holds no dependent of its end or its failure"))
		case c.Want < WantSucceeded || c.Want > WantAlive:
			faults = append(faults, fmt.Errorf("condition %s is unknown", c.Want))
		case c.Sources() == 0:
			faults = append(faults, fmt.Errorf("condition %s names no run", c.Want))
		case slices.Contains(c.Runs, uuid.Nil):
			faults = append(faults, fmt.Errorf("condition %s names a run without an id", c.Want))
		case slices.Contains(c.Runs, r.ID):
			faults = append(faults, fmt.Errorf("run %s depends on itself", r.ID))
		}
	}
	if sources > MaxSources {
		faults = append(faults, fmt.Errorf("depends on %d runs and batches: want at most %d; let a run in between depend on some of them", sources, MaxSources))
	}
	if r.After != 0 || !r.At.IsZero() {
		faults = append(faults, errors.New("a run that depends on others is due when they have ended: it has neither At nor After"))
	}
	if r.Key.Policy != KeyUnique {
		faults = append(faults, errors.New("a run that depends on others replaces none, and is not debounced"))
	}
	return faults
}

// checkCycles refuses runs of one call that wait for each other, and names them.
func checkCycles(runs []NewRun) error {
	index := map[RunID]int{}
	for i := range runs {
		if len(runs[i].DependsOn) > 0 {
			index[runs[i].ID] = i
		}
	}
	const (
		entered = 1
		left    = 2
	)
	mark := map[RunID]int{}
	var path []RunID
	var visit func(id RunID) error
	visit = func(id RunID) error {
		i, dependent := index[id]
		switch {
		case !dependent || mark[id] == left:
			return nil
		case mark[id] == entered:
			cycle := append(path[slices.Index(path, id):], id)
			return fmt.Errorf("runs depend on each other: %v", cycle)
		}
		mark[id], path = entered, append(path, id)
		for _, c := range runs[i].DependsOn {
			for _, source := range c.Runs {
				if err := visit(source); err != nil {
					return err
				}
			}
		}
		mark[id], path = left, path[:len(path)-1]
		return nil
	}
	for i := range runs {
		if err := visit(runs[i].ID); err != nil {
			return err
		}
	}
	return nil
}
