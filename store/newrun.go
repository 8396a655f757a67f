package store

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/durable-worker/durable-worker/internal/storable"
)

// Bounds of what may be enqueued and stored.
const (
	MaxArgsSize   = 256 << 10 // bytes of a run's args, and of its result
	MaxJSONDepth  = 128       // nesting of args and results
	MaxNameLength = 128       // bytes of a job's, queue's, schedule's or worker's name
	MaxTags       = 32
	MaxErrorSize  = 8 << 10 // bytes of an error or a stack that are kept
	MinPriority   = -4
	MaxPriority   = 4
)

// What a job has that says nothing else.
const (
	DefaultQueue       = "default"
	DefaultMaxAttempts = 3 // how often a run is tried
)

// NewRun is a request to perform a job once, ready to be stored. Make it with
// Job.New, or by hand where the job's code is not at hand; Enqueue checks it.
type NewRun struct {
	ID          RunID
	Job         string
	Queue       string
	Priority    int
	Args        []byte // JSON; to be replaced, not changed in place, once Job.New has created them
	MaxAttempts int
	Timeout     time.Duration
	OnCrash     CrashPolicy
	Tags        []string
	Metadata    Metadata
	At          time.Time     // due at; the zero time: when stored
	After       time.Duration // due so long after it is stored; not with At
	ExpiresAt   time.Time     // the zero time: never
	Trace       string        // of the enqueuer, such as a W3C traceparent; up to MaxTraceSize bytes of printable ASCII
	Key         Key           // the zero value: none
	Limits      []LimitUse    // at most MaxRunLimits, each of another limit and key; none: the run is not limited
	DependsOn   []Condition   // at most MaxSources sources; none: it is due at At
	Batch       *NewBatch     // the batch that it belongs to; nil: none

	written []byte // Args as encoding/json wrote them: they are JSON while Args are these
	fault   error  // found while it was created; reported by Enqueue
}

// Refuse records a fault that was found while the run was created. Enqueue
// reports it, and stores nothing.
func (r *NewRun) Refuse(fault error) { r.fault = errors.Join(r.fault, fault) }

// Fault returns what Refuse has recorded, or nil.
func (r *NewRun) Fault() error { return r.fault }

// SetEncodedArgs sets args that encoding/json has just written. They are not
// parsed again when the run is checked, as long as Args are these very bytes.
func (r *NewRun) SetEncodedArgs(args []byte) { r.Args, r.written = args, args }

func checkID(id RunID) error {
	if id.Version() != 7 {
		return errors.New("id is not a version 7 UUID")
	}
	return nil
}

// CheckRuns reports what is wrong with the runs, each fault with the index of
// its run, wrapped in ErrInvalid. Stores call it before they store anything.
func CheckRuns(runs []NewRun) error {
	var seen map[RunID]int // ids that rise, as those of NewRunID do, need none
	var faults []error
	for i := range runs {
		err := runs[i].check()
		if seen == nil && i > 0 && bytes.Compare(runs[i-1].ID[:], runs[i].ID[:]) >= 0 {
			seen = make(map[RunID]int, len(runs))
			for k, earlier := range runs[:i] {
				seen[earlier.ID] = k
			}
		}
		if seen != nil {
			if first, twice := seen[runs[i].ID]; twice {
				err = errors.Join(err, fmt.Errorf("has the id of run %d", first))
			}
			seen[runs[i].ID] = i
		}
		if err != nil && len(runs) > 1 {
			err = fmt.Errorf("run %d: %w", i, err)
		}
		if err != nil && len(faults) < 20 {
			faults = append(faults, err)
		}
	}
	if len(faults) == 0 && AnyLinked(runs) {
		if err := checkCycles(runs); err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalid, errors.Join(faults...))
}

// IsLinked reports whether the run waits for others, or belongs to a batch.
func (r *NewRun) IsLinked() bool { return len(r.DependsOn) > 0 || r.Batch != nil }

// AnyLinked reports whether one of the runs is linked.
func AnyLinked(runs []NewRun) bool {
	for i := range runs {
		if runs[i].IsLinked() {
			return true
		}
	}
	return false
}

func (r *NewRun) check() error {
	if r.fault != nil {
		return r.fault
	}
	if err := checkID(r.ID); err != nil {
		return err
	}
	if err := CheckName("job", r.Job); err != nil {
		return err
	}
	if faults := r.PolicyFaults(); len(faults) > 0 {
		return errors.Join(faults...)
	}
	if err := r.Key.check(r.At, r.After); err != nil {
		return err
	}
	if len(r.Limits) > 0 {
		if err := CheckLimitUses(r.Limits); err != nil {
			return err
		}
	}
	if r.IsLinked() {
		if faults := r.waitFaults(); len(faults) > 0 {
			return errors.Join(faults...)
		}
	}
	known := len(r.Args) > 0 && len(r.Args) == len(r.written) && &r.Args[0] == &r.written[0]
	check := storable.CheckJSON
	if known {
		check = storable.CheckWritten
	}
	if err := check(r.Args, MaxArgsSize, MaxJSONDepth); err != nil {
		return fmt.Errorf("args%w", err)
	}
	return CheckTrace(r.Trace)
}

// CheckJSON reports what keeps a JSON text from being stored on every engine and
// read back as it was: its size, its nesting, its strings. The error begins with
// the path of the value.
func CheckJSON(text []byte) error { return storable.CheckJSON(text, MaxArgsSize, MaxJSONDepth) }

// CheckName reports what is wrong with a name that becomes part of the store's
// keys, of metrics and of pages.
func CheckName(kind, name string) error {
	good := 0
	for good < len(name) && inName(name[good]) {
		good++
	}
	if good == len(name) && good > 0 && good <= MaxNameLength {
		return nil
	}
	return fmt.Errorf("%s name %q: want 1 to %d of letters, digits and _ . : / @ -", kind, storable.Clip(name, 150), MaxNameLength)
}

func inName(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	default:
		return c == '_' || c == '.' || c == ':' || c == '/' || c == '@' || c == '-'
	}
}

// PolicyFaults returns what is wrong with the policy of the run: everything but
// its id, job, args, key and trace. The checks are separate statements because
// they run for every run, and formatting a fault costs more than a check.
func (r *NewRun) PolicyFaults() []error {
	var faults []error
	refuse := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if err := CheckName("queue", r.Queue); err != nil {
		faults = append(faults, err)
	}
	if r.Priority < MinPriority || r.Priority > MaxPriority {
		refuse("priority %d: want %d to %d", r.Priority, MinPriority, MaxPriority)
	}
	if r.MaxAttempts < 1 || r.MaxAttempts > 10_000 {
		refuse("max attempts %d: want 1 to 10000", r.MaxAttempts)
	}
	if r.Timeout < 0 || r.Timeout > MaxDelay || r.Timeout > 0 && r.Timeout < time.Millisecond {
		refuse("timeout %v: want 0 for none, or 1ms to %v", r.Timeout, MaxDelay)
	}
	if r.OnCrash != CrashRetry && r.OnCrash != CrashDead {
		refuse("crash policy %d is unknown", r.OnCrash)
	}
	if r.After < 0 {
		refuse("after %v: want 0 or more", r.After)
	}
	if r.After != 0 && !r.At.IsZero() {
		refuse("both at and after are given")
	}
	if r.After > MaxDelay {
		refuse("after %v: want at most %v", r.After, MaxDelay)
	}
	if !inYears(r.At) {
		refuse("at %v: want a year from 1970 to 9999", r.At)
	}
	if !inYears(r.ExpiresAt) {
		refuse("expires at %v: want a year from 1970 to 9999", r.ExpiresAt)
	}
	if err := r.Metadata.Check(); err != nil {
		faults = append(faults, err)
	}
	return append(faults, checkTags(r.Tags)...)
}

func checkTags(tags []string) (faults []error) {
	if len(tags) > MaxTags {
		faults = append(faults, fmt.Errorf("%d tags: want at most %d", len(tags), MaxTags))
	}
	for _, tag := range tags {
		if tag == "" || len(tag) > MaxNameLength || !utf8.ValidString(tag) || storable.HasControl(tag) {
			faults = append(faults, fmt.Errorf("tag %q: want 1 to %d bytes of text without control characters", storable.Clip(tag, 150), MaxNameLength))
		}
	}
	return faults
}

// MaxDelay bounds how far ahead a run may be due, and every other delay.
const MaxDelay = 100 * 365 * 24 * time.Hour

// inYears reports whether a time is stored and shown as a year of four digits: it is
// kept as UTC, and JSON has no other.
func inYears(t time.Time) bool {
	y := t.UTC().Year()
	return t.IsZero() || y >= 1970 && y <= 9999
}

// TraceOf is the Trace of a run from the W3C's headers: the parent, and the state after a
// semicolon, if there is room for it. A parent of another form is none.
func TraceOf(parent, state string) string {
	if !isTraceparent(parent) {
		return ""
	}
	if whole := parent + ";" + state; state != "" && CheckTrace(whole) == nil {
		return whole
	}
	return parent
}

// TraceHeaders are the W3C's headers of a Trace, empty if it has none.
func TraceHeaders(trace string) (parent, state string) {
	parent, state, _ = strings.Cut(trace, ";")
	if !isTraceparent(parent) {
		return "", ""
	}
	return parent, state
}

// isTraceparent reports whether a text has the form of version 00: 00, and the trace, the
// span and the flags in hexadecimal.
func isTraceparent(text string) bool {
	const form = "00-tttttttttttttttttttttttttttttttt-ssssssssssssssss-ff"
	if len(text) != len(form) {
		return false
	}
	for i := range len(form) {
		c := text[i]
		if fixed := form[i] == '0' || form[i] == '-'; fixed && c != form[i] || !fixed && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// CheckTrace reports why a trace cannot be stored.
func CheckTrace(trace string) error {
	switch {
	case len(trace) > MaxTraceSize:
		return fmt.Errorf("trace: %d bytes, want at most %d", len(trace), MaxTraceSize)
	case !printable(trace):
		return errors.New("trace: want printable ASCII")
	default:
		return nil
	}
}

func printable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// MaxTraceSize bounds NewRun.Trace, in bytes.
const MaxTraceSize = 512
