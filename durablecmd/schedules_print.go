package durablecmd

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// ruleText is a rule as people write it.
func ruleText(r durable.Rule) string {
	var text string
	switch {
	case r == durable.Rule{}: // it could not be read
		return "-"
	case r.Cron != "":
		text = r.Cron
	case r.Every > 0:
		text = "every " + time.Duration(r.Every).String()
		if !r.Anchor.IsZero() {
			text += " from " + r.Anchor.Format(time.RFC3339)
		}
	default:
		text = "once at " + r.Once.Format(time.RFC3339)
	}
	if r.Zone != "" {
		text += " " + r.Zone
	}
	return text
}

// scheduleState is the first thing to know of a schedule.
func scheduleState(r store.ScheduleRecord, now time.Time) string {
	state := string(operate.StateOf(r, now))
	if r.Paused && r.PausedBy != nil {
		state += " by " + *r.PausedBy
	}
	return state
}

func (p *program) printSchedules(records []store.ScheduleRecord, now time.Time) error {
	if len(records) == 0 {
		_, err := fmt.Fprintln(p.stdout, "no schedules")
		return err
	}
	table := p.newTable("EDITED", "JOB")
	table.row("NAME", "RULE", "JOB", "STATE", "NEXT", "EDITED")
	for _, r := range records {
		edited := "-"
		if r.Edited {
			edited = "by an operator"
		}
		table.row(r.Name, ruleText(r.Rule), r.Job, scheduleState(r, now), nextText(r, now), edited)
	}
	return table.flush()
}

// nextOf is when a schedule fires next, the zero time if it does not. Before a worker
// has planned it, the time follows from its rule.
func nextOf(r store.ScheduleRecord, now time.Time) (next time.Time, planned bool) {
	if r.NextAt != nil {
		return *r.NextAt, true
	}
	if r.Paused || r.Fault != nil {
		return time.Time{}, false
	}
	schedule := r.Schedule()
	coming, err := schedule.Preview(now, 1)
	if err != nil || len(coming) == 0 {
		return time.Time{}, false
	}
	return coming[0], false
}

// overdueAfter is how late an occurrence is before a worker should have come to it.
const overdueAfter = 30 * time.Second

// nextText says when a schedule fires next, and what keeps it from that.
func nextText(r store.ScheduleRecord, now time.Time) string {
	next, planned := nextOf(r, now)
	switch {
	case next.IsZero():
		return "-"
	case !planned:
		return ago(next, now) + ", once a worker has planned it"
	case r.Waiting:
		return "waits for an earlier run since " + brief(now.Sub(next))
	case now.Sub(next) > overdueAfter:
		return "overdue by " + brief(now.Sub(next)) + ": is a worker alive?"
	default:
		return ago(next, now)
	}
}

// zoned is an instant in the zone of a schedule, and in UTC.
func zoned(at time.Time, zone string) string {
	utc := at.UTC().Format(time.RFC3339)
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "" || location == time.UTC {
		return utc
	}
	return at.In(location).Format(time.RFC3339) + " " + zone + ", " + utc
}

func agoOrDash(t *time.Time, now time.Time) string {
	if t == nil {
		return "-"
	}
	return ago(*t, now)
}

func (p *program) printSchedule(r store.ScheduleRecord, now time.Time) error {
	plan, err := json.Marshal(r.Plan)
	if err != nil {
		return err
	}
	table := p.newTable()
	table.row("name", r.Name)
	table.row("rule", ruleText(r.Rule))
	table.row("plan", string(plan))
	table.row("state", scheduleState(r, now))
	if r.Fault != nil {
		table.row("fault", *r.Fault)
	}
	if next, _ := nextOf(r, now); !next.IsZero() {
		table.row("next", zoned(next, r.Rule.Zone)+" ("+nextText(r, now)+")")
	}
	table.row("job", r.Job)
	table.row("queue", r.Queue)
	table.row("priority", strconv.Itoa(r.Priority))
	table.row("attempts", strconv.Itoa(r.MaxAttempts))
	if r.Timeout > 0 {
		table.row("timeout", time.Duration(r.Timeout).String())
	}
	table.row("args", oneLine(r.Args))
	table.metadata(r.Metadata)
	table.row("generation", strconv.FormatInt(r.Generation, 10))
	table.row("declared", agoOrDash(r.DeclaredAt, now))
	table.row("edited", strconv.FormatBool(r.Edited))
	return table.flush()
}

func (p *program) printPreview(seen operate.Preview, now time.Time) error {
	table := p.newTable()
	table.row("WHEN", "", "WHAT", "DETAIL")
	for i := len(seen.Past) - 1; i >= 0; i-- {
		line := seen.Past[i]
		table.row(zoned(line.At, seen.Schedule.Rule.Zone), ago(line.At, now), string(line.Kind), pastDetail(line))
	}
	for _, at := range seen.Next {
		table.row(zoned(at, seen.Schedule.Rule.Zone), ago(at, now), "next", "")
	}
	if err := table.flush(); err != nil {
		return err
	}
	if seen.Fault != nil {
		_, err := fmt.Fprintf(p.stdout, "\nfaulty: %s\n", *seen.Fault)
		return err
	}
	switch operate.StateOf(seen.Schedule, now) {
	case operate.SchedulePaused, operate.ScheduleOver:
		_, err := fmt.Fprintf(p.stdout, "\n%s: no next occurrence\n", scheduleState(seen.Schedule, now))
		return err
	default:
		return nil
	}
}

// pastDetail says what a line of the past is about.
func pastDetail(line store.HistoryEntry) string {
	switch line.Kind {
	case store.HistoryRun:
		if line.Occurrence == nil {
			return fmt.Sprintf("%s %v, created by an operator", line.Run, line.State)
		}
		return fmt.Sprintf("%s %v", line.Run, line.State)
	case store.HistorySkip:
		detail := orDash(line.Reason)
		if line.First != nil && !line.First.Equal(line.At) {
			detail += ", all since " + line.First.Format(time.RFC3339)
		}
		return detail
	default:
		return orDash(line.Reason) + " by " + orDash(line.By)
	}
}
