package dashboard

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// scheduleList is the page of the schedules.
type scheduleList struct {
	Schedules []scheduleRow
	Pager     pager
}

// scheduleRow is one schedule in the list.
type scheduleRow struct {
	store.ScheduleRecord

	State operate.ScheduleState
	Rule  string
}

// schedulePage is the page of one schedule.
type schedulePage struct {
	scheduleRow

	Coming []time.Time
	Past   []pastEntry
	Fault  *string
	Args   jsonView
	Plan   []fact
}

// pastEntry is one line of what a schedule did, with its run where that is still there.
type pastEntry struct {
	store.HistoryEntry

	Took  string // of the run's last attempt; empty: it has not ended
	Error *string
}

// pastOf adds to the history of a schedule what became of its runs.
func pastOf(ctx context.Context, do *operate.Actor, history []store.HistoryEntry) ([]pastEntry, error) {
	past, at := make([]pastEntry, len(history)), map[store.RunID]int{}
	var ids []store.RunID
	for i, entry := range history {
		past[i].HistoryEntry = entry
		if entry.Run != nil {
			at[*entry.Run] = i
			ids = append(ids, *entry.Run)
		}
	}
	if len(ids) == 0 {
		return past, nil
	}
	list, err := do.Runs(ctx, store.Filter{IDs: ids, Limit: len(ids)})
	for i := range list.Runs {
		run := &list.Runs[i]
		entry := &past[at[run.ID]]
		entry.Error = run.Error
		if run.StartedAt != nil && run.FinishedAt != nil {
			entry.Took = brief(run.FinishedAt.Sub(*run.StartedAt))
		}
	}
	return past, err
}

// fact is a word with its value.
type fact struct{ Name, Value string }

func (d *dashboard) schedules(ctx context.Context, r *request) (view, error) {
	if name := r.form.Get("name"); name != "" {
		return d.schedule(ctx, r, name)
	}
	list, err := r.do.Schedules(ctx, r.part())
	if err != nil {
		return view{}, err
	}
	shown := scheduleList{Pager: r.pagerOf("schedules", list.Next)}
	for i := range list.Schedules {
		shown.Schedules = append(shown.Schedules, scheduleRowOf(list.Schedules[i], r.now))
	}
	return view{page: "schedules", title: "Schedules", section: "schedules", data: shown}, nil
}

func scheduleRowOf(record store.ScheduleRecord, now time.Time) scheduleRow {
	return scheduleRow{record, operate.StateOf(record, now), ruleText(record.Rule)}
}

// ruleText is a rule as people write it.
func ruleText(rule store.Rule) string {
	var text string
	switch {
	case rule.Cron != "":
		text = rule.Cron
	case rule.Every > 0:
		text = "every " + brief(time.Duration(rule.Every))
		if !rule.Anchor.IsZero() {
			text += " from " + rule.Anchor.Format(time.RFC3339)
		}
	case !rule.Once.IsZero():
		text = "once at " + rule.Once.Format(time.RFC3339)
	default: // it could not be read
		return "–"
	}
	if rule.Zone != "" {
		text += " " + rule.Zone
	}
	return text
}

func (d *dashboard) schedule(ctx context.Context, r *request, name string) (view, error) {
	const coming, past = 10, 20
	preview, err := r.do.Preview(ctx, name, coming, past)
	if err != nil {
		return view{}, err
	}
	happened, err := pastOf(ctx, r.do, preview.Past)
	if err != nil {
		return view{}, err
	}
	record := preview.Schedule
	shown := schedulePage{scheduleRow: scheduleRowOf(record, r.now), Coming: preview.Next, Past: happened, Fault: preview.Fault,
		Args: jsonOf(record.Args, sizesOf(record.Hidden).Args), Plan: planFacts(record.Schedule())}
	return view{page: "schedule", title: record.Name, section: "schedules", data: shown}, nil
}

// planFacts says what a schedule does about missed and overlapping occurrences.
func planFacts(s store.Schedule) []fact {
	facts := []fact{{"Missed", string(s.CatchUpPolicy())}, {"Overlap", string(s.OverlapPolicy())}}
	add := func(name string, given bool, value string) {
		if given {
			facts = append(facts, fact{name, value})
		}
	}
	p := s.Plan
	add("Unfinished", p.MaxUnfinished > 0, fmt.Sprintf("at most %d", p.MaxUnfinished))
	add("Jitter", p.Jitter > 0, brief(time.Duration(p.Jitter)))
	add("Spread", p.Spread > 0, brief(time.Duration(p.Spread)))
	add("From", !p.Start.IsZero(), p.Start.UTC().Format(time.RFC3339))
	add("Until", !p.End.IsZero(), p.End.UTC().Format(time.RFC3339))
	for _, w := range p.Blackouts {
		add("Not", true, w.Days+" "+w.From+" to "+w.Until)
	}
	return facts
}

// askSchedule asks before a schedule is changed.
func (d *dashboard) askSchedule(_ context.Context, r *request) (view, error) {
	name, action := r.form.Get("name"), r.form.Get("action")
	q, known := map[string]question{
		"pause":  {Title: "Pause schedule %s?", Verb: "Pause", Says: "It creates no more runs until it is resumed. Those that it has created continue."},
		"resume": {Title: "Resume schedule %s?", Verb: "Resume", Keep: "Keep it paused", Says: "It is planned from now on. Occurrences of the time of its pause are not made up for."},
		"run": {Title: "Run schedule %s now?", Verb: "Run now", Keep: "Not now", Says: "It creates one run, due now, with its args. Its own times stay. While an earlier run of it has not ended it is refused, unless you allow the overlap.",
			Rows: [][]input{{{Name: "overlap", Label: "While an earlier run has not ended", Choices: []choice{{Value: "", Label: "refuse"}, {Value: "allow", Label: "run all the same"}}}}}},
		"remove": {Title: "Delete schedule %s?", Verb: "Delete", Danger: true, Word: "delete", Says: "It creates no more runs; those that it has created stay. A worker that declares it creates it again."},
	}[action]
	if !known {
		return view{}, fmt.Errorf("%w: action %q: want pause, resume, run or remove", store.ErrInvalid, clip(50, action))
	}
	q.To, q.Title, q.Back = "schedules/change", fmt.Sprintf(q.Title, clip(200, name)), back(r.form, "schedules")
	return r.ask("schedules", q, "name", name, "action", action), nil
}

func (d *dashboard) changeSchedule(ctx context.Context, r *request) (view, error) {
	asked, err := d.askSchedule(ctx, r)
	if err != nil {
		return view{}, err
	}
	name, action := r.form.Get("name"), r.form.Get("action")
	var made operate.ScheduledRun
	answer, err := r.answered(ctx, asked, action, "schedules", func(ctx context.Context) (err error) {
		switch action {
		case "pause":
			return r.do.PauseSchedule(ctx, name)
		case "resume":
			return r.do.ResumeSchedule(ctx, name)
		case "remove":
			_, err = r.do.DeleteSchedule(ctx, name)
			return err
		default:
			overlap := store.OverlapPolicy("")
			if r.form.Get("overlap") == "allow" {
				overlap = store.OverlapAllow
			}
			made, err = r.do.RunSchedule(ctx, name, overlap)
			return err
		}
	})
	switch {
	case err != nil || answer.to == "":
		return answer, err
	case action == "run":
		return view{to: "runs/" + made.ID.String() + "?did=run"}, nil
	case action == "remove":
		return view{to: "schedules?did=remove"}, nil
	default:
		return answer, nil
	}
}
