package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"

	cronlib "github.com/netresearch/go-cron"
)

// wallClock fires at wall-clock times of a zone.
//
// A rule that repeats within the day (a second, minute or hour field with * or
// a step, such as */15) fires at every instant whose wall time matches: in a
// repeated hour twice as often, in a skipped hour not at all, so that its beat
// goes on. Any other rule names fixed times of day: each fires once, at the
// first of two instants that have it, and at the first instant after the gap
// when no instant has it.
type wallClock struct {
	fields  *cronlib.SpecSchedule
	zone    *time.Location
	repeats bool
}

// searchYears is how far the next match may lie ahead. February 29 on a
// weekday comes once in 28 years, or 40 around 2100.
const searchYears = 45

func parse(expression string, zone *time.Location) (*wallClock, error) {
	text := strings.ToLower(strings.TrimSpace(expression)) // an H, as in THU, would mean something else to the library
	wrong := func(err error) error { return fmt.Errorf("cron %q: %w: %s", expression, err, example) }
	if !strings.HasPrefix(text, "@") {
		var err error
		if text, err = normalize(text); err != nil {
			return nil, wrong(err)
		}
	} else if strings.HasPrefix(text, "@every") {
		return nil, wrong(errors.New("an interval is no cron expression"))
	}
	parser, err := cronlib.TryNewParser(cronlib.SecondOptional | cronlib.Minute | cronlib.Hour | cronlib.Dom | cronlib.Month | cronlib.Dow |
		cronlib.DomL | cronlib.DomW | cronlib.DowNth | cronlib.DowLast | cronlib.Descriptor | cronlib.DowOrDom)
	if err != nil {
		return nil, fmt.Errorf("cron parser: %w", err)
	}
	parsed, err := parser.Parse(text)
	if err != nil {
		return nil, wrong(err)
	}
	fields, ok := parsed.(*cronlib.SpecSchedule)
	if !ok {
		return nil, wrong(errors.New("it names no times"))
	}
	fields.Location, fields.MaxSearchYears = time.UTC, searchYears
	w := &wallClock{fields: fields, zone: zone, repeats: text == "@hourly"}
	for _, field := range firstFields(text) {
		w.repeats = w.repeats || strings.ContainsAny(field, "*?/")
	}
	return w, nil
}

// next returns the first instant after t; the zero time if there is none.
func (w *wallClock) next(t time.Time) time.Time {
	if w.repeats {
		return w.nextMatch(t)
	}
	wall := w.wallOf(t)
	for {
		if wall = w.fields.Next(wall); wall.IsZero() {
			return time.Time{}
		}
		if instant := w.instantOf(wall); instant.After(t) {
			return instant
		}
	}
}

// nextMatch finds the first instant after t whose wall time matches.
func (w *wallClock) nextMatch(t time.Time) time.Time {
	limit := t.AddDate(searchYears, 0, 0)
	for t.Before(limit) {
		offset := offsetOf(t, w.zone)
		_, end := t.In(w.zone).ZoneBounds()
		wall := w.fields.Next(t.UTC().Add(offset))
		if wall.IsZero() {
			return time.Time{}
		}
		instant := wall.Add(-offset)
		if end.IsZero() || instant.Before(end) {
			return instant
		}
		if w.matches(w.wallOf(end)) { // the first instant of the next period
			return end.UTC()
		}
		t = end
	}
	return time.Time{}
}

// matches tells whether the fields hold at a wall time.
func (w *wallClock) matches(wall time.Time) bool {
	return w.fields.Next(wall.Add(-time.Second)).Equal(wall)
}

// wallOf is the wall time of an instant, written as if it were UTC.
func (w *wallClock) wallOf(t time.Time) time.Time { return t.UTC().Add(offsetOf(t, w.zone)) }

func (w *wallClock) instantOf(wall time.Time) time.Time { return instantOf(wall, w.zone) }

func offsetOf(t time.Time, zone *time.Location) time.Duration {
	_, offset := t.In(zone).Zone()
	return time.Duration(offset) * time.Second
}

// instantOf is the first instant that has a wall time, or the first one after
// the gap that swallowed it. No zone was ever more than 16 hours from UTC.
func instantOf(wall time.Time, zone *time.Location) time.Time {
	t := wall.Add(-16 * time.Hour)
	for {
		start, end := t.In(zone).ZoneBounds()
		instant := wall.Add(-offsetOf(t, zone))
		if !start.IsZero() && instant.Before(start) {
			return start.UTC()
		}
		if end.IsZero() || instant.Before(end) {
			return instant
		}
		t = end
	}
}
