package durable

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Limit is a named rule that bounds how many runs execute concurrently, or how many start
// within a time, over all workers. It applies to each key separately, and jobs on any queues
// may share it:
//
//	var Tenant = durable.NewLimit("tenant", durable.Semaphore(10))
//	var Sync = durable.NewJob[SyncArgs]("sync",
//		durable.Limited(Tenant, durable.KeyFrom(func(a SyncArgs) string { return a.Tenant })))
//
// Workers that register a job with the limit declare it: it is then kept in the store, where
// an operator may change it. The zero value is not usable; call NewLimit.
type Limit struct{ limit store.Limit }

// NewLimit names a limit, in up to 100 bytes; names ignore case. Errors in the limit are
// reported for the jobs that use it. Only the option WhenFull has an effect here: it
// applies to all runs that have none of their own.
func NewLimit(name string, rule LimitRule, options ...LimitOption) Limit {
	l := rule.limit
	l.Name = name
	var use limitUse
	for _, option := range options {
		option(&use)
	}
	l.WhenFull, l.RetryAfter = use.WhenFull, use.RetryAfter
	return Limit{l}
}

// Spec returns the limit as workers declare it, without an operator's changes.
func (l Limit) Spec() store.Limit { return l.limit }

// LimitRule says what a Limit bounds: Mutex and Semaphore bound the runs that execute
// concurrently, the others how many start within a time.
type LimitRule struct{ limit store.Limit }

// Mutex lets one run of each key execute at a time.
func Mutex() LimitRule { return Semaphore(1) }

// Semaphore lets up to n runs of each key execute concurrently, 1 to 1,000,000. A
// worker that dies gives its places back when its lease has expired and its runs are
// reclaimed; until then they may still execute, so they count.
func Semaphore(n int) LimitRule {
	return LimitRule{store.Limit{Kind: store.LimitSemaphore, Max: n}}
}

// FixedWindow lets n runs start in each period. Periods are counted from 1970: an hour begins
// on the hour. Around the edge of two periods, up to 2n may start within the length of one.
func FixedWindow(n int, period time.Duration) LimitRule {
	return LimitRule{store.Limit{Kind: store.LimitFixedWindow, Max: n, Period: period}}
}

// SlidingWindow lets n runs start in any time as long as the period. Up to 64 are counted
// exactly; more are counted in buckets, each in full as long as it overlaps the window, so
// that slightly fewer may start: n/(1+1/buckets) in the long run.
func SlidingWindow(n int, period time.Duration, buckets int) LimitRule {
	return LimitRule{store.Limit{Kind: store.LimitSlidingWindow, Max: n, Period: period, Buckets: buckets}}
}

// TokenBucket lets n runs start in each period, evenly spread, and up to burst of them
// together after a pause.
func TokenBucket(n int, period time.Duration, burst int) LimitRule {
	return LimitRule{store.Limit{Kind: store.LimitTokenBucket, Max: n, Period: period, Burst: burst}}
}

// DynamicWindow is a SlidingWindow of n over all keys together, shared out evenly
// between the keys that have used it within the last period: each gets at least least
// and at most most. Up to 1,000 keys share it; another one waits.
func DynamicWindow(n int, period time.Duration, buckets, least, most int) LimitRule {
	return LimitRule{store.Limit{Kind: store.LimitDynamicWindow, Max: n, Period: period, Buckets: buckets, Least: least, Most: most}}
}

// LimitOption says how a run uses a limit: KeyFrom, KeyOf, Weight, Until, WhenFull,
// AcquireFor and ReleaseFor.
type LimitOption func(*limitUse)

// Limited puts runs under a limit: a run executes only when its limits admit it. Until then
// it waits in line, in the order of priority and due time; it takes up no slot of a worker
// and spends no attempt. A run may have up to eight limits, and gets all of them or none.
// Passed to NewJob it applies to all runs of the job, passed to AddSchedule to the
// schedule's.
func Limited(limit Limit, options ...LimitOption) Option {
	return limited("Limited", anywhere, limit, "", options)
}

// FairBy has runs take turns by a key, KeyOf or KeyFrom, without a limit on each key: below
// the job's MaxConcurrent, the cap of its queue, other limits that it shares, and the
// capacity of the workers, one run of each key starts before a second of any. It is a limit
// named "fair" that is never full, so all jobs with the same key of it have one share. A job
// that has a limit with a key already takes turns by that.
func FairBy(key LimitOption) Option {
	return limited("FairBy", anywhere, NewLimit("fair", Semaphore(store.MaxLimit)), "", []LimitOption{key})
}

// LimitedBy is Limited for one run, with its key. It replaces the key of a limit that
// the run has from its job, or adds a limit.
func LimitedBy(limit Limit, key string, options ...LimitOption) Option {
	return limited("LimitedBy", onlyRun, limit, key, append(slices.Clone(options), func(u *limitUse) { u.fixed = true }))
}

// LimitedByUse is LimitedBy for callers that know only the name of a limit.
func LimitedByUse(use store.LimitUse) Option {
	return Option{"LimitedByUse", onlyRun, func(p *policy) {
		p.limits = p.limits.with(limitUse{LimitUse: use, fixed: true})
	}}
}

// MaxConcurrent bounds how many runs of the job execute concurrently over all workers,
// 1 to 1,000,000. To bound a part of them, by tenant for instance, use Limited with a
// key; to bound them on each worker, give their queue a cap.
func MaxConcurrent(n int) Option {
	return Option{"MaxConcurrent", onlyJob, func(p *policy) { p.maxConcurrent = &n }}
}

func limited(name string, place scope, limit Limit, key string, options []LimitOption) Option {
	use := limitUse{of: limit.limit, LimitUse: store.LimitUse{Limit: limit.limit.Name, Key: key}}
	for _, option := range options {
		option(&use)
	}
	return Option{name, place, func(p *policy) { p.limits = p.limits.with(use) }}
}

// KeyFrom computes the key of a limit from a run's args, which have the type of the job's
// args. Keys ignore case and have up to 255 bytes; with an empty key the run is refused. A
// process that enqueues without the job's code, such as the command line, has to give the
// key, unless the job uses KeyOf.
func KeyFrom[A any](key func(args A) string) LimitOption {
	return func(u *limitUse) {
		u.key, u.keyOf, u.computed = func(args any) string { return key(args.(A)) }, reflect.TypeFor[A](), true
	}
}

// KeyOf computes the key of a limit from fields of a run's args as JSON, such as
// "{tenant}:{address.country}". If a field is missing or empty, the run is refused, unless
// the template says {tenant?}.
func KeyOf(template string) LimitOption {
	return func(u *limitUse) { u.template = template }
}

// Weight is how many places, or starts, the run takes. Default 1. A run heavier than
// the limit is refused when you enqueue it; where the limit is lowered after that, the
// run counts as the whole limit.
func Weight(n int) LimitOption { return func(u *limitUse) { u.Weight = n } }

// Until says how long a run keeps its places of a Mutex or Semaphore: until its execution has
// ended, however it ended (store.UntilSettled, the default), so that a retry waits for a
// place again, or through its retries until it is succeeded, dead or cancelled
// (store.UntilFinished).
func Until(until store.LimitUntil) LimitOption { return func(u *limitUse) { u.Until = until } }

// WhenFull says what happens to a due run for which there is no room: it waits in line
// (store.FullWait, the default), is due again after a time (store.FullRetry, then give
// retryAfter), is cancelled (store.FullDrop), is dead (store.FullFail), or waits while the
// run that has been executing longest is cancelled (store.FullCancelOldest). For actions
// other than store.FullRetry, pass zero for retryAfter.
func WhenFull(action store.LimitAction, retryAfter time.Duration) LimitOption {
	return func(u *limitUse) { u.WhenFull, u.RetryAfter = action, retryAfter }
}

// AcquireFor makes the run take its places for a named owner, such as a batch: they stay
// taken after the run has ended, until a run with ReleaseFor of the same owner succeeds or
// the time has passed. If the owner already has some, the run needs no others, whatever its
// weight, and the owner keeps those until the later of the two times.
func AcquireFor(owner string, d time.Duration) LimitOption {
	return func(u *limitUse) {
		u.Mode, u.Owner, u.OwnedFor, u.Until = store.LimitAcquire, owner, d, store.UntilExpires
	}
}

// ReleaseFor makes the success of the run give back the places of a named owner. The
// run itself is not limited.
func ReleaseFor(owner string) LimitOption {
	return func(u *limitUse) { u.Mode, u.Owner = store.LimitRelease, owner }
}

// Penalize slows down the run's key of a limit: for the given time none of its runs starts,
// on any worker, and neither does code outside of runs. Runs that are executing continue.
// Call it when the service that the limit protects asks for a pause, and return RetryAfter or
// Snooze to be executed again after it:
//
//	case http.StatusTooManyRequests:
//		pause := retryAfter(response)
//		_ = run.Penalize(ctx, GitHub, pause)
//		return durable.RetryAfter(pause, errBusy)
//
// Of two penalties, the one that ends later counts; a time of less than a millisecond has no
// effect. ErrInvalid says that the run does not have this limit; package limit has a Limiter
// for other keys.
func (r *Run[A]) Penalize(ctx context.Context, limit Limit, d time.Duration) error {
	return r.execution.penalize(ctx, r.ID, limit.limit.Name, d)
}

func (x *execution) penalize(ctx context.Context, id RunID, limit string, d time.Duration) error {
	if err := x.over(); err != nil || d < time.Millisecond {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, x.w.callTimeout())
	defer cancel()
	record, err := x.w.store.Run(ctx, id)
	if err != nil {
		return fmt.Errorf("penalize limit %q: %w", limit, err)
	}
	uses, err := store.ParseLimitTexts(record.Limits)
	known := false
	for i := range uses {
		if store.LimitName(uses[i].Limit) != store.LimitName(limit) {
			continue
		}
		known = true
		_, fault := x.w.store.UseLimit(ctx, store.LimitRequest{Usage: store.UsagePenalize, Limit: limit, Key: uses[i].Key, For: d})
		err = errors.Join(err, fault)
	}
	if !known && err == nil {
		err = fmt.Errorf("%w: it does not limit this run", ErrInvalid)
	}
	if err != nil {
		return fmt.Errorf("penalize limit %q: %w", limit, err)
	}
	return nil
}
