package durable

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/store"
)

// CatchUp says what happens to missed occurrences: those that no worker could materialize
// within a minute of their instant. Those older than within are skipped (zero: no bound). If
// more than most are left, only the latest become runs (zero: store.MaxCatchUp). Default
// CatchUpSkip; CatchUpLatest for Once.
func CatchUp(missed store.CatchUpPolicy, within time.Duration, most int) Option {
	return Option{"CatchUp", onlySchedule, func(p *policy) {
		p.plan.CatchUp, p.plan.CatchUpWithin, p.plan.CatchUpMost = missed, store.Duration(within), most
	}}
}

// Overlap says what happens to an occurrence while an earlier run of the schedule has not
// ended, wherever that run is executed. Default OverlapSkip; OverlapWait with CatchUpAll.
func Overlap(overlap store.OverlapPolicy) Option {
	return Option{"Overlap", onlySchedule, func(p *policy) { p.plan.Overlap = overlap }}
}

// MaxUnfinished lets up to n runs of the schedule be unfinished at the same time
// over all hosts, 1 to store.MaxUnfinishedRuns, before Overlap decides about an
// occurrence. Default 1. A run that waits for a retry counts, so never more than
// n of the runs that occurrences have created execute concurrently; runs that
// operators trigger or retry come on top. Not with OverlapAllow.
func MaxUnfinished(n int) Option {
	return Option{"MaxUnfinished", onlySchedule, func(p *policy) {
		if p.plan.MaxUnfinished = n; n == 0 {
			p.plan.MaxUnfinished = -1 // refused: zero would never fire
		}
	}}
}

// StartAt is the first instant at which a schedule may fire.
func StartAt(t time.Time) Option {
	return Option{"StartAt", onlySchedule, func(p *policy) { p.plan.Start = t.UTC() }}
}

// EndAt is the instant from which a schedule no longer fires.
func EndAt(t time.Time) Option {
	return Option{"EndAt", onlySchedule, func(p *policy) { p.plan.End = t.UTC() }}
}

// Blackout keeps a schedule from firing within any of the windows. An instant
// within one is no occurrence: nothing is caught up for it.
func Blackout(windows ...Window) Option {
	windows = append([]Window(nil), windows...)
	return Option{"Blackout", onlySchedule, func(p *policy) { p.plan.Blackouts = windows }}
}

// Jitter delays each run by up to d after its occurrence. The delay differs
// between occurrences, and is derived from the schedule's name and the
// occurrence.
func Jitter(d time.Duration) Option {
	return Option{"Jitter", onlySchedule, func(p *policy) { p.plan.Jitter = store.Duration(d) }}
}

// SpreadStart moves all occurrences of a schedule by one delay, shorter than within, which
// follows from the schedule's name: schedules that would all fire at the same instant are
// spread, and every worker knows the same delay.
func SpreadStart(within time.Duration) Option {
	return Option{"SpreadStart", onlySchedule, func(p *policy) { p.plan.Spread = store.Duration(within) }}
}

// Paused stores a schedule paused when it is first declared. From then on, operators resume
// and pause it.
func Paused() Option {
	return Option{"Paused", onlySchedule, func(p *policy) { p.paused = true }}
}

// Schedule creates a schedule of this job, or replaces the one of its name: for schedules that
// follow from data, such as one for each customer, where AddSchedule is for those that the code
// knows. The Scheduler is a Client, a Store or a Tx: in a transaction, the schedule is there
// exactly when the transaction commits. The options are those of AddSchedule; Paused counts
// only when the schedule is created. The schedule stays until it is deleted:
//
//	err := tx.ChangeSchedule(ctx, name, store.DeleteSchedule, "billing")
//
// ErrInvalid says what is wrong. ErrConflict says that workers declare a schedule of the
// name.
func (j Job[A]) Schedule(ctx context.Context, to Scheduler, name string, args A, rule Rule, options ...Option) error {
	run, p := j.make(onlySchedule, args, options)
	s, err := scheduleOf(name, rule, run, p)
	if err != nil {
		return fmt.Errorf("%w: schedule %q: %w", ErrInvalid, storable.Clip(name, 150), err)
	}
	return to.PutSchedule(ctx, s)
}
