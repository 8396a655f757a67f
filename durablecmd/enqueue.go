package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// enqueueVerb enqueues one run.
type enqueueVerb struct {
	Job         string         `arg:"" help:"Name of the job, as a worker has declared it."`
	Args        string         `default:"{}" help:"Arguments as JSON; - reads them from standard input."`
	In          *time.Duration `xor:"due" help:"Due so long from now, such as 5m."`
	At          *time.Time     `xor:"due" help:"Due at an instant, such as 2030-01-31T08:00:00Z."`
	Queue       *string        `help:"Queue. Default: the job's."`
	Priority    *int           `help:"Priority, -4 to 4, larger first. Default: the job's."`
	MaxAttempts *int           `help:"Attempts until the run is dead. Default: the job's."`
	Timeout     *time.Duration `help:"Time limit of one attempt; 0 is none. Default: the job's."`
	ExpiresAt   *time.Time     `help:"Cancel the run if it has not begun by then."`
	Tag         []string       `sep:"none" help:"Mark the run; may be repeated."`
	Keys        keyFlags       `embed:""`
	ID          word           `name:"id" placeholder:"UUID" help:"The run's id, a UUID of version 7: enqueueing it again changes nothing."`
	Wait        bool           `help:"Wait until the run has ended; the exit status is 0 if it has succeeded."`
	Force       bool           `help:"Enqueue even though no worker has declared the job."`
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
	id := durable.NewRunID()
	if v.ID != "" {
		var err error
		if id, err = durable.ParseRunID(string(v.ID)); err != nil {
			return usage("--id: %w", err)
		}
	}
	keys, err := v.Keys.options()
	if err != nil {
		return err
	}
	return p.withStore(ctx, migrated, func(ctx context.Context, store backend.Store, _ Config) error {
		job, err := v.declared(ctx, store, p.jobs)
		if err != nil {
			return err
		}
		run := durable.RunOf(job, args, append(v.options(), keys...)...)
		run.ID = id
		receipts, err := durable.NewClient(store).Enqueue(ctx, run)
		if err != nil {
			return err
		}
		if v.JSON {
			err = p.printJSON(map[string]any{"id": receipts[0].ID, "existing": receipts[0].Existing})
		} else {
			_, err = fmt.Fprintln(p.stdout, receipts[0].ID)
		}
		if err == nil && receipts[0].Existing && !v.JSON {
			fmt.Fprintf(p.stderr, "%s: run %s was there already%s\n", p.name, receipts[0].ID, v.Keys.done(receipts[0].ID == id))
		}
		if err != nil || !v.Wait {
			return err
		}
		record, err := waitFor(ctx, store, receipts[0].ID, 0)
		return errors.Join(err, record.Ended())
	})
}

// declared returns the job's policy as workers have declared it, else as this
// program knows it.
func (v enqueueVerb) declared(ctx context.Context, db backend.Store, own []durable.JobInfo) (durable.JobInfo, error) {
	jobs, err := db.Jobs(ctx)
	if err != nil {
		return durable.JobInfo{}, err
	}
	var known []string
	for _, job := range append(jobs, own...) {
		if job.Name == v.Job {
			return job, nil
		}
		if !slices.Contains(known, job.Name) {
			known = append(known, job.Name)
		}
	}
	if v.Force {
		return durable.JobInfo{Name: v.Job, Queue: durable.DefaultQueue, MaxAttempts: durable.DefaultMaxAttempts}, nil
	}
	err = fmt.Errorf("%w %q", durable.ErrUnknownJob, v.Job)
	if len(known) == 0 {
		return durable.JobInfo{}, fmt.Errorf("%w: no worker has declared any job yet; start one, or enqueue with --force", err)
	}
	slices.Sort(known)
	return durable.JobInfo{}, fmt.Errorf("%w: known are %s; --force enqueues it all the same", err, strings.Join(known, ", "))
}

func (v enqueueVerb) options() []durable.Option {
	var options []durable.Option
	options = given(options, v.In, durable.After)
	options = given(options, v.At, durable.At)
	options = given(options, v.Queue, durable.OnQueue)
	options = given(options, v.Priority, durable.Priority)
	options = given(options, v.MaxAttempts, durable.MaxAttempts)
	options = given(options, v.Timeout, durable.Timeout)
	options = given(options, v.ExpiresAt, durable.ExpiresAt)
	if len(v.Tag) > 0 {
		options = append(options, durable.Tags(v.Tag...))
	}
	return options
}

// given adds the option of a flag that was given.
func given[T any](options []durable.Option, value *T, option func(T) durable.Option) []durable.Option {
	if value == nil {
		return options
	}
	return append(options, option(*value))
}
