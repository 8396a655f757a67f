package cron_test

import (
	"context"
	"fmt"
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every machine

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/cron"
)

// zones have every kind of change: of an hour, of half an hour, at midnight, of
// a whole day (Apia left out 2011-12-30), of offsets that are no whole hours,
// several in a year, none.
var zones = []string{
	"America/New_York", "Europe/London", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu", "UTC",
	"America/Sao_Paulo", "Africa/Casablanca",
}

// rules are expressions with the same said as a function of wall time, by hand.
var rules = []struct {
	expression string
	fixed      bool // names times of day
	matches    func(wall time.Time) bool
}{
	{"*/15 * * * *", false, func(w time.Time) bool { return w.Minute()%15 == 0 }},
	{"7 */2 * * *", false, func(w time.Time) bool { return w.Minute() == 7 && w.Hour()%2 == 0 }},
	{"10-40/10 0-3 * * *", false, func(w time.Time) bool {
		return w.Hour() <= 3 && (w.Minute() == 10 || w.Minute() == 20 || w.Minute() == 30 || w.Minute() == 40)
	}},
	{"30 2 * * *", true, func(w time.Time) bool { return w.Hour() == 2 && w.Minute() == 30 }},
	{"@daily", true, func(w time.Time) bool { return w.Hour() == 0 && w.Minute() == 0 }},
	{"15,45 0-3 * * *", true, func(w time.Time) bool { return w.Hour() <= 3 && (w.Minute() == 15 || w.Minute() == 45) }},
	{"0 1,2,3 * * SUN", true, func(w time.Time) bool {
		return w.Weekday() == time.Sunday && w.Minute() == 0 && w.Hour() >= 1 && w.Hour() <= 3
	}},
	{"0 0 30 12 *", true, func(w time.Time) bool { return w.Month() == 12 && w.Day() == 30 && w.Hour() == 0 && w.Minute() == 0 }},
}

// minute is a step of the walk: an instant and what the clock on the wall shows.
type minute struct {
	instant, wall time.Time
}

// walk goes through a stretch of time minute by minute and reads the zone's
// wall clock at each.
func walk(zone *time.Location, from, to time.Time) []minute {
	var all []minute
	for t := from; t.Before(to); t = t.Add(time.Minute) {
		l := t.In(zone)
		all = append(all, minute{t, time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)})
	}
	return all
}

// calendar is when a rule fires, by walking: a repeating one at each minute
// whose wall time matches; a fixed one once for each wall time that the clock
// shows or leaves out, at the first minute that shows it or something later.
func calendar(minutes []minute, fixed bool, matches func(time.Time) bool) []time.Time {
	var fires []time.Time
	shown := minutes[0].wall // everything up to here has been shown, or left out
	for i, m := range minutes {
		fire := false
		if !fixed {
			fire = matches(m.wall)
		} else {
			if i == 0 {
				fire = matches(m.wall)
			}
			for ; shown.Before(m.wall); fire = fire || matches(shown) {
				shown = shown.Add(time.Minute)
			}
		}
		if fire {
			fires = append(fires, m.instant)
		}
	}
	return fires
}

// changes finds the instants at which a zone's offset changes.
func changes(zone *time.Location, from, to time.Time) []time.Time {
	var found []time.Time
	offset := func(t time.Time) int { _, o := t.In(zone).Zone(); return o }
	for t := from; t.Before(to); t = t.Add(6 * time.Hour) {
		if offset(t) != offset(t.Add(6*time.Hour)) {
			found = append(found, t)
		}
	}
	return found
}

func TestNext_IsTheCalendarOfFiftyYears(t *testing.T) {
	t.Parallel()
	begin := time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)
	end := begin.AddDate(50, 0, 0)
	for _, name := range zones {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		around := changes(zone, begin, end)
		for year := range 25 { // and quiet days
			around = append(around, begin.AddDate(2*year, year%12, year%28))
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compiled := make([]*cron.Search, len(rules))
			for i, rule := range rules {
				compiled[i] = compile(t, cron.Spec{Expression: rule.expression, Zone: name})
			}
			for _, change := range around {
				minutes := walk(zone, change.Add(-3*time.Hour), change.Add(13*time.Hour))
				for i, rule := range rules {
					compareCalendars(t, rule.expression, compiled[i], minutes, calendar(minutes, rule.fixed, rule.matches))
				}
			}
		})
	}
}

func compareCalendars(t *testing.T, expression string, rule *cron.Search, minutes []minute, want []time.Time) {
	t.Helper()
	last := minutes[len(minutes)-1].instant
	at := minutes[0].instant.Add(-time.Second)
	for _, fires := range want {
		if at = rule.Next(at); !at.Equal(fires) {
			t.Fatalf("%s: fires at %v, the calendar says %v", expression, at, fires)
		}
	}
	if at = rule.Next(at); !at.IsZero() && !at.After(last) {
		t.Fatalf("%s: fires at %v, which is not in the calendar", expression, at)
	}
}

func TestKey_IsOneForEachOccurrence(t *testing.T) {
	t.Parallel()
	for _, name := range zones {
		for _, rule := range rules {
			compiled := compile(t, cron.Spec{Expression: rule.expression, Zone: name})
			seen := map[string]time.Time{}
			for at := time.Date(2011, 9, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2013 && !at.IsZero(); at = compiled.Next(at) {
				key := compiled.Key(at)
				if other, twice := seen[key]; twice {
					t.Fatalf("%s in %s: %v and %v are both %s", rule.expression, name, other, at, key)
				}
				seen[key] = at
			}
		}
	}
}

func TestNext_OverlapAndGap(t *testing.T) {
	t.Parallel()
	fires := func(expression, zone, from string, n int) []string {
		rule := compile(t, cron.Spec{Expression: expression, Zone: zone})
		at, err := time.Parse(time.RFC3339, from)
		require.NoError(t, err)
		location, err := time.LoadLocation(zone)
		require.NoError(t, err)
		var all []string
		for range n {
			at = rule.Next(at)
			all = append(all, at.In(location).Format("01-02T15:04-07:00"))
		}
		return all
	}
	require.Equal(t, []string{"03-28T02:30+01:00", "03-29T03:00+02:00", "03-30T02:30+02:00"},
		fires("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 3), "the first valid instant after the gap")
	require.Equal(t, []string{"10-25T02:30+02:00", "10-26T02:30+01:00"},
		fires("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2), "once in the overlap")
	require.Equal(t, []string{"10-25T02:30+02:00", "10-25T02:00+01:00", "10-25T02:30+01:00", "10-25T03:00+01:00"},
		fires("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", 4), "a beat goes on")
	require.Equal(t, []string{"12-29T03:00-10:00", "12-31T00:00+14:00", "12-31T03:00+14:00"},
		fires("0 3 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", 3), "a day that never was")
	require.Equal(t, []string{"11-04T01:00-02:00", "11-05T00:00-02:00"},
		fires("@daily", "America/Sao_Paulo", "2018-11-03T12:00:00Z", 2), "a midnight that never was")
}

func ExampleSearch_Next() {
	compiled, _ := cron.Compile(cron.Spec{Expression: "30 2 * * *", Zone: "Europe/Berlin"})
	rule := compiled.Search(context.Background())
	at := time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)
	for range 3 {
		at = rule.Next(at)
		fmt.Println(at.Format(time.RFC3339), rule.Key(at))
	}
	// Output:
	// 2026-03-28T01:30:00Z 2026-03-28T02:30:00
	// 2026-03-29T01:00:00Z 2026-03-29T03:00:00
	// 2026-03-30T00:30:00Z 2026-03-30T02:30:00
}
