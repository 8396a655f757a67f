// Package cron is the one place that knows the cron library. It narrows it to
// what a schedule may say: five fields, or six with seconds first, names,
// ranges, steps and lists, @daily and its kind; a time zone by its IANA name.
package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"

	cronlib "github.com/netresearch/go-cron"
)

// Rule answers when a schedule fires.
type Rule struct {
	spec  cronlib.Schedule
	zone  *time.Location
	every time.Duration
}

const example = `want five fields such as "0 3 * * 1-5" (03:00 on weekdays), six with seconds first, or @daily`

// Parse reads a cron expression in an IANA zone ("" is UTC). It refuses what
// can never fire within the next years.
func Parse(expression, zone string) (Rule, error) {
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return Rule{}, fmt.Errorf(`time zone %q is not known: want an IANA name such as "Europe/Berlin"`, zone)
	}
	if strings.Contains(expression, "=") || strings.HasPrefix(strings.TrimSpace(expression), "@every") {
		return Rule{}, fmt.Errorf("cron %q: %s", expression, example)
	}
	parser, err := cronlib.TryNewParser(cronlib.SecondOptional | cronlib.Minute | cronlib.Hour | cronlib.Dom |
		cronlib.Month | cronlib.Dow | cronlib.Descriptor | cronlib.DowOrDom)
	if err != nil {
		return Rule{}, fmt.Errorf("cron parser: %w", err)
	}
	spec, err := parser.Parse(expression)
	if err != nil {
		return Rule{}, fmt.Errorf("cron %q: %w: %s", expression, err, example)
	}
	rule := Rule{spec: spec, zone: location}
	if rule.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Rule{}, fmt.Errorf("cron %q never fires: %s", expression, example)
	}
	return rule, nil
}

// Every returns the rule that fires at each multiple of d since the Unix epoch.
func Every(d time.Duration) (Rule, error) {
	if d < time.Second || d%time.Microsecond != 0 {
		return Rule{}, fmt.Errorf("interval %v: want at least 1s, in whole microseconds", d)
	}
	if d > 100*365*24*time.Hour {
		return Rule{}, errors.New("interval: want at most 100 years")
	}
	return Rule{every: d}, nil
}

// Next returns the first instant after t at which the rule fires, in UTC; the
// zero time if there is none.
func (r Rule) Next(t time.Time) time.Time {
	if r.every > 0 {
		micros, step := t.UnixMicro(), r.every.Microseconds()
		last := micros - ((micros%step)+step)%step
		return time.UnixMicro(last + step).UTC()
	}
	next := r.spec.Next(t.In(r.zone))
	if next.IsZero() {
		return time.Time{}
	}
	return next.UTC()
}
