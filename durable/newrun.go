package durable

import (
	"bytes"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
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

// NewRun is a request to perform a job once, ready to be stored. Make it with
// Job.New, or by hand where the job's code is not at hand; Enqueue checks it.
type NewRun struct {
	ID          RunID
	Job         string
	Queue       string
	Priority    int
	Args        []byte // JSON; to be replaced, not changed in place, once Job.New has made them
	MaxAttempts int
	Timeout     time.Duration
	OnCrash     CrashPolicy
	Tags        []string
	At          time.Time     // due at; the zero time: when stored
	After       time.Duration // due so long after it is stored; not with At
	ExpiresAt   time.Time     // the zero time: never
	Trace       string        // of whoever enqueues, such as a W3C traceparent; up to MaxTraceSize bytes of printable ASCII
	Key         Key           // the zero value: none

	written []byte // Args as encoding/json wrote them: they are JSON while Args are these
	fault   error  // found while it was made; reported by Enqueue
}

func newRun(job string, p policy, args []byte) NewRun {
	return NewRun{
		ID: NewRunID(), Job: job, Queue: p.queue, Priority: p.priority, Args: args,
		MaxAttempts: p.maxAttempts, Timeout: p.timeout, OnCrash: p.onCrash, Tags: p.tags,
		At: p.at, After: p.after, ExpiresAt: p.expiresAt, Key: p.key,
	}
}

// NewRun makes a run of a declared job from JSON args, for those who enqueue
// without the job's code.
func (j JobInfo) NewRun(args []byte, options ...Option) NewRun {
	p, faults := j.policy().with(onlyRun, options)
	run := newRun(j.Name, p, args)
	run.fault = errors.Join(faults...)
	return run
}

// policy is the job's policy as it was declared.
func (j JobInfo) policy() policy {
	p := defaultPolicy()
	p.queue, p.priority, p.maxAttempts = j.Queue, j.Priority, j.MaxAttempts
	p.timeout, p.onCrash = time.Duration(j.Timeout), j.OnCrash
	return p
}

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
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalid, errors.Join(faults...))
}

func (r *NewRun) check() error {
	if r.fault != nil {
		return r.fault
	}
	if err := checkID(r.ID); err != nil {
		return err
	}
	if err := checkName("job", r.Job); err != nil {
		return err
	}
	p := policy{queue: r.Queue, priority: r.Priority, maxAttempts: r.MaxAttempts, timeout: r.Timeout,
		onCrash: r.OnCrash, tags: r.Tags, at: r.At, after: r.After, expiresAt: r.ExpiresAt}
	if faults := checkPolicy(p); len(faults) > 0 {
		return errors.Join(faults...)
	}
	if err := r.Key.check(r.At, r.After); err != nil {
		return err
	}
	known := len(r.Args) > 0 && len(r.Args) == len(r.written) && &r.Args[0] == &r.written[0]
	if err := checkJSON(r.Args, known); err != nil {
		return fmt.Errorf("args%w", err)
	}
	return checkTrace(r.Trace)
}

// checkName tells what is wrong with a name that becomes part of the store's
// keys, of metrics and of pages.
func checkName(kind, name string) error {
	good := 0
	for good < len(name) && inName(name[good]) {
		good++
	}
	if good == len(name) && good > 0 && good <= MaxNameLength {
		return nil
	}
	return fmt.Errorf("%s name %q: want 1 to %d of letters, digits and _ . : / @ -", kind, clip(name, 150), MaxNameLength)
}

func inName(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	default:
		return c == '_' || c == '.' || c == ':' || c == '/' || c == '@' || c == '-'
	}
}

// checkPolicy asks each question by itself: it is asked of every run, and the
// words of a fault cost more than the question.
func checkPolicy(p policy) []error {
	var faults []error
	refuse := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if err := checkName("queue", p.queue); err != nil {
		faults = append(faults, err)
	}
	if p.priority < MinPriority || p.priority > MaxPriority {
		refuse("priority %d: want %d to %d", p.priority, MinPriority, MaxPriority)
	}
	if p.maxAttempts < 1 || p.maxAttempts > 10_000 {
		refuse("max attempts %d: want 1 to 10000", p.maxAttempts)
	}
	if p.timeout < 0 || p.timeout > maxDelay || p.timeout > 0 && p.timeout < time.Millisecond {
		refuse("timeout %v: want 0 for none, or 1ms to %v", p.timeout, maxDelay)
	}
	if p.onCrash != CrashRetry && p.onCrash != CrashDead {
		refuse("crash policy %d is unknown", p.onCrash)
	}
	if !validRetention(p.retention) {
		refuse("retention %v: want at least 1s, or KeepForever", p.retention)
	}
	if p.after < 0 {
		refuse("after %v: want 0 or more", p.after)
	}
	if p.after != 0 && !p.at.IsZero() {
		refuse("both at and after are given")
	}
	if p.after > maxDelay {
		refuse("after %v: want at most %v", p.after, maxDelay)
	}
	if !inYears(p.at) {
		refuse("at %v: want a year from 1970 to 9999", p.at)
	}
	if !inYears(p.expiresAt) {
		refuse("expires at %v: want a year from 1970 to 9999", p.expiresAt)
	}
	return append(faults, checkTags(p.tags)...)
}

func checkTags(tags []string) (faults []error) {
	if len(tags) > MaxTags {
		faults = append(faults, fmt.Errorf("%d tags: want at most %d", len(tags), MaxTags))
	}
	for _, tag := range tags {
		if tag == "" || len(tag) > MaxNameLength || !utf8.ValidString(tag) || hasControl(tag) {
			faults = append(faults, fmt.Errorf("tag %q: want 1 to %d bytes of text without control characters", clip(tag, 150), MaxNameLength))
		}
	}
	return faults
}

const maxDelay = 100 * 365 * 24 * time.Hour

// inYears tells whether a time is stored and shown as a year of four digits: it is
// kept as UTC, and JSON has no other.
func inYears(t time.Time) bool {
	y := t.UTC().Year()
	return t.IsZero() || y >= 1970 && y <= 9999
}

// checkTrace tells why a trace cannot be stored.
func checkTrace(trace string) error {
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
