package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/store"
)

// Job is a named kind of work with an argument type and a policy. One value is
// shared by the code that enqueues and the code that works:
//
//	var Welcome = durable.NewJob[WelcomeArgs]("welcome", durable.MaxAttempts(5))
//
// The zero value is not usable; call NewJob. A Job never changes, and its
// methods may be called from many goroutines.
type Job[A any] struct {
	name   string
	policy policy
	fault  error
}

// NewJob declares a job. It returns no error: the first Enqueue, and Worker.Run,
// report an invalid name or invalid options.
func NewJob[A any](name string, options ...Option) Job[A] {
	p, faults := defaultPolicy().with(onlyJob, options)
	faults = append(faults, store.CheckName("job", name))
	faults = append(faults, p.faults()...)
	faults = append(faults, checkAliases(name, p.aliases)...)
	p = p.capped(name)
	faults = append(faults, p.limits.faults(reflect.TypeFor[A]())...)
	j := Job[A]{name: name, policy: p}
	if err := errors.Join(faults...); err != nil {
		j.fault = fmt.Errorf("job %q: %w", storable.Clip(name, 150), err)
	}
	return j
}

// Name returns the job's name.
func (j Job[A]) Name() string { return j.name }

// New creates a run of the job without enqueueing it, so that you can enqueue
// many runs in one call. The run's ID is assigned here, so enqueueing the same
// value again is recognised as a repeat. Enqueue reports what is wrong with it.
func (j Job[A]) New(args A, options ...Option) NewRun {
	run, _ := j.make(onlyRun, args, options)
	return run
}

// make creates a run, or the run that a schedule repeats, and returns its policy.
func (j Job[A]) make(place scope, args A, options []Option) (NewRun, policy) {
	p, faults := j.policy.with(place, options)
	run := p.newRun(j.name, nil)
	info := CodecInfo{Job: j.name, Part: ArgsPart, Run: run.ID}
	if place == onlySchedule || p.key.Policy != store.KeyUnique {
		info.Run = RunID{} // they may become those of another run
	}
	encoded, err := json.Marshal(args)
	if err != nil {
		err = fmt.Errorf("args: %w", err)
	} else if j.fault == nil {
		if p.codec == nil {
			run.SetEncodedArgs(encoded)
		} else {
			run.Args, err = seal(p.codec, info, encoded)
		}
	}
	if err == nil && j.fault == nil {
		run.Limits, err = p.limits.of(args, encoded)
	}
	if err != nil {
		faults = append(faults, err)
	}
	if j.fault != nil {
		faults = append(faults, j.fault)
	} else if j.name == "" {
		faults = append(faults, errors.New("the job is the zero value: create it with durable.NewJob"))
	}
	run.Refuse(errors.Join(faults...))
	return run, p
}

// Enqueue stores one run of the job through a Client, a store, or a store
// bound to a transaction.
func (j Job[A]) Enqueue(ctx context.Context, to Enqueuer, args A, options ...Option) (Receipt, error) {
	run, _ := j.make(onlyRun, args, options)
	receipts, err := to.Enqueue(ctx, run)
	if err != nil {
		return Receipt{}, err
	}
	return receipts[0], nil
}

// Schedule creates a schedule of this job, or replaces the one of its name: for schedules that
// follow from data, such as one for each customer, where AddSchedule is for those that the code
// knows. The store.Scheduler is a Client, a Store or a Tx: in a transaction, the schedule is there
// exactly when the transaction commits. The options are those of AddSchedule; Paused counts
// only when the schedule is created. The schedule stays until it is deleted:
//
//	err := tx.ChangeSchedule(ctx, name, store.DeleteSchedule, "billing")
//
// ErrInvalid says what is wrong. ErrConflict says that workers declare a schedule of the
// name.
func (j Job[A]) Schedule(ctx context.Context, to store.Scheduler, name string, args A, rule Rule, options ...Option) error {
	run, p := j.make(onlySchedule, args, options)
	s, err := scheduleOf(name, rule, run, p)
	if err != nil {
		return fmt.Errorf("%w: schedule %q: %w", ErrInvalid, storable.Clip(name, 150), err)
	}
	return to.PutSchedule(ctx, s)
}

// Info describes the job as a worker declares it.
func (j Job[A]) Info() JobInfo {
	info := JobInfo{
		Name: j.name, Queue: j.policy.queue, Priority: j.policy.priority,
		MaxAttempts: j.policy.maxAttempts, Timeout: store.Duration(j.policy.timeout), OnCrash: j.policy.onCrash,
		Retention: store.Duration(j.policy.retention), Limits: j.policy.limits.declared(),
		Code: store.JobCode{Aliases: slices.Clone(j.policy.aliases), Redacted: slices.Clone(j.policy.redacted)},
	}
	if j.policy.onDead != nil {
		info.Code.OnDead = j.policy.onDead.name
	}
	return info
}

// RunOf creates a run of a declared job from JSON args, for programs that enqueue without the
// job's code.
func RunOf(job JobInfo, args []byte, options ...Option) NewRun {
	run, _ := runOf(job, onlyRun, args, options)
	return run
}

// runOf is Job.make for a job as it was declared.
func runOf(job JobInfo, place scope, args []byte, options []Option) (NewRun, policy) {
	p := defaultPolicy()
	p.queue, p.priority, p.maxAttempts = job.Queue, job.Priority, job.MaxAttempts
	p.timeout, p.onCrash, p.limits = time.Duration(job.Timeout), job.OnCrash, limitsOf(job)
	p, faults := p.with(place, options)
	run := p.newRun(job.Name, args)
	uses, err := p.limits.of(nil, args)
	run.Limits = uses
	run.Refuse(errors.Join(append(faults, err)...))
	return run, p
}

// ScheduleOf creates a schedule of a declared job from JSON args, for programs that do not
// have the job's code. It has no hash, because no code declares it.
func ScheduleOf(job JobInfo, name string, args []byte, rule Rule, options ...Option) (store.Schedule, error) {
	run, p := runOf(job, onlySchedule, args, options)
	s, err := scheduleOf(name, rule, run, p)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return s, err
}

func scheduleOf(name string, rule Rule, run NewRun, p policy) (store.Schedule, error) {
	s := store.Schedule{Name: name, Rule: rule, Plan: p.plan, Paused: p.paused, Job: run.Job, Queue: run.Queue, Priority: run.Priority,
		Args: run.Args, MaxAttempts: run.MaxAttempts, Timeout: run.Timeout, OnCrash: run.OnCrash, Tags: run.Tags,
		Metadata: run.Metadata, Limits: run.Limits}
	if fault := run.Fault(); fault != nil {
		return s, fault
	}
	return s, s.Faults()
}

// Death is the args of the job that OnDead names: what has died, and of what.
type Death struct {
	Run RunID `json:"run"`
	// Job is the name that the run has: the job's, or an alias of it.
	Job    string    `json:"job"`
	DiedAt time.Time `json:"died_at"`
	Reason string    `json:"reason"`
	// Args are those of the run, decoded by its job's codec. They are missing if the codec could
	// not decode them within DefaultArgsWithin, or if they leave no room for the rest within
	// store.MaxArgsSize.
	Args json.RawMessage `json:"args,omitempty"`
}

// OnDead has one run of another job stored for each death of a run of this one, whatever makes it
// dead: its last attempt, Permanent, a crash, or a limit that is full. The death is kept in the
// transaction that makes the run dead; a worker with which this job is registered stores the run,
// exactly once, immediately or when there is one again. A run that is retried and dies again has
// died twice. A cancelled run has not died.
//
//	var refund = durable.NewJob[durable.Death]("refund")
//	var charge = durable.NewJob[ChargeArgs]("charge", durable.OnDead(refund))
//
// WorkerConfig.OnDead is for all jobs of a worker. Runs of the other job itself have none, and no two
// jobs of a worker may each be for the deaths of the other. If a Redacted hides args of this job, give
// the other job one too, with the path below args.
func OnDead(job Job[Death]) Option {
	return Option{"OnDead", onlyJob, func(p *policy) { p.onDead = &job }}
}
