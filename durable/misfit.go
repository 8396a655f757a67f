package durable

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// DefaultArgsWithin is how long a run is retried whose args do not fit the program, unless the
// job says otherwise: longer than a rolling deploy takes.
const DefaultArgsWithin = 15 * time.Minute

// RetryArgsFor sets how long a run is retried whose args do not fit the job's type, or cannot be
// decoded by the job's codec, counted from the first time. Default DefaultArgsWithin. During a
// deploy, another version of the program may execute such a run, so it goes back to all workers,
// due after a pause that grows from one second to half a minute (with a time of more than 15
// minutes, to a thirtieth of it). These executions are recorded as store.Misfit and spend no
// attempt. A run keeps the places of limits that it holds until it has ended
// (store.UntilFinished), so that no younger run of its key overtakes it.
//
// After that time the run is dead, with the field and the type as the reason; if the codec cannot
// decode the args, each further try is a failed attempt.
func RetryArgsFor(d time.Duration) Option {
	return Option{"RetryArgsFor", onlyJob, func(p *policy) { p.argsWithin = &d }}
}

// DeadOnMisfit makes a run dead immediately whose args do not fit the job's type, and a failed
// attempt of one whose args the codec cannot decode: RetryArgsFor(0). Give it to a job whose runs
// are worth nothing later, or whose args only ever come from this version of the program.
func DeadOnMisfit() Option {
	return Option{"DeadOnMisfit", onlyJob, func(p *policy) { p.argsWithin = new(time.Duration) }}
}

// RetryArgs makes each execution a failed attempt whose args still do not fit after the time of
// RetryArgsFor, retried like any other, where the run would be dead otherwise.
func RetryArgs() Option {
	return Option{"RetryArgs", onlyJob, func(p *policy) { p.retryArgs = true }}
}

// misfits is what a job does about args that do not fit.
type misfits struct {
	within   time.Duration // in which they are retried without spending attempts
	attempts bool          // and after that as failed attempts
}

func (p *policy) misfits() misfits {
	m := misfits{within: DefaultArgsWithin, attempts: p.retryArgs}
	if p.argsWithin != nil {
		m.within = *p.argsWithin
	}
	return m
}

// fault is what is wrong with the time in which args are retried.
func (m misfits) fault() error {
	if m.within < 0 || m.within > store.MaxDelay {
		return fmt.Errorf("args retried for %v: want 0 to %v", m.within, store.MaxDelay)
	}
	return nil
}

const (
	misfitPauseLeast = time.Second
	misfitPauseMost  = 30 * time.Second
	// misfitTries bounds how often args are tried within a long time.
	misfitTries = 30
	// argsFailed begins each error that says that args could not be read.
	argsFailed = "decode " + string(ArgsPart) + ": "
)

// misfit ends an execution whose args could not be read, which err says: another program is to
// take the run, as long as there may be one. after is the outcome when that time is over.
func (x *execution) misfit(ctx context.Context, m misfits, err error, after func(error) error) error {
	if m.within == 0 {
		return after(err)
	}
	since := x.misfitSince(ctx)
	left := m.within - since
	if left <= 0 {
		return after(fmt.Errorf("%w (retried for %v)", err, m.within))
	}
	most := max(misfitPauseMost, m.within/misfitTries)
	pause := min(max(since/4, misfitPauseLeast), most)
	return &endingError{kind: store.Misfit, after: min(x.w.spread(pause), left), err: err}
}

// misfitSince is how long before this execution the args did not fit for the first time, on the
// store's clock. If that cannot be read, it is zero.
func (x *execution) misfitSince(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, x.w.callTimeout())
	defer cancel()
	record, err := x.w.store.Run(ctx, x.run.ID)
	if err != nil || record.StartedAt == nil {
		return 0
	}
	first := *record.StartedAt
	for i := len(record.Attempts) - 1; i >= 0 && unread(&record.Attempts[i]); i-- {
		if a := &record.Attempts[i]; a.Outcome == store.Misfit {
			first = a.StartedAt
		}
	}
	return max(record.StartedAt.Sub(first), 0)
}

// unread reports whether an execution ended before its args were read.
func unread(a *store.Attempt) bool {
	switch a.Outcome {
	case store.Misfit, store.Crash:
		return true
	case store.Failure:
		return a.Error != nil && strings.HasPrefix(*a.Error, argsFailed)
	default:
		return false
	}
}
