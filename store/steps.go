package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/storable"
)

// Bounds of what one run may record.
const (
	MaxSteps     = 2000      // steps of a run, waits included
	MaxStepName  = 128       // bytes of the name of a step, or of an input
	MaxStepSize  = 256 << 10 // bytes of the value of a step, or of an input
	MaxStepsSize = 8 << 20   // bytes of the values of all steps of a run
)

// StepKind says what is recorded of a step. The numbers are stored.
type StepKind int16

// The kinds of recorded steps.
const (
	StepTried  StepKind = 0 // it has failed, and is to be tried again
	StepDone   StepKind = 1 // its result is stored
	StepFailed StepKind = 2 // it has failed for good
	StepSleep  StepKind = 3 // the run sleeps until an instant
	StepInput  StepKind = 4 // the run waits for an input, at most until an instant
	// StepChildren: the run waits for the ends of its children under this name. Their outcomes
	// replace it.
	StepChildren StepKind = 5
)

var stepNames = map[StepKind]string{ //nolint:gochecknoglobals // a constant table
	StepTried: "tried", StepDone: "done", StepFailed: "failed", StepSleep: "sleep", StepInput: "input",
	StepChildren: "children",
}

// String returns the kind's word.
func (k StepKind) String() string {
	if name, ok := stepNames[k]; ok {
		return name
	}
	return fmt.Sprintf("step(%d)", int16(k))
}

// MarshalText writes the kind's word.
func (k StepKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the kind's word.
func (k *StepKind) UnmarshalText(text []byte) error {
	for kind, name := range stepNames {
		if name == string(text) {
			*k = kind
			return nil
		}
	}
	return fmt.Errorf("%q is not a kind of step", text)
}

// IsWait reports whether a step of this kind is a sleep, or a wait for an input or for children.
func (k StepKind) IsWait() bool { return k == StepSleep || k == StepInput || k == StepChildren }

// IsReplaced reports whether a result replaces a step of this kind.
func (k StepKind) IsReplaced() bool { return k == StepTried || k == StepChildren }

// StepRecord is one step of a run as it is stored.
type StepRecord struct {
	Name  string
	Kind  StepKind
	Tries int           // how many have failed, for StepTried and StepFailed
	At    time.Time     // when it was recorded
	Took  time.Duration // by its last execution; zero: not known
	Until time.Time     // of a wait; zero: it has no end
	Value []byte        // JSON of StepDone
	Error string        // of StepTried and StepFailed: the last error
	Code  string        // likewise, if the error had one
}

// Input is what was sent to a run under a name, or the mark that the run has given up waiting
// for it.
type Input struct {
	Name   string
	At     time.Time
	By     string // who sent it; empty: code
	Value  []byte // JSON; nil where the run has given up
	GaveUp bool   // the deadline came first; no input of this name is accepted any more
}

// RunSteps is what a run has recorded and has been sent.
type RunSteps struct {
	Now       time.Time // on the store's clock
	ExpiresAt time.Time // of the run; zero: it does not expire
	Steps     []StepRecord
	Inputs    []Input
}

// NewStep is a step to be recorded.
type NewStep struct {
	Holder
	Name  string
	Kind  StepKind // StepTried, StepDone or StepFailed
	Tries int      // how many tries have failed, absolute, so that a repeat counts once
	Took  time.Duration
	Value []byte // JSON, for StepDone; nil: none
	Error string // for StepTried and StepFailed; valid UTF-8 without NUL, bounded
	Code  string // likewise
	// Children is of how many children Value has the results: more than one may have up to
	// MaxStepsSize bytes.
	Children int
}

// NewWait is a wait to be recorded.
type NewWait struct {
	Holder
	Name string
	Kind StepKind // StepSleep, StepInput or StepChildren
	// Until is when the wait ends; the zero value: For after it is recorded. A wait for an
	// input without either has no end.
	Until time.Time
	For   time.Duration
	// Children is how many children the run waits for; it is stored as the record's Tries.
	Children int
}

// StepVerdict is the store's answer to one NewStep.
type StepVerdict int8

// The verdicts.
const (
	StepStored StepVerdict = iota + 1 // it is stored now
	StepKnown                         // another result of this name was stored before, and counts
	StepLost                          // the run is no longer the claim's: lease.ErrLost
	StepLocked                        // another transaction holds the run's row at this moment
)

// StepReader reads what runs have recorded.
type StepReader interface {
	// Steps returns for each of the runs everything that it has recorded, in the order of
	// recording, and every input that it was sent. A run that does not exist has nothing. The
	// ids differ.
	Steps(ctx context.Context, ids []RunID) ([]RunSteps, error)
}

// Stepper keeps the steps that handlers record. A step is known by its name, and stored only
// for a run that is running under the holder's claim.
type Stepper interface {
	StepReader
	// RecordSteps stores steps, of any runs, all in one transaction, and returns one verdict
	// for each, in order. A result replaces what was recorded of tries and
	// of waiting for children, and nothing else. A
	// step that is not stored stops no other. No (run, name) may come twice.
	RecordSteps(ctx context.Context, steps []NewStep) ([]StepVerdict, error)
	// BeginWait records a wait, and returns it with the input of its name, if that is there.
	// What was recorded under the name before counts, and is returned whatever it is. A wait
	// that is recorded for the first time begins a new stretch of the run's life: the crashes
	// and attempts before it do not count against what comes after. It returns lease.ErrLost
	// if the run is no longer the claim's, and ErrConflict while another transaction keeps
	// the run locked.
	BeginWait(ctx context.Context, wait NewWait) (RunSteps, error)
	// GiveUp ends the wait for an input: from then on none of this name is accepted, unless
	// one is there already, which is then returned. It fails as BeginWait does.
	GiveUp(ctx context.Context, holder Holder, name string) (Input, error)
	// ForgetSteps deletes recorded steps, and the marks of having given up, of a run that is
	// not executing, and returns how many; the run executes them again. A running run is a
	// conflict. It is written to the audit log.
	ForgetSteps(ctx context.Context, id RunID, names []string, by string) (int, error)
}

// StepsOf returns what one run has recorded and was sent.
func StepsOf(ctx context.Context, from StepReader, id RunID) (RunSteps, error) {
	found, err := from.Steps(ctx, []RunID{id})
	if err != nil {
		return RunSteps{}, err
	}
	return found[0], nil
}

// TxStepper records steps in the caller's transaction.
type TxStepper interface {
	// RecordedStep returns the step of this name as the transaction sees it, and whether
	// there is one.
	RecordedStep(ctx context.Context, id RunID, name string) (StepRecord, bool, error)
	// RecordStep stores a step within the transaction, and locks its run until that ends. It
	// returns lease.ErrLost if the run is no longer the claim's, and ErrConflict if a result
	// of this name is stored already.
	RecordStep(ctx context.Context, step NewStep) error
}

// Check refuses with ErrInvalid what some engine cannot store.
func (s *NewStep) Check() error {
	var faults []error
	if err := CheckStepName(s.Name); err != nil {
		faults = append(faults, err)
	}
	if s.Kind < StepTried || s.Kind > StepFailed {
		faults = append(faults, fmt.Errorf("kind %s: want a try, a result or a failure", s.Kind))
	}
	if s.Tries < 0 || s.Tries > MaxStepTries {
		faults = append(faults, fmt.Errorf("%d tries: want 0 to %d", s.Tries, MaxStepTries))
	}
	if s.Value != nil {
		most := MaxStepSize
		if s.Children > 1 {
			most = MaxStepsSize
		}
		if err := storable.CheckJSON(s.Value, most, MaxJSONDepth); err != nil {
			faults = append(faults, fmt.Errorf("value%w", err))
		}
	}
	for _, text := range []string{s.Error, s.Code} {
		if len(text) > MaxStepSize || !storable.IsText(text) {
			faults = append(faults, fmt.Errorf("error of %d bytes: want at most %d bytes of text without NUL", len(text), MaxStepSize))
		}
	}
	return invalid(fmt.Sprintf("step %q", storable.Clip(s.Name, 150)), faults)
}

// MaxStepTries bounds how often a step may fail.
const MaxStepTries = 10000

// Check refuses with ErrInvalid what some engine cannot store.
func (w *NewWait) Check() error {
	var faults []error
	if err := CheckStepName(w.Name); err != nil {
		faults = append(faults, err)
	}
	if !w.Kind.IsWait() {
		faults = append(faults, fmt.Errorf("kind %s: want a sleep, an input or children", w.Kind))
	}
	if w.For < 0 || w.For > MaxDelay {
		faults = append(faults, fmt.Errorf("wait of %v: want 0 to %v", w.For, MaxDelay))
	}
	if !inYears(w.Until) {
		faults = append(faults, fmt.Errorf("wait until %v: want a year from 1970 to 9999", w.Until))
	}
	return invalid(fmt.Sprintf("wait %q", storable.Clip(w.Name, 150)), faults)
}

// CheckStepName reports what is wrong with the name of a step or of an input.
func CheckStepName(name string) error {
	if name == "" || len(name) > MaxStepName || !storable.IsText(name) || storable.HasControl(name) {
		return fmt.Errorf("name %q: want 1 to %d bytes of text without control characters", storable.Clip(name, 150), MaxStepName)
	}
	return nil
}

// ForgetsSteps is the action of ForgetSteps in the audit log.
const ForgetsSteps = "forget_steps"

// ForgetDetail is what the audit log says of ForgetSteps.
func ForgetDetail(names []string) []byte {
	text, _ := json.Marshal(map[string][]string{"steps": names})
	return text
}
