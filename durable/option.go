package durable

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Option sets one part of a job's policy. Passed to NewJob it is the job's
// default; passed to New or Enqueue it applies to that run only, passed to
// AddSchedule to the schedule's runs. At, After, ExpiresAt, LimitedBy, DependsOn,
// InBatch and the keys are for a run only; Retry, RetryArgsFor, DeadOnMisfit, RetryArgs, Retention,
// MaxConcurrent, Alias, OnDead, WithCodec and Redacted for a job only; and some are for a schedule only.
type Option struct {
	name  string
	scope scope
	apply func(*policy)
}

type scope int8

const (
	anywhere scope = iota
	onlyJob
	onlyRun
	onlySchedule
)

// String names the place where an option of this scope belongs.
func (s scope) String() string {
	return [...]string{"anything", "a job", "one run", "a schedule"}[s]
}

// policy is what options add up to.
type policy struct {
	queue       string
	priority    int
	maxAttempts int
	timeout     time.Duration
	onCrash     store.CrashPolicy
	tags        []string
	metadata    store.Metadata
	retry       RetryPolicy
	retryArgs   bool           // of a job: see misfits
	argsWithin  *time.Duration // likewise; nil: DefaultArgsWithin
	retention   time.Duration
	at          time.Time
	after       time.Duration
	expiresAt   time.Time
	aliases     []string     // of a job
	codec       Codec        // of a job; nil: none
	steps       []StepOption // of a job
	redacted    []string     // of a job: paths
	onDead      *Job[Death]  // of a job; nil: the worker's
	key         store.Key
	keyedBy     []string   // the options that gave the key
	plan        store.Plan // of a schedule
	paused      bool       // of a schedule
	limits      limitUses
	dependsOn   []store.Condition // of a run
	batch       *store.NewBatch   // of a run; nil: none
	id          RunID             // of a run; the zero value: a new one

	maxConcurrent *int // of a job; nil: no cap
}

// DefaultQueue is the queue of a job that names none.
const DefaultQueue = store.DefaultQueue

func defaultPolicy() policy {
	return policy{queue: DefaultQueue, maxAttempts: store.DefaultMaxAttempts}
}

// capped is the job's policy with the cap that MaxConcurrent sets.
func (p policy) capped(job string) policy {
	if p.maxConcurrent == nil {
		return p
	}
	of := store.Limit{Name: store.JobCap(job), Kind: store.LimitSemaphore, Max: *p.maxConcurrent}
	p.limits = append(slices.Clip(p.limits), limitUse{of: of, LimitUse: store.LimitUse{Limit: of.Name}})
	return p
}

// with returns the policy changed by the options, and what was wrong with them.
func (p policy) with(place scope, options []Option) (policy, []error) {
	if len(options) == 0 && len(p.keyedBy) == 0 {
		return p, nil // most enqueues: nothing that an option could change is allocated
	}
	return p.changed(place, options)
}

func (p policy) changed(place scope, options []Option) (policy, []error) {
	var faults []error
	for _, o := range options {
		switch {
		case o.apply == nil:
			faults = append(faults, fmt.Errorf("an option is the zero value, or WithCodec was given a nil codec"))
		case o.scope != anywhere && o.scope != place:
			faults = append(faults, fmt.Errorf("%s is for %v, not for %v", o.name, o.scope, place))
		default:
			o.apply(&p)
		}
	}
	if err := p.checkKeyed(); err != nil {
		faults = append(faults, err)
	}
	return p, faults
}

// newRun makes a run of a job with this policy.
func (p policy) newRun(job string, args []byte) NewRun {
	id := p.id
	if id == (RunID{}) {
		id = NewRunID()
	}
	return NewRun{
		ID: id, Job: job, Queue: p.queue, Priority: p.priority, Args: args,
		MaxAttempts: p.maxAttempts, Timeout: p.timeout, OnCrash: p.onCrash, Tags: p.tags, Metadata: p.metadata,
		At: p.at, After: p.after, ExpiresAt: p.expiresAt, Key: p.key, DependsOn: p.dependsOn, Batch: p.batch,
	}
}

// faults returns what is wrong with the policy of a job.
func (p policy) faults() []error {
	run := p.newRun("", nil)
	faults := run.PolicyFaults()
	if !store.ValidRetention(p.retention) {
		faults = append(faults, fmt.Errorf("retention %v: want at least 1s, or KeepForever", p.retention))
	}
	if d := p.misfits().within; d < 0 || d > store.MaxDelay {
		faults = append(faults, fmt.Errorf("args retried for %v: want 0 to %v", d, store.MaxDelay))
	}
	for _, path := range p.redacted {
		if err := store.CheckRedacted(path); err != nil {
			faults = append(faults, fmt.Errorf("redacted %w", err))
		}
	}
	return faults
}

// withID gives the run an ID.
func withID(id RunID) Option { return Option{"withID", onlyRun, func(p *policy) { p.id = id }} }

// OnQueue names the queue. Default "default".
func OnQueue(name string) Option {
	return Option{"OnQueue", anywhere, func(p *policy) { p.queue = name }}
}

// Priority orders runs: store.MinPriority to store.MaxPriority, larger first,
// default 0. No order is promised between two jobs of one priority, and of
// every 16 runs a worker claims one is the oldest due of any priority.
func Priority(n int) Option {
	return Option{"Priority", anywhere, func(p *policy) { p.priority = n }}
}

// MaxAttempts is how many attempts may fail before the run is dead. At least
// 1, default 3. Crashes, drains and snoozes do not count.
func MaxAttempts(n int) Option {
	return Option{"MaxAttempts", anywhere, func(p *policy) { p.maxAttempts = n }}
}

// Timeout bounds one attempt. When it expires, the handler's context is cancelled with
// ErrTimeout and the attempt fails. The default, zero, means no timeout: a handler that
// hangs then occupies its slot forever. The least timeout is one millisecond.
func Timeout(d time.Duration) Option {
	return Option{"Timeout", anywhere, func(p *policy) { p.timeout = d }}
}

// OnCrash says what happens to a run whose worker dies while executing it.
// Default CrashRetry.
func OnCrash(onCrash store.CrashPolicy) Option {
	return Option{"OnCrash", anywhere, func(p *policy) { p.onCrash = onCrash }}
}

// Tags labels runs for people. If Tags is given more than once, the last one
// applies.
func Tags(tags ...string) Option {
	tags = append([]string(nil), tags...)
	return Option{"Tags", anywhere, func(p *policy) { p.tags = tags }}
}

// Metadata attaches names and values to a run, for handlers, middleware, hooks
// (RunInfo.Metadata), lists and people. Given more than once, also to the job and to
// the run, the maps are merged and the last value of a name counts. It is bounded by
// store.MaxMetadataSize, and stored without a codec.
func Metadata(metadata map[string]string) Option {
	metadata = maps.Clone(metadata)
	return Option{"Metadata", anywhere, func(p *policy) {
		if p.metadata == nil {
			p.metadata = metadata
			return
		}
		merged := maps.Clone(p.metadata) // shared with the job's policy
		maps.Copy(merged, metadata)
		p.metadata = merged
	}}
}

// Retry sets when a failed attempt is tried again. The worker that executes the
// run applies the policy, so this is an option of the job and not of a run.
// Default: the worker's (exponential from 5 s to 1 h, ±20 %).
func Retry(r RetryPolicy) Option {
	return Option{"Retry", onlyJob, func(p *policy) { p.retry = r }}
}

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

// At makes the run due at an instant. It is compared with the store's clock.
func At(t time.Time) Option {
	return Option{"At", onlyRun, func(p *policy) { p.at, p.after = t, 0 }}
}

// After makes the run due some time after it is enqueued, on the store's clock.
func After(d time.Duration) Option {
	return Option{"After", onlyRun, func(p *policy) { p.at, p.after = time.Time{}, d }}
}

// ExpiresAt is the instant after which no attempt may begin: a worker that
// claims the run later cancels it with the reason "expired", even if an earlier
// attempt has failed. An attempt that has begun may finish.
func ExpiresAt(t time.Time) Option {
	return Option{"ExpiresAt", onlyRun, func(p *policy) { p.expiresAt = t }}
}

// Unique stores the run unless an unfinished run of the job holds this key; the receipt then
// has that run's ID and says Existing. A run stored with UniqueFor keeps the key for its
// time. Only one of Unique, UniqueFor, Replace and Debounce may be given.
func Unique(key string) Option {
	return keyed("Unique", store.Key{Text: key, Policy: store.KeyUnique})
}

// UniqueFor is like Unique, but the run holds the key for at least d after it was enqueued,
// by the store's clock, even if it has ended. A run that has not ended by then keeps the key
// until it does. A run that is no longer in the store, because retention or an operator has
// deleted it, holds no key.
func UniqueFor(key string, d time.Duration) Option {
	return keyed("UniqueFor", store.Key{Text: key, Policy: store.KeyUnique, HeldFor: d})
}

// Replace changes the pending run of the job that holds the key, if there is
// one: it gets this run's args, queue, priority, max attempts, timeout, crash
// policy, tags, expiry and due time, and begins with its first attempt. Its ID
// stays, and the receipt says Existing. A holder that is running has begun with
// the older args: the new run is then stored as another run, and takes the key.
func Replace(key string) Option {
	return keyed("Replace", store.Key{Text: key, Policy: store.KeyReplace})
}

// Debounce is like Replace, but also moves the due time: the run is due quiet
// after the latest enqueue, and no later than atMost after the pending run was
// first stored (zero: no bound). You cannot combine it with At and After.
func Debounce(key string, quiet, atMost time.Duration) Option {
	return keyed("Debounce", store.Key{Text: key, Policy: store.KeyDebounce, Quiet: quiet, AtMost: atMost})
}

func keyed(name string, key store.Key) Option {
	return Option{name, onlyRun, func(p *policy) {
		p.key = key
		p.keyedBy = append(p.keyedBy[:len(p.keyedBy):len(p.keyedBy)], name)
	}}
}

// checkKeyed reports what is wrong with the key options that were given.
func (p *policy) checkKeyed() error {
	switch {
	case len(p.keyedBy) > 1:
		return fmt.Errorf("both %s and %s are given: want one key for a run", p.keyedBy[0], p.keyedBy[1])
	case len(p.keyedBy) == 1 && p.key.Text == "":
		return fmt.Errorf("%s: the key is empty", p.keyedBy[0])
	default:
		return nil
	}
}

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
