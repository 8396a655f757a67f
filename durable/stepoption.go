package durable

import (
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/stepping"
)

// StepOption changes how a step is executed.
type StepOption func(*stepPolicy)

// stepPolicy is what options add up to.
type stepPolicy struct {
	attempts int // zero: the run's own count
	retry    RetryPolicy
	timeout  time.Duration
	aliases  []string
}

// StepAttempts gives the step n attempts of its own. Between them the run is put back by policy,
// or by Exponential(time.Second, time.Minute) with jitter, without spending an attempt of the run.
// After the last the error itself is stored: every execution gets the same *StepError.
func StepAttempts(n int, policy ...RetryPolicy) StepOption {
	return func(p *stepPolicy) {
		p.attempts, p.retry = n, Exponential(time.Second, time.Minute).WithJitter(0.2)
		for _, given := range policy {
			p.retry = given
		}
	}
}

// StepTimeout bounds one try of the step: its ctx ends with ErrTimeout as the cause.
func StepTimeout(d time.Duration) StepOption { return func(p *stepPolicy) { p.timeout = d } }

// StepAlias gives a step its earlier names: a result that is stored under one of them counts.
func StepAlias(names ...string) StepOption {
	return func(p *stepPolicy) { p.aliases = append(p.aliases, names...) }
}

// EachStep gives all steps of the job's handlers these options; those of a Step come after them.
func EachStep(options ...StepOption) Option {
	return Option{"EachStep", onlyJob, func(p *policy) { p.steps = append(p.steps, options...) }}
}

// StepError says that a step has failed for good. It is stored with the run, so every execution
// gets the same one; it does not wrap the error that do returned. A handler that returns it makes
// the run dead, as it would only come again. A retry of the dead run forgets it, unless a later
// step was recorded.
type StepError struct {
	Name     string
	Attempts int    // that have failed
	Text     string // of the last error
	Code     string // of the last error, if it had a method Code() string
}

// Error names the step and repeats the text.
func (e *StepError) Error() string { return fmt.Sprintf("step %q: %s", e.Name, e.Text) }

// Final reports whether an error is recorded for good, so that every later execution gets it again:
// that of a step or of a child, or an input that did not come. It is false for a park. A handler compensates
// where it is true, and nowhere else.
func Final(err error) bool {
	if stepping.ParkedAt(err) != nil {
		return false
	}
	_, failed := errors.AsType[*StepError](err)
	_, failedChild := errors.AsType[*CallError](err)
	return failed || failedChild || errors.Is(err, ErrNoInput)
}

// unstorableError is not an error of do: no try of the step has failed.
type unstorableError struct{ error }

// Unwrap returns what is wrong.
func (e *unstorableError) Unwrap() error { return e.error }

// codeOf is the code of an error, if it has one.
func codeOf(err error) (code string) {
	defer func() {
		if recover() != nil { // a method of the user's own error
			code = ""
		}
	}()
	var coded interface{ Code() string }
	if errors.As(err, &coded) {
		return coded.Code()
	}
	return ""
}
