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
		table.row(r.Name, ruleText(r.Rule), r.Job, scheduleState(r, now), agoOrDash(r.NextAt, now), edited)
	}
	return table.flush()
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
	if r.NextAt != nil {
		table.row("next", r.NextAt.Format(time.RFC3339)+" ("+ago(*r.NextAt, now)+")")
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
		table.row(line.At.Format(time.RFC3339), ago(line.At, now), string(line.Kind), pastDetail(line))
	}
	for _, at := range seen.Next {
		table.row(at.Format(time.RFC3339), ago(at, now), "next", "")
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
