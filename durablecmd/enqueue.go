package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// enqueueVerb enqueues one run.
type enqueueVerb struct {
	Job         string         `arg:"" help:"Name of the job, as a worker has declared it."`
	Args        string         `default:"{}" help:"Args as JSON; - reads standard input."`
	In          *time.Duration `xor:"due" help:"Delay before the run is due, such as 5m."`
	At          *timestamp     `xor:"due" help:"Time at which the run is due, such as 2030-01-31T08:00:00Z."`
	DependsOn   []string       `xor:"due" sep:"none" placeholder:"[CONDITION:]RUN,…" help:"Runs that must have ended before the run is due, by their ids or the first 8 or more characters of them. CONDITION is success (the default: all have succeeded), end (all have ended) or failure (one is dead, cancelled or deleted). Repeatable: all conditions are wanted."`
	Batch       word           `placeholder:"BATCH" help:"Open batch that the run becomes a member of, by its id or the first 8 or more characters of it."`
	Queue       *string        `help:"Queue. Default: the job's."`
	Priority    *int           `help:"Priority, -4 to 4, larger first. Default: the job's."`
	MaxAttempts *int           `help:"Number of attempts before the run is dead. Default: the job's."`
	Timeout     *time.Duration `help:"Time limit of an attempt; 0: none. Default: the job's."`
	ExpiresAt   *timestamp     `help:"Cancel the run if it has not started by this time."`
	Tag         []string       `sep:"none" help:"Tag of the run. Repeatable."`
	Meta        metaFlag       `sep:"none" placeholder:"NAME=VALUE" help:"Metadata of the run. Repeatable."`
	LimitedBy   []string       `sep:"none" placeholder:"NAME=KEY" help:"Key of a limit for this run, such as tenant=acme or api*2. Repeatable. Default: the job's limits."`
	Keys        keyFlags       `embed:""`
	ID          word           `name:"id" placeholder:"UUID" help:"Id of the run, a UUID of version 7. Enqueueing the same id again is a no-op."`
	Wait        bool           `help:"Wait until the run has ended. Exits 0 if it succeeded, 3 if it is dead or cancelled."`
	Force       bool           `help:"Enqueue even if no worker has declared the job, or the args do not fit its type."`
	JSON        bool           `name:"json" help:"Print JSON."`
}

// readArgs reads standard input until its end, or a signal.
func (p *program) readArgs(ctx context.Context) ([]byte, error) {
	ctx, cancel := p.untilSignal(ctx)
	defer cancel()
	args, err := io.ReadAll(io.LimitReader(p.stdin, store.MaxArgsSize+1))
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	return args, err
}

// Run stores the run and prints its id.
func (v enqueueVerb) Run(ctx context.Context, p *program) error {
	args := []byte(v.Args)
	if v.Args == "-" {
		var err error
		if args, err = p.readArgs(ctx); err != nil {
			return fmt.Errorf("read args: %w", err)
		}
	}
	id, err := v.id()
	if err != nil {
		return err
	}
	keys, err := v.Keys.options()
	if err != nil {
		return err
	}
	limits, err := limitedBy(v.LimitedBy)
	if err != nil {
		return err
	}
	if err := v.check(ctx, p, args); err != nil {
		return err
	}
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		job, err := v.declared(ctx, o)
		if err != nil {
			return err
		}
		conditions, err := v.conditions(ctx, o)
		if err != nil {
			return err
		}
		batch, err := v.batch(ctx, o)
		if err != nil {
			return err
		}
		run := durable.RunOf(job, args, slices.Concat(v.options(), keys, limits, conditions, batch)...)
		run.ID = id
		stored, err := o.Enqueue(ctx, run)
		if err != nil {
			return err
		}
		if v.JSON {
			err = p.printJSON(stored)
		} else {
			_, err = fmt.Fprintln(p.stdout, stored.ID)
		}
		if err == nil && stored.Existing && !v.JSON {
			fmt.Fprintf(p.stderr, "%s: run %s already exists%s\n", p.name, stored.ID, v.Keys.done(stored.ID == id))
		}
		if err == nil && !stored.Existing {
			p.warnUnserved(ctx, o.Operator, run.Queue, run.Job)
		}
		if err != nil || !v.Wait {
			return err
		}
		record, err := waitFor(ctx, o.Operator, stored.ID, 0)
		return errors.Join(err, record.Ended())
	})
}

// check refuses what makes no sense, before the store is reached.
func (v enqueueVerb) check(ctx context.Context, p *program, args []byte) error {
	for flag, at := range map[string]*timestamp{"--at": v.At, "--expires-at": v.ExpiresAt} {
		if at != nil && time.Time(*at).IsZero() { // which elsewhere says that there is none
			return usage("%s: want a year from 1970 to 9999", flag)
		}
	}
	if v.Batch != "" {
		if err := checkBatchID(string(v.Batch)); err != nil {
			return err
		}
	}
	if err := p.checkArgs(ctx, v.Job, args); err != nil && !v.Force {
		return usage("--args: %w; --force enqueues the run anyway", err)
	}
	return nil
}

// id is the id that the run gets.
func (v enqueueVerb) id() (durable.RunID, error) {
	if v.ID == "" {
		return durable.NewRunID(), nil
	}
	id, err := durable.ParseRunID(string(v.ID))
	if err != nil {
		return id, usage("--id: %w", err)
	}
	return id, nil
}

// declared returns the job's policy. With --force a job may be unknown.
func (v enqueueVerb) declared(ctx context.Context, o *operate.Actor) (durable.JobInfo, error) {
	job, err := o.Job(ctx, v.Job)
	switch {
	case !errors.Is(err, durable.ErrUnknownJob):
		return job, err
	case v.Force:
		return durable.JobInfo{Name: v.Job, Queue: durable.DefaultQueue, MaxAttempts: store.DefaultMaxAttempts}, nil
	default:
		return job, fmt.Errorf("%w; start a worker that declares it, or use --force to enqueue it anyway", err)
	}
}

func (v enqueueVerb) options() []durable.Option {
	var options []durable.Option
	options = given(options, v.In, durable.After)
	options = given(options, (*time.Time)(v.At), durable.At)
	options = given(options, v.Queue, durable.OnQueue)
	options = given(options, v.Priority, durable.Priority)
	options = given(options, v.MaxAttempts, durable.MaxAttempts)
	options = given(options, v.Timeout, durable.Timeout)
	options = given(options, (*time.Time)(v.ExpiresAt), durable.ExpiresAt)
	if len(v.Tag) > 0 {
		options = append(options, durable.Tags(v.Tag...))
	}
	if v.Meta != nil {
		options = append(options, durable.Metadata(v.Meta))
	}
	return options
}

// batch puts the run into a batch.
func (v enqueueVerb) batch(ctx context.Context, o *operate.Actor) ([]durable.Option, error) {
	if v.Batch == "" {
		return nil, nil
	}
	id, err := o.FindBatch(ctx, string(v.Batch))
	if err != nil {
		return nil, fmt.Errorf("--batch: %w", err)
	}
	return []durable.Option{durable.InBatch(durable.BatchByID(id))}, nil
}

// conditions are what the run depends on.
func (v enqueueVerb) conditions(ctx context.Context, o *operate.Actor) (options []durable.Option, err error) {
	found, err := o.Dependencies(ctx, v.DependsOn...)
	if err != nil {
		return nil, fmt.Errorf("--depends-on: %w", err)
	}
	for i := range found {
		options = append(options, durable.DependsOn(found[i].Condition()))
	}
	return options, nil
}

// given adds the option of a flag that was given.
func given[T any](options []durable.Option, value *T, option func(T) durable.Option) []durable.Option {
	if value == nil {
		return options
	}
	return append(options, option(*value))
}

// checkArgs reports why args do not fit the type of a job that the program registers.
// It calls Setup as the command config does. Args of other jobs, of jobs with a codec,
// and of a program whose Setup fails here are not checked: their workers decide.
func (p *program) checkArgs(ctx context.Context, job string, args []byte) error {
	config, logger, err := p.config("error")
	if err != nil {
		return nil // reported where the database is opened
	}
	app, done, err := p.rehearsal(ctx, config, logger)
	if err != nil {
		return nil
	}
	defer done()
	return app.Worker.CheckArgs(job, args)
}
