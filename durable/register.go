package durable

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/cron"
)

// registration is a job with its handler, the argument type closed over.
type registration struct {
	info  JobInfo
	retry RetryPolicy
	call  func(ctx context.Context, x *execution) error
}

// Register gives a worker the handler of a job. Nothing needs checking here:
// what is wrong is reported by Worker.Run, all together. The handler is called
// from many goroutines. What it returns decides the run's outcome; a panic and
// runtime.Goexit are failed attempts.
func Register[A any](w *Worker, job Job[A], handler func(ctx context.Context, run *Run[A]) error) {
	retry := job.policy.retry
	if retry == nil {
		retry = w.config.Retry
	}
	w.register(job.fault, handler == nil, registration{info: job.Info(), retry: retry,
		call: func(ctx context.Context, x *execution) error {
			run := Run[A]{
				ID: x.run.ID, Job: x.info.Name, Queue: x.queue, Attempt: x.run.Attempt, MaxAttempts: x.run.MaxAttempts,
				CrashCount: x.run.CrashCount, DueAt: x.run.DueAt, CreatedAt: x.run.CreatedAt, Fence: x.run.Fence, execution: x,
			}
			if err := json.Unmarshal(x.run.Args, &run.Args); err != nil {
				return fmt.Errorf("decode args: %w", err)
			}
			return handler(ctx, &run)
		}})
}

func (w *Worker) register(fault error, missing bool, r registration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := r.info.Name
	switch {
	case fault != nil:
		w.faults = append(w.faults, fault)
	case missing:
		w.faults = append(w.faults, fmt.Errorf("job %q: no handler", name))
	case w.jobs[name].call != nil:
		w.faults = append(w.faults, fmt.Errorf("job %q: registered twice", name))
	}
	w.jobs[name] = r
}

// AddSchedule makes a worker declare a schedule: a rule that enqueues a run of
// the job at each occurrence. It becomes a row of the store; any worker, not
// only those that declare it, materializes its occurrences, each exactly once.
// An occurrence that no worker could materialize within a minute of its
// instant is skipped. The options are those of a run, without At, After and
// ExpiresAt. What is wrong is reported by Worker.Run.
func AddSchedule[A any](w *Worker, name string, job Job[A], args A, rule Rule, options ...Option) {
	s, err := newSchedule(name, job, args, rule, options)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, other := range w.schedules {
		if other.Name == name {
			err = errors.Join(err, errors.New("declared twice"))
		}
	}
	if err != nil {
		w.faults = append(w.faults, fmt.Errorf("schedule %q: %w", name, err))
		return
	}
	w.schedules = append(w.schedules, s)
}

func newSchedule[A any](name string, job Job[A], args A, rule Rule, options []Option) (Schedule, error) {
	faults := []error{checkName("schedule", name), job.fault}
	if _, err := rule.compile(); err != nil {
		faults = append(faults, err)
	}
	run := job.New(args, options...)
	if !run.At.IsZero() || run.After != 0 || !run.ExpiresAt.IsZero() {
		faults = append(faults, errors.New("At, After and ExpiresAt are for one run, not for a schedule"))
	}
	faults = append(faults, CheckRuns([]NewRun{run}))
	s := Schedule{Name: name, Rule: rule, Job: run.Job, Queue: run.Queue, Priority: run.Priority, Args: run.Args,
		MaxAttempts: run.MaxAttempts, Timeout: run.Timeout, OnCrash: run.OnCrash, Tags: run.Tags}
	s.Hash = s.hash()
	return s, errors.Join(faults...)
}

// hash tells one declaration from another.
func (s Schedule) hash() string {
	text, _ := json.Marshal([]any{s.Rule, s.Job, s.Queue, s.Priority, string(s.Args), s.MaxAttempts, s.Timeout, s.OnCrash, s.Tags})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// compile turns the rule into something that can be asked for instants.
func (r Rule) compile() (cron.Rule, error) {
	return cron.Compile(cron.Spec{Expression: r.Cron, Zone: r.Zone, Every: time.Duration(r.Every)})
}
