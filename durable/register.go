package durable

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/durable-worker/durable-worker/store"
)

// registration is a job with its handler, the argument type closed over.
type registration struct {
	info        JobInfo
	aliases     []string
	limits      limitUses
	retry       RetryPolicy
	codec       Codec
	onDead      *Job[Death]
	stepOptions []StepOption
	call        func(ctx context.Context, x *execution) error
	check       func(args []byte) error // whether they fit
}

// Register gives a worker the handler of a job. It returns no error: Worker.Run reports all
// problems together. After Run has been called, Register refuses the job, logs that, and
// Faults reports it. The handler is called from many goroutines. What it returns decides the
// run's outcome; a panic and runtime.Goexit are failed attempts.
func Register[A any](w *Worker, job Job[A], handler func(ctx context.Context, run *Run[A]) error) {
	retry := job.policy.retry
	if retry == nil {
		retry = w.config.Retry
	}
	misfits := job.policy.misfits()
	w.register(job.fault, handler == nil, registration{info: job.Info(), aliases: job.policy.aliases, limits: job.policy.limits, retry: retry, codec: job.policy.codec, onDead: job.policy.onDead, stepOptions: job.policy.steps,
		call: func(ctx context.Context, x *execution) error {
			run, args := Run[A]{RunInfo: x.runInfo(), execution: x}, x.run.Args
			if x.codec != nil {
				var err error
				if args, err = x.unseal(ArgsPart, args); err != nil { // the key may come with the next deploy
					return x.turnAway(ctx, misfits, err, counted)
				}
			}
			if err := json.Unmarshal(args, &run.Args); err != nil {
				then := Permanent
				if misfits.attempts {
					then = counted
				}
				return x.turnAway(ctx, misfits, misfit[A](err), then)
			}
			return handler(ctx, &run)
		},
		check: func(args []byte) error {
			var fits A
			strict := json.NewDecoder(bytes.NewReader(args))
			strict.DisallowUnknownFields()
			if err := strict.Decode(&fits); err != nil { // a person has just written them: be strict
				return fmt.Errorf("decode args: %w", err)
			}
			return nil
		}})
}

// CheckArgs reports why JSON args do not fit the type of a registered job's args. Members
// that the type does not have, which a handler would never see, do not fit either. It
// returns nil if the job is not registered or has a codec.
func (w *Worker) CheckArgs(job string, args []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.registered(job)
	if r.check == nil || r.codec != nil {
		return nil
	}
	return r.check(args)
}

func (w *Worker) register(fault error, missing bool, r registration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := r.info.Name
	if w.refuseLate(fmt.Sprintf("job %q: registered", name)) {
		return
	}
	switch {
	case fault != nil:
		w.faults = append(w.faults, fault)
	case name == "":
		w.faults = append(w.faults, errors.New("a job is the zero value: create it with durable.NewJob"))
	case missing:
		w.faults = append(w.faults, fmt.Errorf("job %q: no handler", name))
	case w.jobs[name].call != nil:
		w.faults = append(w.faults, fmt.Errorf("job %q: registered twice", name))
	}
	w.jobs[name] = r
	w.registerAliases(name, r.aliases)
	w.registerLimits(name, r.limits)
}

// registerLimits notes the limits that a job's runs have. w.mu is held.
func (w *Worker) registerLimits(job string, limits limitUses) {
	for i := range limits {
		limit := limits[i].of
		name := store.LimitName(limit.Name)
		if other, known := w.limits[name]; known && other.Hash() != limit.Hash() {
			w.faults = append(w.faults, fmt.Errorf("job %q: limit %q differs from another limit of the same name", job, limit.Name))
			continue
		}
		w.limits[name] = limit
	}
}

// Use adds middleware to what WorkerConfig.Middleware names: it is called within that,
// the first outermost. Once Run has begun it is too late: it is refused, logged, and
// named by Faults.
func (w *Worker) Use(middleware ...Middleware) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.refuseLate("middleware: added") {
		w.config.Middleware = append(w.config.Middleware, middleware...)
	}
}

// RegisterReturning is Register for a handler that returns its result. The result is
// stored when the error is nil; one that cannot be stored is a failed attempt.
func RegisterReturning[A, R any](w *Worker, job ReturningJob[A, R], handler func(ctx context.Context, run *Run[A]) (R, error)) {
	if handler == nil {
		Register(w, job.Job, nil)
		return
	}
	Register(w, job.Job, func(ctx context.Context, run *Run[A]) error {
		result, err := handler(ctx, run)
		if err != nil {
			return err
		}
		return run.SetResult(result)
	})
}
