package durablecmd

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// schedulesVerb is the verb schedules.
type schedulesVerb struct {
	List    schedulesListVerb    `cmd:"" help:"List schedules by name, paused ones too."`
	Show    schedulesShowVerb    `cmd:"" help:"Show one schedule."`
	Preview schedulesPreviewVerb `cmd:"" help:"Show what became of the last occurrences, and the next ones."`
	Create  schedulesCreateVerb  `cmd:"" help:"Make a schedule of a job."`
	Set     schedulesSetVerb     `cmd:"" help:"Change a schedule; flags that are not given leave their part as it is. It stands until the code's own schedule changes."`
	Pause   schedulesPauseVerb   `cmd:"" help:"Pause a schedule."`
	Resume  schedulesResumeVerb  `cmd:"" help:"Resume a schedule; it is planned from now on."`
	RunNow  schedulesRunNowVerb  `cmd:"" help:"Make a run of a schedule now, and print its id. The schedule does not move."`
	Delete  schedulesDeleteVerb  `cmd:"" help:"Delete a schedule. Its runs stay; a worker that declares it makes it anew."`
}

type (
	schedulesListVerb struct {
		JSON bool `name:"json" help:"Print JSON."`
	}
	schedulesShowVerb struct {
		Name string `arg:"" help:"Name of the schedule."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	schedulesPreviewVerb struct {
		Name string `arg:"" help:"Name of the schedule."`
		Next int    `default:"5" help:"Next occurrences, 0 to 1000."`
		Past int    `default:"5" help:"Past runs, skips and changes, each 0 to 1000."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	schedulesPauseVerb struct {
		Name string `arg:"" help:"Name of the schedule."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	schedulesResumeVerb struct {
		Name string `arg:"" help:"Name of the schedule."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	schedulesDeleteVerb struct {
		Name string `arg:"" help:"Name of the schedule."`
		JSON bool   `name:"json" help:"Print JSON."`
	}
	schedulesRunNowVerb struct {
		Name  string `arg:"" help:"Name of the schedule."`
		Force bool   `help:"Also while a run of the schedule has not ended."`
		JSON  bool   `name:"json" help:"Print JSON."`
	}
)

// scheduleNamed reads one schedule.
func scheduleNamed(ctx context.Context, db backend.Store, name string) (store.ScheduleRecord, error) {
	records, err := db.ListSchedules(ctx, name)
	if err == nil && len(records) == 0 {
		err = fmt.Errorf("schedule %s: %w", name, durable.ErrNotFound)
	}
	if err != nil {
		return store.ScheduleRecord{}, err
	}
	return records[0], nil
}

// Run prints all schedules.
func (v schedulesListVerb) Run(ctx context.Context, p *program) error {
	return p.withStore(ctx, served, func(ctx context.Context, store backend.Store, _ Config) error {
		records, err := store.ListSchedules(ctx)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(map[string]any{"schedules": notNil(records), "next": nil})
		}
		return p.printSchedules(records, p.now())
	})
}

// Run prints one schedule.
func (v schedulesShowVerb) Run(ctx context.Context, p *program) error {
	return p.withStore(ctx, served, func(ctx context.Context, store backend.Store, _ Config) error {
		record, err := scheduleNamed(ctx, store, v.Name)
		if err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(record)
		}
		return p.printSchedule(record, p.now())
	})
}

// preview is the answer of schedules preview as JSON.
type preview struct {
	Next  []time.Time          `json:"next"`
	Past  []store.HistoryEntry `json:"past"`
	Fault *string              `json:"fault"` // why there are no next ones
}

// Run prints the past and the next occurrences.
func (v schedulesPreviewVerb) Run(ctx context.Context, p *program) error {
	if v.Next < 0 || v.Next > 1000 || v.Past < 0 || v.Past > 1000 {
		return usage("--next %d --past %d: want 0 to 1000", v.Next, v.Past)
	}
	return p.withStore(ctx, served, func(ctx context.Context, store backend.Store, _ Config) error {
		record, err := scheduleNamed(ctx, store, v.Name)
		if err != nil {
			return err
		}
		var seen preview
		if seen.Past, err = store.ScheduleHistory(ctx, v.Name, v.Past); err != nil {
			return err
		}
		schedule := record.Schedule()
		if !record.Paused {
			seen.preview(&record, &schedule, p.now(), v.Next)
		}
		if v.JSON {
			seen.Next, seen.Past = notNil(seen.Next), notNil(seen.Past)
			return p.printJSON(seen)
		}
		return p.printPreview(record, seen, p.now())
	})
}

// preview finds the next occurrences, or says why it cannot.
func (seen *preview) preview(record *store.ScheduleRecord, schedule *store.Schedule, now time.Time, n int) {
	next, err := schedule.Preview(now, n)
	switch {
	case err == nil:
		seen.Next = next
	case record.Fault != nil:
		seen.Fault = record.Fault
	default:
		text := err.Error()
		seen.Fault = &text
	}
}

// printer says what was done, to people or as JSON.
type printer func(ctx context.Context, store backend.Store, name, done string) error

// said returns what says that a schedule was changed: as JSON, the schedule as
// it stands now.
func (p *program) said(asJSON bool) printer {
	return func(ctx context.Context, store backend.Store, name, done string) error {
		if !asJSON {
			_, err := fmt.Fprintf(p.stdout, "%s %s\n", name, done)
			return err
		}
		record, err := scheduleNamed(ctx, store, name)
		if err != nil {
			return err
		}
		return p.printJSON(record)
	}
}

// act does one thing with a schedule and says so.
func (p *program) act(ctx context.Context, name string, action store.ScheduleAction, done string, say printer) error {
	return p.withStore(ctx, served, func(ctx context.Context, store backend.Store, _ Config) error {
		if err := store.ChangeSchedule(ctx, name, action, actor()); err != nil {
			return err
		}
		return say(ctx, store, name, done)
	})
}

// Run pauses.
func (v schedulesPauseVerb) Run(ctx context.Context, p *program) error {
	return p.act(ctx, v.Name, store.PauseSchedule, "paused", p.said(v.JSON))
}

// Run resumes.
func (v schedulesResumeVerb) Run(ctx context.Context, p *program) error {
	return p.act(ctx, v.Name, store.ResumeSchedule, "resumed", p.said(v.JSON))
}

// Run deletes.
func (v schedulesDeleteVerb) Run(ctx context.Context, p *program) error {
	say := p.said(false)
	if v.JSON {
		say = func(_ context.Context, _ backend.Store, name, _ string) error {
			return p.printJSON(map[string]any{"name": name, "deleted": true})
		}
	}
	return p.act(ctx, v.Name, store.DeleteSchedule, "deleted", say)
}

// Run makes a run and prints its id.
func (v schedulesRunNowVerb) Run(ctx context.Context, p *program) error {
	overlap := durable.OverlapSkip
	if v.Force {
		overlap = durable.OverlapAllow
	}
	return p.withStore(ctx, served, func(ctx context.Context, store backend.Store, _ Config) error {
		id := durable.NewRunID()
		if err := store.RunSchedule(ctx, v.Name, id, overlap, actor()); err != nil {
			return err
		}
		if v.JSON {
			return p.printJSON(map[string]any{"schedule": v.Name, "id": id})
		}
		_, err := fmt.Fprintln(p.stdout, id)
		return err
	})
}
