package cron_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/cron"
)

func TestCompile_RefusesLikelyMistakes(t *testing.T) {
	t.Parallel()
	for expression, says := range map[string]string{
		"٠ 3 * * *":                              `minute "٠"`,
		"０ 3 * * *":                              `minute "０"`,
		"60 * * * *":                             `minute "60": want 0 to 59`,
		"* 24 * * *":                             `hour "24": want 0 to 23`,
		"* * 0 * *":                              `day "0": want 1 to 31`,
		"* * * 0 *":                              `month "0": want 1 to 12`,
		"* * * 13 *":                             `month "13"`,
		"* * * * 8":                              `weekday "8": want 0 to 7`,
		"60 * * * * *":                           `second "60"`,
		"*/0 * * * *":                            "step",
		"5/0 * * * *":                            "step",
		"*/61 * * * *":                           "step (61) over 60 values: want 1 to 60",
		"0 */25 * * *":                           "step (25) over 24 values: want 1 to 24",
		"0 12-15/5 * * *":                        "step (5) over 4 values: want 1 to 4",
		"0 22-2/6 * * *":                         "step (6) over 5 values: want 1 to 5",
		"0 5/20 * * *":                           "step (20) over 19 values: want 1 to 19",
		"*/ * * * *":                             `minute "*/"`,
		"/5 * * * *":                             `minute "/5"`,
		"*/5/5 * * * *":                          `minute "*/5/5"`,
		"1- * * * *":                             `minute "1-"`,
		"-1 * * * *":                             `minute "-1"`,
		"*- * * * *":                             `minute "*-"`,
		"*-5 * * * *":                            `minute "*-5"`,
		"1-2-3 * * * *":                          `minute "1-2-3"`,
		"+1 * * * *":                             `minute "+1"`,
		"1.5 * * * *":                            `minute "1.5"`,
		"0x1 * * * *":                            `minute "0x1"`,
		"1,, * * * *":                            `minute ""`,
		",1 * * * *":                             `minute ""`,
		"18446744073709551616 * * * *":           `minute "18446744073709551616"`,
		"*/18446744073709551616 * * * *":         `minute "*/18446744073709551616"`,
		"? ? * * *":                              `minute "?"`,
		"mon * * * *":                            `minute "mon"`,
		"* * mon * *":                            `day "mon"`,
		"* * * mon *":                            `month "mon"`,
		"* * * * jan":                            `weekday "jan"`,
		"* * * * monday":                         `weekday "monday"`,
		"* * * march *":                          `month "march"`,
		"0 0 * * l":                              `weekday "l"`,
		"0 0 * * 5#6":                            `weekday "5#6"`,
		"0 0 * * 5#0":                            `weekday "5#0"`,
		"0 0 * * #2":                             `weekday "#2"`,
		"0 0 * * 8l":                             `weekday "8l"`,
		"0 0 * * fri#2-3":                        `weekday "fri#2-3"`,
		"0 0 w * *":                              `day "w"`,
		"0 0 32w * *":                            `day "32w"`,
		"0 0 l-31 * *":                           `day "l-31"`,
		"0 0 l-0 * *":                            `day "l-0"`,
		"0 0 1-15w * *":                          `day "1-15w"`,
		"0 l * * *":                              `hour "l"`,
		"0 0 * * fri-mon/2":                      "want a list",
		"H H * * *":                              `minute "h"`,
		"~ * * * *":                              `minute "~"`,
		"0 3 * * *;ls":                           `weekday "*;ls"`,
		"CRON_TZ=UTC 3 * * *":                    `minute "cron_tz=utc"`,
		" ":                                      "it has 0 fields",
		"* * *":                                  "it has 3 fields",
		"0 3 * * 1-5 # weekdays":                 "it has 7 fields",
		"@reboot":                                "@reboot",
		"@every 5m":                              "interval",
		"@":                                      `"@"`,
		"0 0 31 4,6,9,11 *":                      "never fires",
		"0 0 l-30 2 *":                           "never fires",
		"0 0 30w 2 *":                            "never fires",
		strings.Repeat("1,", 5000) + "1 * * * *": "too long",
	} {
		_, err := cron.Compile(cron.Spec{Expression: expression})
		require.ErrorContains(t, err, says, expression)
		require.ErrorContains(t, err, `"0 3 * * 1-5"`, expression)
		require.NotContains(t, err.Error(), "strconv", expression)
		require.NotContains(t, err.Error(), "option", expression)
	}
}

func TestCompile_ReadsWhatIsSpelledOtherwise(t *testing.T) {
	t.Parallel()
	from := instant(t, "2026-08-13T00:00:00Z") // a Thursday
	for one, other := range map[string]string{
		"0\t3\t*\t*\t*":      "0 3 * * *",
		"\n0 3 * * *\n":      "0 3 * * *",
		" @Daily ":           "0 0 * * *",
		"@HOURLY":            "0 * * * *",
		"007 3 * * *":        "7 3 * * *",
		"0 22-2 * * *":       "0 22,23,0,1,2 * * *",
		"0 22-2/2 * * *":     "0 22,0,2 * * *",
		"0 0 * * fri-mon":    "0 0 * * 5,6,0,1",
		"0 0 * * 5-7":        "0 0 * * fri,sat,sun",
		"0 0 * * 0-7":        "0 0 * * *",
		"0 0 * NOV-feb *":    "0 0 * 11,12,1,2 *",
		"50/5 * * * *":       "50,55 * * * *",
		"0 0 ? * ?":          "0 0 * * *",
		"0 0 l * fril":       "0 0 L * FRI#L",
		"*/2,*/3 0 * * *":    "0-59/2,3-59/3 0 * * *",
		"0 0 0 * * 7":        "0 0 * * SUN",
		"0 0 1 jan,7 *":      "0 0 1 1,JUL *",
		"*/1 0 1 * *":        "* 0 1 * *",
		"0 0 1,1,01,1-1 * *": "0 0 1 * *",
		"*/60 * * * *":       "0 * * * *",
		"0 */24 * * *":       "0 0 * * *",
		"0 0 1 */12 *":       "0 0 1 1 *",
		"0 0 */31 * *":       "0 0 1 * *",
		"0 0 */31 * mon":     "0 0 1 * mon",
		"0 12-15/4 * * *":    "0 12 * * *",
		"54/6 * * * *":       "54 * * * *",
		"0 22-2/5 * * *":     "0 22 * * *",
		"0 0 1 mar-may/3 *":  "0 0 1 mar *",
		"5/55,59/1 * * * *":  "5,59 * * * *",
		"0 0 * * */7":        "0 0 * * sun",
		"0 0 * * 0-7/8":      "0 0 * * sun",
		"0 0 * * mon-fri/5":  "0 0 * * mon",
	} {
		require.Equal(t, fires(compile(t, cron.Spec{Expression: other}), from, 40), fires(compile(t, cron.Spec{Expression: one}), from, 40), one)
	}
}

// TestCompile_OneStepNamesATimeOfDay: what is left of such a step does not repeat
// within the day, so it fires once where the clock shows its time twice.
func TestCompile_OneStepNamesATimeOfDay(t *testing.T) {
	t.Parallel()
	rule := compile(t, cron.Spec{Expression: "30 2-2/1 * * *", Zone: "Europe/Berlin"})
	require.Equal(t, []string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}, fires(rule, instant(t, "2026-10-25T00:00:00Z"), 2))
	rule = compile(t, cron.Spec{Expression: "0 */24 * * *", Zone: "America/Sao_Paulo"})
	require.Equal(t, []string{"2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"}, fires(rule, instant(t, "2018-11-04T00:00:00Z"), 2), "a midnight that never was")
}

// TestNext_LastAndNearestDays compares what L, W and # mean with a walk over
// the days of forty years.
func TestNext_LastAndNearestDays(t *testing.T) {
	t.Parallel()
	last := func(d time.Time) time.Time { return time.Date(d.Year(), d.Month()+1, 0, 0, 0, 0, 0, time.UTC) }
	weekend := func(d time.Time) bool { return d.Weekday() == time.Saturday || d.Weekday() == time.Sunday }
	nth := func(d time.Time) int { return (d.Day() + 6) / 7 }
	// nearest is the weekday of its month nearest to a day: a Saturday's is the
	// Friday before, a Sunday's the Monday after, unless that is another month.
	nearest := func(d time.Time) time.Time {
		for _, days := range []int{0, -1, 1, 2, -2} {
			if other := d.AddDate(0, 0, days); other.Month() == d.Month() && !weekend(other) {
				return other
			}
		}
		return time.Time{}
	}
	for expression, matches := range map[string]func(d time.Time) bool{
		"0 0 L * *":     func(d time.Time) bool { return d.Equal(last(d)) },
		"0 0 L-3 * *":   func(d time.Time) bool { return d.AddDate(0, 0, 3).Equal(last(d)) },
		"0 0 1,L 2 *":   func(d time.Time) bool { return d.Month() == 2 && (d.Day() == 1 || d.Equal(last(d))) },
		"0 0 LW * *":    func(d time.Time) bool { return d.Equal(nearest(last(d))) },
		"0 0 15W * *":   func(d time.Time) bool { return d.Equal(nearest(d.AddDate(0, 0, 15-d.Day()))) },
		"0 0 1W * *":    func(d time.Time) bool { return d.Equal(nearest(d.AddDate(0, 0, 1-d.Day()))) },
		"0 0 31W * *":   func(d time.Time) bool { return last(d).Day() == 31 && d.Equal(nearest(last(d))) },
		"0 0 * * fri#2": func(d time.Time) bool { return d.Weekday() == time.Friday && nth(d) == 2 },
		"0 0 * * 7#5":   func(d time.Time) bool { return d.Weekday() == time.Sunday && nth(d) == 5 },
		"0 0 * * 5L":    func(d time.Time) bool { return d.Weekday() == time.Friday && d.AddDate(0, 0, 7).Month() != d.Month() },
		"0 0 * * mon#1,0L": func(d time.Time) bool {
			return d.Weekday() == time.Monday && nth(d) == 1 || d.Weekday() == 0 && d.AddDate(0, 0, 7).Month() != d.Month()
		},
		"0 0 L * mon": func(d time.Time) bool { return d.Weekday() == time.Monday || d.Equal(last(d)) },
		"0 0 13 * 5":  func(d time.Time) bool { return d.Weekday() == time.Friday || d.Day() == 13 },
	} {
		rule := compile(t, cron.Spec{Expression: expression})
		at := time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)
		for day := at.AddDate(0, 0, 1); day.Year() < 2040; day = day.AddDate(0, 0, 1) {
			if matches(day) {
				at = rule.Next(at)
				require.Equal(t, day, at, expression)
			}
		}
	}
}

func TestCompile_RefusesWhatIsNeverAllowed(t *testing.T) {
	t.Parallel()
	once := instant(t, "2030-01-01T00:00:00Z")
	for says, spec := range map[string]cron.Spec{
		"an instant before the start":         {Once: once, Start: once.Add(1)},
		"an instant at the end":               {Once: once, End: once},
		"an instant in a blackout":            {Once: once, Blackouts: []cron.Window{{From: "2029-12-31", Until: "2030-01-02"}}},
		"a beat of which each is blacked out": {Every: 24 * time.Hour, Blackouts: []cron.Window{{Days: "*", From: "23:59", Until: "00:01"}}},
		"halves of the day":                   {Every: time.Hour, Blackouts: []cron.Window{{Days: "*", From: "00:00", Until: "12:00"}, {Days: "*", From: "12:00", Until: "00:00"}}},
		"the end of time":                     {Every: time.Hour, Start: instant(t, "9999-12-31T23:30:00Z")},
		"a blackout of all years":             {Expression: "@daily", Blackouts: []cron.Window{{From: "1970-01-01", Until: "9999-12-31"}}},
	} {
		_, err := cron.Compile(spec)
		require.ErrorContains(t, err, "never fires", says)
	}
	require.Equal(t, once, compile(t, cron.Spec{Once: once, Start: once, End: once.Add(time.Microsecond)}).Next(once.Add(-1)))
	require.Equal(t, once.Add(time.Hour), compile(t, cron.Spec{Once: once, Shift: time.Hour, Start: once.Add(1)}).Next(once), "shifted into its bounds")
	require.Len(t, fires(compile(t, cron.Spec{Every: time.Hour}), instant(t, "9999-12-31T20:30:00Z"), 9), 3, "nothing after the year 9999")
}
