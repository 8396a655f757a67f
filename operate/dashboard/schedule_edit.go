package dashboard

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// coming is how many occurrences a preview shows.
const coming = 5

// askEdit asks for the times of a schedule, and shows what they would be.
func (d *dashboard) askEdit(ctx context.Context, r *request) (view, error) {
	name := r.form.Get("name")
	record, err := r.do.Schedule(ctx, name)
	if err != nil {
		return view{}, err
	}
	given := func(name, otherwise string) string {
		if r.form.Has(name) {
			return r.form.Get(name)
		}
		return otherwise
	}
	rule := record.Rule.Cron
	if rule == "" && record.Rule.Every > 0 {
		rule = "every " + time.Duration(record.Rule.Every).String()
	}
	schedule := record.Schedule()
	args := ""
	if r.who.Args {
		args = given("args", pretty(record.Args))
	}
	q := question{To: "schedules/edit", Title: "Edit schedule " + clip(200, name), Verb: "Store", Keep: "Keep it as it is", Second: "Preview",
		Back: link("schedules", "name", name),
		Says: "Your version counts until the code that declares it changes. Runs that it has created stay.",
		Rows: ruleRows(given, rule, args, schedule)}
	return r.ask("schedules", q, "name", name, "generation", given("generation", strconv.FormatInt(record.Generation, 10))), nil
}

// ruleRows ask for the times of a schedule and the args of its runs.
func ruleRows(given func(name, otherwise string) string, rule, args string, s store.Schedule) [][]input {
	return [][]input{
		{{Name: "rule", Label: "Rule", Value: given("rule", rule), Note: "cron, or every 15m"}, {Name: "zone", Label: "Zone", Value: given("zone", s.Rule.Zone), Hint: "UTC", Note: "such as Europe/Berlin"}},
		{{Name: "catch_up", Label: "Missed occurrences", Choices: chosen(given("catch_up", string(s.CatchUpPolicy())), "skip", "latest", "all")},
			{Name: "overlap", Label: "While an earlier run has not ended", Choices: chosen(given("overlap", string(s.OverlapPolicy())), "skip", "wait", "allow")}},
		{{Name: "args", Label: "Args", Kind: "long", Value: args, Note: "JSON"}},
	}
}

// chosen are choices with one of them chosen.
func chosen(value string, all ...string) (choices []choice) {
	for _, one := range all {
		choices = append(choices, choice{Value: one, Chosen: one == value})
	}
	return choices
}

func (d *dashboard) edit(ctx context.Context, r *request) (view, error) {
	asked, err := d.askEdit(ctx, r)
	if err != nil {
		return view{}, err
	}
	schedule, err := d.edited(ctx, r)
	if err != nil {
		return asked.again(err)
	}
	return saved(ctx, r, asked, schedule)
}

// saved stores a schedule, or shows when it would fire.
func saved(ctx context.Context, r *request, asked view, schedule store.Schedule) (view, error) {
	if r.form.Get("second") == "" {
		if _, err := r.do.SaveSchedule(ctx, schedule); err != nil {
			return asked.again(err)
		}
		return view{to: with(link("schedules", "name", schedule.Name), map[string][]string{"did": {"set"}})}, nil
	}
	if err := store.CheckSchedule(schedule); err != nil {
		return asked.again(err)
	}
	next, err := schedule.Preview(r.now, coming)
	if err != nil {
		return asked.again(fmt.Errorf("%w: %w", store.ErrInvalid, err))
	}
	q, _ := asked.data.(question)
	q.Times, q.Previewed = next, true
	asked.data = q
	return asked, nil
}

// askNewSchedule asks for a schedule that is not there yet.
func (d *dashboard) askNewSchedule(ctx context.Context, r *request) (view, error) {
	known, err := d.operator.Known(ctx)
	if err != nil {
		return view{}, err
	}
	job := input{Name: "job", Label: "Job", Value: r.form.Get("job")}
	if len(known.Jobs) <= choicesMost {
		job.Choices = chosen(r.form.Get("job"), known.Jobs...)
	}
	given := func(name, otherwise string) string {
		if r.form.Has(name) {
			return r.form.Get(name)
		}
		return otherwise
	}
	args := ""
	if r.who.Args {
		args = given("args", "{}")
	}
	rows := append([][]input{{{Name: "name", Label: "Name", Value: r.form.Get("name"), Hint: "nightly-report"}, job}},
		ruleRows(given, "", args, store.Schedule{})...)
	rows = append(rows, []input{{Name: "queue", Label: "Queue", Value: r.form.Get("queue"), Hint: "that of the job"}, {Name: "tags", Label: "Tags", Value: r.form.Get("tags"), Hint: "with commas between"}})
	return r.ask("schedules", question{To: "schedules/new", Title: "Create a schedule", Verb: "Create", Keep: "Not now", Second: "Preview", Rows: rows,
		Says: "It creates a run of the job at each of its times, with these args and with what the job declares otherwise."}), nil
}

func (d *dashboard) newSchedule(ctx context.Context, r *request) (view, error) {
	asked, err := d.askNewSchedule(ctx, r)
	if err != nil {
		return view{}, err
	}
	job, err := d.operator.Job(ctx, r.form.Get("job"))
	if err != nil {
		return asked.again(fmt.Errorf("%w: job %q: no worker has declared it", store.ErrInvalid, clip(100, r.form.Get("job"))))
	}
	s := store.Schedule{Name: strings.TrimSpace(r.form.Get("name")), Job: job.Name, Queue: job.Queue, Priority: job.Priority, MaxAttempts: job.MaxAttempts,
		Timeout: time.Duration(job.Timeout), OnCrash: job.OnCrash, Tags: given(strings.Split(r.form.Get("tags"), ","))}
	if queue := strings.TrimSpace(r.form.Get("queue")); queue != "" {
		s.Queue = queue
	}
	if s, err = timed(r, s); err != nil {
		return asked.again(err)
	}
	return saved(ctx, r, asked, s)
}

// edited is a schedule with the values of the form.
func (d *dashboard) edited(ctx context.Context, r *request) (store.Schedule, error) {
	record, err := r.do.Schedule(ctx, r.form.Get("name"))
	if err != nil {
		return store.Schedule{}, err
	}
	s := record.Schedule()
	if s.Generation, err = strconv.ParseInt(r.form.Get("generation"), 10, 64); err != nil || s.Generation < 1 {
		return s, fmt.Errorf("%w: generation %q", store.ErrInvalid, clip(50, r.form.Get("generation")))
	}
	return timed(r, s)
}

// timed is a schedule with the times and the args of the form.
func timed(r *request, s store.Schedule) (store.Schedule, error) {
	text, zone := strings.TrimSpace(r.form.Get("rule")), strings.TrimSpace(r.form.Get("zone"))
	switch interval, every := strings.CutPrefix(text, "every "); {
	case every:
		length, err := time.ParseDuration(strings.ReplaceAll(interval, " ", ""))
		if err != nil {
			return s, fmt.Errorf("%w: rule %q: want every and a duration, such as every 15m", store.ErrInvalid, clip(100, text))
		}
		anchor := s.Rule.Anchor
		s.Rule = store.Every(length).In(zone)
		if !anchor.IsZero() {
			s.Rule = s.Rule.From(anchor)
		}
	case text == "" && !s.Rule.Once.IsZero():
	default:
		s.Rule = store.Cron(text, zone)
	}
	s.Plan.CatchUp, s.Plan.Overlap = store.CatchUpPolicy(r.form.Get("catch_up")), store.OverlapPolicy(r.form.Get("overlap"))
	args, _, err := runOf(r)
	s.Args = args
	return s, err
}
