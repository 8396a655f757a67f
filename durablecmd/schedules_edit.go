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
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// scheduleFlags are the parts of a schedule. What is not given stays as it is.
type scheduleFlags struct {
	Cron          *string        `xor:"rule" help:"Cron expression of 5 or 6 fields, or a word such as @daily."`
	Every         *time.Duration `xor:"rule" help:"Interval, at least 1s."`
	Once          *time.Time     `xor:"rule" help:"A single instant, such as 2030-01-31T08:00:00Z."`
	Zone          *string        `help:"IANA time zone, such as Europe/Berlin. Default UTC."`
	Args          *string        `help:"Arguments of each run as JSON."`
	CatchUp       *string        `help:"What becomes of missed occurrences: skip (default), latest or all."`
	CatchUpWithin *time.Duration `help:"Older missed occurrences are skipped; 0 is no bound."`
	CatchUpMost   *int           `help:"Only so many of the latest missed occurrences become runs; 0 is 1000."`
	MaxUnfinished *int           `help:"1 to 1000. Unfinished runs of it that may exist at once, over all hosts, before --overlap counts. Default 1."`
	Overlap       *string        `help:"What becomes of an occurrence while an earlier run has not ended: skip (default), wait or allow."`
	Start         *time.Time     `help:"Nothing before this instant; 0001-01-01T00:00:00Z removes it."`
	End           *time.Time     `help:"Nothing at or after this instant; 0001-01-01T00:00:00Z removes it."`
	Blackout      []string       `sep:"none" help:"Not within: sat,sun or mon-fri/22:00/06:00 or 2026-12-24/2026-12-26; may be repeated. Replaces all; none removes them."`
	Jitter        *time.Duration `help:"Each run is due up to so much later."`
	Spread        *time.Duration `help:"All occurrences are moved by one delay below this, by the schedule's name."`
	Queue         *string        `help:"Queue of the runs."`
	Priority      *int           `help:"Priority of the runs, -4 to 4, larger first."`
	MaxAttempts   *int           `help:"Attempts until a run is dead."`
	Timeout       *time.Duration `help:"Time limit of one attempt; 0 is none."`
}

type (
	schedulesCreateVerb struct {
		Name   string `arg:"" help:"Name of the schedule."`
		Job    string `arg:"" help:"Name of the job, as a worker has declared it."`
		Paused bool   `help:"Make it paused."`
		Force  bool   `help:"Also when no worker has declared the job."`
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
		s.Rule = durable.Once(*f.Once).In(zone)
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
	set(&plan.Start, f.Start)
	set(&plan.End, f.End)
	set((*time.Duration)(&plan.Jitter), f.Jitter)
	set((*time.Duration)(&plan.Spread), f.Spread)
	set(&s.Queue, f.Queue)
	set(&s.Priority, f.Priority)
	set(&s.MaxAttempts, f.MaxAttempts)
	set(&s.Timeout, f.Timeout)
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

// Run makes a schedule.
func (v schedulesCreateVerb) Run(ctx context.Context, p *program) error {
	return p.withStore(ctx, migrated, func(ctx context.Context, db backend.Store, _ Config) error {
		job, err := enqueueVerb{Job: v.Job, Force: v.Force}.declared(ctx, db, p.jobs)
		if err != nil {
			return err
		}
		s := store.Schedule{Name: v.Name, Job: job.Name, Queue: job.Queue, Priority: job.Priority, Args: json.RawMessage("{}"),
			MaxAttempts: job.MaxAttempts, Timeout: time.Duration(job.Timeout), OnCrash: job.OnCrash, Paused: v.Paused}
		return p.saveSchedule(ctx, db, s, v.scheduleFlags, "created", p.said(v.JSON))
	})
}

// Run changes a schedule. What nobody changed must not become an operator's
// version.
func (v schedulesSetVerb) Run(ctx context.Context, p *program) error {
	return p.withStore(ctx, served, func(ctx context.Context, store backend.Store, _ Config) error {
		record, err := scheduleNamed(ctx, store, v.Name)
		if err != nil {
			return err
		}
		if reflect.ValueOf(v.scheduleFlags).IsZero() {
			return usage("nothing to change: want a flag such as --every 1h")
		}
		return p.saveSchedule(ctx, store, record.Schedule(), v.scheduleFlags, "changed", p.said(v.JSON))
	})
}

// saveSchedule stores a schedule as the flags make it and says what comes of
// it.
func (p *program) saveSchedule(ctx context.Context, db backend.Store, s store.Schedule, flags scheduleFlags, done string, say printer) error {
	if err := flags.apply(&s); err != nil {
		return err
	}
	if err := store.CheckSchedule(s); err != nil {
		return err
	}
	next, err := s.Preview(p.now(), 1)
	if err != nil {
		return err
	}
	if len(next) == 0 && s.Generation == 0 {
		return fmt.Errorf("%w: schedule %s would never fire from now on: its instant or its end has passed", durable.ErrInvalid, s.Name)
	}
	if err := db.SaveSchedule(ctx, s, actor()); err != nil {
		if errors.Is(err, durable.ErrConflict) && s.Generation == 0 {
			err = fmt.Errorf("there is one of this name, which schedules set changes: %w", err)
		}
		return err
	}
	when := "never"
	if len(next) > 0 {
		when = next[0].Format(time.RFC3339)
	}
	return say(ctx, db, s.Name, done+", next "+when)
}
