package durablecmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// scheduleFlags are the parts of a schedule. What is not given stays as it is.
type scheduleFlags struct {
	Cron          *string        `xor:"rule" help:"Cron expression of 5 or 6 fields, or a word such as @daily."`
	Every         *time.Duration `xor:"rule" help:"Interval, at least 1s."`
	Once          *timestamp     `xor:"rule" help:"A single time, such as 2030-01-31T08:00:00Z."`
	Zone          *string        `help:"IANA time zone, such as Europe/Berlin. Default UTC."`
	Args          *string        `help:"Args of each run as JSON."`
	CatchUp       *string        `help:"What to do with missed occurrences: skip (default), latest or all."`
	CatchUpWithin *time.Duration `help:"Skip missed occurrences older than this; 0: no bound."`
	CatchUpMost   *int           `help:"Maximum number of missed occurrences that become runs, the latest ones; 0: 1000."`
	MaxUnfinished *int           `help:"Maximum number of unfinished runs before --overlap applies, across all workers (1 to 1000). Default 1."`
	Overlap       *string        `help:"What to do with an occurrence while an earlier run has not ended: skip (default), wait or allow."`
	Start         *timestamp     `help:"No occurrences before this time; 0001-01-01T00:00:00Z removes the bound."`
	End           *timestamp     `help:"No occurrences at or after this time; 0001-01-01T00:00:00Z removes the bound."`
	Blackout      []string       `sep:"none" help:"No occurrences within: sat,sun or mon-fri/22:00/06:00 or 2026-12-24/2026-12-26. Repeatable; replaces all earlier ones; none removes them."`
	Jitter        *time.Duration `help:"Delay each run by a random time up to this."`
	Spread        *time.Duration `help:"Delay all occurrences by one fixed time below this, derived from the name."`
	Queue         *string        `help:"Queue of the runs."`
	Priority      *int           `help:"Priority of the runs, -4 to 4, larger first."`
	MaxAttempts   *int           `help:"Number of attempts before a run is dead."`
	Timeout       *time.Duration `help:"Time limit of an attempt; 0: none."`
	LimitedBy     []string       `sep:"none" placeholder:"NAME=KEY" help:"Key of a limit for the runs, such as tenant=acme or api*2. Repeatable. Default: the job's limits."`
	Meta          metaEdit       `sep:"none" placeholder:"NAME=VALUE" help:"Metadata of the runs. Repeatable; replaces all that is there; none removes it."`
}

type (
	schedulesCreateVerb struct {
		Name   string `arg:"" help:"Name of the schedule."`
		Job    string `arg:"" help:"Name of the job, as a worker has declared it."`
		Paused bool   `help:"Create it paused."`
		Force  bool   `help:"Create it even if no worker has declared the job."`
		JSON   bool   `name:"json" help:"Print JSON."`
		scheduleFlags
	}
	schedulesSetVerb struct {
		Name string `arg:"" help:"Name of the schedule."`
		JSON bool   `name:"json" help:"Print JSON."`
		scheduleFlags
	}
)

// set changes what a flag has given.
func set[T any](field *T, flag *T) {
	if flag != nil {
		*field = *flag
	}
}

// apply changes a schedule by the flags.
func (f scheduleFlags) apply(s *store.Schedule) error {
	zone := s.Rule.Zone
	switch {
	case f.Cron != nil:
		s.Rule = durable.Cron(*f.Cron, zone)
	case f.Every != nil:
		s.Rule = durable.Every(*f.Every).In(zone)
	case f.Once != nil:
		s.Rule = durable.Once(time.Time(*f.Once)).In(zone)
	}
	set(&s.Rule.Zone, f.Zone)
	if f.Args != nil {
		s.Args = json.RawMessage(*f.Args)
	}
	plan := &s.Plan
	set((*string)(&plan.CatchUp), f.CatchUp)
	set((*time.Duration)(&plan.CatchUpWithin), f.CatchUpWithin)
	set(&plan.CatchUpMost, f.CatchUpMost)
	if f.MaxUnfinished != nil && *f.MaxUnfinished == 0 {
		return usage("--max-unfinished 0: want 1 to %d", store.MaxUnfinishedRuns)
	}
	set(&plan.MaxUnfinished, f.MaxUnfinished)
	set((*string)(&plan.Overlap), f.Overlap)
	set(&plan.Start, (*time.Time)(f.Start))
	set(&plan.End, (*time.Time)(f.End))
	set((*time.Duration)(&plan.Jitter), f.Jitter)
	set((*time.Duration)(&plan.Spread), f.Spread)
	set(&s.Queue, f.Queue)
	set(&s.Priority, f.Priority)
	set(&s.MaxAttempts, f.MaxAttempts)
	set(&s.Timeout, f.Timeout)
	if f.Meta != nil {
		s.Metadata = store.Metadata(f.Meta)
	}
	if f.Blackout == nil {
		return nil
	}
	plan.Blackouts = nil
	for _, text := range f.Blackout {
		if text == "none" {
			continue
		}
		window, err := parseWindow(text)
		if err != nil {
			return err
		}
		plan.Blackouts = append(plan.Blackouts, window)
	}
	return nil
}

// parseWindow reads days, days/from/until or from/until. Whether these are
// days, times and dates is checked with the schedule.
func parseWindow(text string) (durable.Window, error) {
	parts := strings.Split(text, "/")
	switch len(parts) {
	case 1:
		return durable.Window{Days: parts[0]}, nil
	case 2:
		return durable.Window{From: parts[0], Until: parts[1]}, nil
	case 3:
		return durable.Window{Days: parts[0], From: parts[1], Until: parts[2]}, nil
	default:
		return durable.Window{}, usage("--blackout %q: want such as sat,sun or mon-fri/22:00/06:00 or 2026-12-24/2026-12-26", text)
	}
}

// Run creates a schedule.
func (v schedulesCreateVerb) Run(ctx context.Context, p *program) error {
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		job, err := enqueueVerb{Job: v.Job, Force: v.Force}.declared(ctx, o)
		if err != nil {
			return err
		}
		s := store.Schedule{Name: v.Name, Job: job.Name, Queue: job.Queue, Priority: job.Priority, Args: json.RawMessage("{}"),
			MaxAttempts: job.MaxAttempts, Timeout: time.Duration(job.Timeout), OnCrash: job.OnCrash, Paused: v.Paused}
		done, err := v.store(ctx, o, s)
		switch {
		case errors.Is(err, durable.ErrConflict):
			return fmt.Errorf("%w; to change it, use schedules set", err)
		case err != nil:
			return err
		case v.JSON:
			return p.printStored(ctx, o, v.Name)
		default:
			return p.printChange(v.Name, "created, "+done)
		}
	})
}

// Run changes a schedule. A command that changes nothing must not turn the
// code's schedule into an operator's.
func (v schedulesSetVerb) Run(ctx context.Context, p *program) error {
	return p.asOperator(ctx, func(ctx context.Context, o *operate.Actor) error {
		record, err := o.Schedule(ctx, v.Name)
		if err != nil {
			return err
		}
		if reflect.ValueOf(v.scheduleFlags).IsZero() {
			return usage("nothing to change: want a flag such as --every 1h")
		}
		done, err := v.store(ctx, o, record.Schedule())
		switch {
		case err != nil:
			return err
		case v.JSON:
			return p.printStored(ctx, o, v.Name)
		default:
			return p.printChange(v.Name, "changed, "+done)
		}
	})
}

// limitsOfArgs gives a schedule the limits that its job has declared, with the keys
// that follow from its args. Where no worker has declared the job they stay as they are.
func (f scheduleFlags) limitsOfArgs(ctx context.Context, o *operate.Actor, s *store.Schedule) error {
	limits, err := limitedBy(f.LimitedBy)
	if err != nil {
		return err
	}
	job, err := o.Job(ctx, s.Job)
	switch {
	case errors.Is(err, durable.ErrUnknownJob):
		return nil
	case err != nil:
		return err
	}
	run := durable.RunOf(job, s.Args, limits...)
	s.Limits = run.Limits
	if fault := run.Fault(); fault != nil {
		return fmt.Errorf("%w: %w", store.ErrInvalid, fault)
	}
	return nil
}

// store stores a schedule as the flags make it, and says when it fires next.
func (f scheduleFlags) store(ctx context.Context, o *operate.Actor, s store.Schedule) (string, error) {
	if err := f.apply(&s); err != nil {
		return "", err
	}
	if f.Args != nil || f.LimitedBy != nil || s.Generation == 0 {
		if err := f.limitsOfArgs(ctx, o, &s); err != nil {
			return "", err
		}
	}
	next, err := o.SaveSchedule(ctx, s)
	if err != nil {
		return "", err
	}
	if next == nil {
		return "next never", nil
	}
	return "next " + zoned(*next, s.Rule.Zone), nil
}
