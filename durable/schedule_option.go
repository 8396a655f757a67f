package durable

import (
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// CatchUp says what becomes of missed occurrences: those that no worker could
// materialize within a minute of their instant. Those older than within are
// skipped (zero: no bound), and of more than most only the latest become runs
// (zero: MaxCatchUp). Default CatchUpSkip.
func CatchUp(missed store.CatchUpPolicy, within time.Duration, most int) Option {
	return Option{"CatchUp", onlySchedule, func(p *policy) {
		p.plan.CatchUp, p.plan.CatchUpWithin, p.plan.CatchUpMost = missed, store.Duration(within), most
	}}
}

// Overlap says what becomes of an occurrence while an earlier run of the
// schedule has not ended, wherever it is executed. Default OverlapSkip.
func Overlap(overlap store.OverlapPolicy) Option {
	return Option{"Overlap", onlySchedule, func(p *policy) { p.plan.Overlap = overlap }}
}

// MaxUnfinished lets up to n runs of the schedule be unfinished at once over all hosts,
// 1 to MaxUnfinishedRuns, before Overlap says what becomes of an occurrence. Default 1.
// A run that waits to be tried again counts, so of the runs that occurrences have
// made never more than n are executed at once; those that operators ask for all
// the same, or retry, come on top. Not with OverlapAllow.
func MaxUnfinished(n int) Option {
	return Option{"MaxUnfinished", onlySchedule, func(p *policy) {
		if p.plan.MaxUnfinished = n; n == 0 {
			p.plan.MaxUnfinished = -1 // refused: zero at once would never fire
		}
	}}
}

// StartAt is the first instant at which a schedule may fire.
func StartAt(t time.Time) Option {
	return Option{"StartAt", onlySchedule, func(p *policy) { p.plan.Start = t.UTC() }}
}

// EndAt is the instant from which on a schedule does not fire any more.
func EndAt(t time.Time) Option {
	return Option{"EndAt", onlySchedule, func(p *policy) { p.plan.End = t.UTC() }}
}

// Blackout keeps a schedule from firing within any of the windows. An instant
// within one is no occurrence: nothing is caught up for it.
func Blackout(windows ...Window) Option {
	windows = append([]Window(nil), windows...)
	return Option{"Blackout", onlySchedule, func(p *policy) { p.plan.Blackouts = windows }}
}

// Jitter makes each run due up to d after its occurrence, each by another
// delay, which follows from the schedule's name and the occurrence.
func Jitter(d time.Duration) Option {
	return Option{"Jitter", onlySchedule, func(p *policy) { p.plan.Jitter = store.Duration(d) }}
}

// SpreadStart moves all occurrences of a schedule by one delay below within,
// which follows from the schedule's name: schedules that would all fire at
// once are spread, and every worker knows the same delay.
func SpreadStart(within time.Duration) Option {
	return Option{"SpreadStart", onlySchedule, func(p *policy) { p.plan.Spread = store.Duration(within) }}
}

// Paused stores a schedule paused when it is first declared. From then on it is
// an operator who resumes and pauses it.
func Paused() Option {
	return Option{"Paused", onlySchedule, func(p *policy) { p.paused = true }}
}
