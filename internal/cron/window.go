package cron

import (
	"fmt"
	"strings"
	"time"
)

// Window is a time in which a schedule does not fire, in the schedule's zone.
// With Days it recurs each week: on those days, from From until Until ("22:00",
// "06:00"; an Until that is not later than From is on the next day; both empty:
// the whole day). Without Days, From and Until are dates ("2026-12-24"), both
// included, or wall times ("2026-12-24T18:00"), Until excluded.
type Window struct {
	Days  string // such as "sat,sun", "mon-fri" or "*"
	From  string
	Until string
}

const windowExample = `want such as {Days: "sat,sun"}, {Days: "mon-fri", From: "22:00", Until: "06:00"} or {From: "2026-12-24", Until: "2026-12-26"}`

// window is a Window that has been read. Times are wall times written as UTC.
type window struct {
	weekly      bool
	days        [7]bool
	from        time.Duration // since midnight
	length      time.Duration
	first, last time.Time // last is excluded
}

func (w Window) compile() (window, error) {
	wrong := fmt.Errorf("blackout {Days: %q, From: %q, Until: %q}: %s", w.Days, w.From, w.Until, windowExample)
	if w.Days == "" {
		first, _, ok := parseWall(w.From)
		last, date, also := parseWall(w.Until)
		if date {
			last = last.AddDate(0, 0, 1)
		}
		if !ok || !also || !first.Before(last) {
			return window{}, wrong
		}
		return window{first: first, last: last}, nil
	}
	days, ok := parseDays(w.Days)
	compiled := window{weekly: true, days: days, length: 24 * time.Hour}
	if w.From != "" || w.Until != "" {
		from, err := time.Parse("15:04", w.From)
		until, also := time.Parse("15:04", w.Until)
		ok = ok && err == nil && also == nil
		midnight := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
		compiled.from = from.Sub(midnight)
		if compiled.length = until.Sub(from); compiled.length <= 0 {
			compiled.length += 24 * time.Hour
		}
	}
	if !ok {
		return window{}, wrong
	}
	return compiled, nil
}

func parseWall(text string) (t time.Time, date, ok bool) {
	if t, err := time.Parse("2006-01-02", text); err == nil {
		return t, true, true
	}
	t, err := time.Parse("2006-01-02T15:04", text)
	return t, false, err == nil
}

// parseDays reads days and ranges of days, in lower case or not.
func parseDays(text string) (days [7]bool, ok bool) {
	names := map[string]int{"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
	if text == "*" {
		return [7]bool{true, true, true, true, true, true, true}, true
	}
	for part := range strings.SplitSeq(strings.ToLower(text), ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		first, known := names[from]
		last, also := names[to]
		if !isRange {
			last, also = first, true
		}
		if !known || !also {
			return days, false
		}
		for day := first; ; day = (day + 1) % 7 {
			days[day] = true
			if day == last {
				break
			}
		}
	}
	return days, true
}

// around returns the bounds of the window that a wall time lies in.
func (w *window) around(wall time.Time) (from, end time.Time, inside bool) {
	if !w.weekly {
		return w.first, w.last, !wall.Before(w.first) && wall.Before(w.last)
	}
	midnight := time.Date(wall.Year(), wall.Month(), wall.Day(), 0, 0, 0, 0, time.UTC)
	for _, day := range []time.Time{midnight, midnight.AddDate(0, 0, -1)} {
		from := day.Add(w.from)
		if end := from.Add(w.length); w.days[day.Weekday()] && !wall.Before(from) && wall.Before(end) {
			return from, end, true
		}
	}
	return time.Time{}, time.Time{}, false
}
