package cron_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/cron"
)

func compile(t *testing.T, spec cron.Spec) *cron.Search {
	t.Helper()
	rule, err := cron.Compile(spec)
	require.NoError(t, err)
	return rule.Search(t.Context())
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	return at
}

// fires lists the first occurrences after an instant.
func fires(rule *cron.Search, from time.Time, n int) []string {
	var all []string
	for at := rule.Next(from); !at.IsZero() && len(all) < n; at = rule.Next(at) {
		all = append(all, at.Format(time.RFC3339Nano))
	}
	return all
}

func TestCompile_Expressions(t *testing.T) {
	t.Parallel()
	from := instant(t, "2026-01-01T00:00:00Z") // a Thursday
	for expression, want := range map[string][]string{
		"@yearly":                   {"2027-01-01T00:00:00Z"},
		"@monthly":                  {"2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		"@weekly":                   {"2026-01-04T00:00:00Z", "2026-01-11T00:00:00Z"},
		"@hourly":                   {"2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"},
		"0 3 * * 1-5":               {"2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z", "2026-01-05T03:00:00Z"},
		"0 3 * * mon-fri":           {"2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z", "2026-01-05T03:00:00Z"},
		"0 0 1 jan,JUL *":           {"2026-07-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		"0 12 * * 0":                {"2026-01-04T12:00:00Z", "2026-01-11T12:00:00Z"},
		"0 12 * * 7":                {"2026-01-04T12:00:00Z", "2026-01-11T12:00:00Z"},
		"0 0 13 * 5":                {"2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-13T00:00:00Z", "2026-01-16T00:00:00Z"},
		"*/20 * * * * *":            {"2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z", "2026-01-01T00:01:00Z"},
		"5-10/5 0 1 1 *":            {"2026-01-01T00:05:00Z", "2026-01-01T00:10:00Z", "2027-01-01T00:05:00Z"},
		"0 0 29 2 *":                {"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"},
		"30 15 10 ? * MON":          {"2026-01-05T10:15:30Z"},
		"0 0 31 * *":                {"2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z"},
		"0,30 8-9 * * *":            {"2026-01-01T08:00:00Z", "2026-01-01T08:30:00Z", "2026-01-01T09:00:00Z", "2026-01-01T09:30:00Z"},
		"  0   3  *  *  *  ":        {"2026-01-01T03:00:00Z"},
		"59 59 23 31 12 *":          {"2026-12-31T23:59:59Z"},
		"0 0 1-7,15-21 3 *":         {"2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"},
		"0 22-23,0-1 * * *":         {"2026-01-01T01:00:00Z", "2026-01-01T22:00:00Z", "2026-01-01T23:00:00Z"},
		"*/7 * * * *":               {"2026-01-01T00:07:00Z", "2026-01-01T00:14:00Z"},
		"0 0 1 */3 *":               {"2026-04-01T00:00:00Z", "2026-07-01T00:00:00Z"},
		"0 0 * FEB-MAR THU":         {"2026-02-05T00:00:00Z"},
		"0 6 1,15 * *":              {"2026-01-01T06:00:00Z", "2026-01-15T06:00:00Z"},
		"@midnight":                 {"2026-01-02T00:00:00Z"},
		"0 0 12 1 * *":              {"2026-01-01T12:00:00Z", "2026-02-01T12:00:00Z"},
		"15 10 5 1-3 *":             {"2026-01-05T10:15:00Z", "2026-02-05T10:15:00Z", "2026-03-05T10:15:00Z"},
		"0 9 * * 1,3,5":             {"2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z", "2026-01-07T09:00:00Z"},
		"10 0 0 1 1 *":              {"2026-01-01T00:00:10Z", "2027-01-01T00:00:10Z"},
		"0-59/30 0 0 1 1 *":         {"2026-01-01T00:00:30Z", "2027-01-01T00:00:00Z"},
		"0 0 28-31 2 *":             {"2026-02-28T00:00:00Z", "2027-02-28T00:00:00Z", "2028-02-28T00:00:00Z", "2028-02-29T00:00:00Z"},
		"0 4 8-14 * *":              {"2026-01-08T04:00:00Z"},
		"23 0-20/10 * * *":          {"2026-01-01T00:23:00Z", "2026-01-01T10:23:00Z", "2026-01-01T20:23:00Z"},
		"0 22 * * 1-5":              {"2026-01-01T22:00:00Z"},
		"5 4 * * sun":               {"2026-01-04T04:05:00Z"},
		"0 0,12 1 */2 *":            {"2026-01-01T12:00:00Z", "2026-03-01T00:00:00Z"},
		"@annually":                 {"2027-01-01T00:00:00Z"},
		"1,2,3 0 1 1 *":             {"2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z", "2026-01-01T00:03:00Z", "2027-01-01T00:01:00Z"},
		"0 0 1 1 0":                 {"2026-01-04T00:00:00Z"},
		"0 10 * 1 6":                {"2026-01-03T10:00:00Z"},
		"0 0 0 1 JAN-MAR/2 *":       {"2026-03-01T00:00:00Z"},
		"0,15,30,45 */6 31 12 *":    {"2026-12-31T00:00:00Z"},
		"30 4 1,15 * 5":             {"2026-01-01T04:30:00Z", "2026-01-02T04:30:00Z", "2026-01-09T04:30:00Z", "2026-01-15T04:30:00Z"},
		"0 0 1 1 *":                 {"2027-01-01T00:00:00Z"},
		"*/30 9-10 * * mon,tue,wed": {"2026-01-05T09:00:00Z", "2026-01-05T09:30:00Z", "2026-01-05T10:00:00Z"},
	} {
		require.Equal(t, want, fires(compile(t, cron.Spec{Expression: expression}), from, len(want)), expression)
	}
}

func TestCompile_RefusesWithReasonAndExample(t *testing.T) {
	t.Parallel()
	day := instant(t, "2026-01-01T00:00:00Z")
	for name, wrong := range map[string]struct {
		spec cron.Spec
		says []string
	}{
		"no rule":             {cron.Spec{}, []string{"no rule", `"0 3 * * 1-5"`}},
		"two rules":           {cron.Spec{Expression: "@daily", Every: time.Hour}, []string{"more than one"}},
		"minute":              {cron.Spec{Expression: "61 * * * *"}, []string{"61", `"0 3 * * 1-5"`}},
		"four fields":         {cron.Spec{Expression: "* * * *"}, []string{`"0 3 * * 1-5"`}},
		"seven fields":        {cron.Spec{Expression: "0 0 0 1 1 * 2027"}, []string{`"0 3 * * 1-5"`}},
		"words":               {cron.Spec{Expression: "every day"}, []string{`"0 3 * * 1-5"`}},
		"an unknown word":     {cron.Spec{Expression: "@fortnightly"}, []string{"@fortnightly", "@daily"}},
		"a zone inside":       {cron.Spec{Expression: "TZ=UTC 0 3 * * *"}, []string{`"0 3 * * 1-5"`}},
		"@every":              {cron.Spec{Expression: "@every 5m"}, []string{`"0 3 * * 1-5"`}},
		"February 30":         {cron.Spec{Expression: "0 0 30 2 *"}, []string{"never fires"}},
		"a range backwards":   {cron.Spec{Expression: "0 0 * 31-32 *"}, []string{`"0 3 * * 1-5"`}},
		"zone":                {cron.Spec{Expression: "@daily", Zone: "Mars/Phobos"}, []string{"Mars/Phobos", "Europe/Berlin"}},
		"the machine's zone":  {cron.Spec{Expression: "@daily", Zone: "Local"}, []string{"Europe/Berlin"}},
		"a short interval":    {cron.Spec{Every: time.Millisecond}, []string{"1ms", "30s"}},
		"a negative interval": {cron.Spec{Every: -time.Second}, []string{"-1s", "30s"}},
		"a long interval":     {cron.Spec{Every: 101 * 365 * 24 * time.Hour}, []string{"100 years"}},
		"end before start":    {cron.Spec{Every: time.Hour, Start: day, End: day}, []string{"not after its start"}},
		"nothing in between": {cron.Spec{Expression: "@monthly", Start: day.Add(time.Hour), End: day.AddDate(0, 0, 9)},
			[]string{"never fires", "start, end and blackouts"}},
		"always in a blackout": {cron.Spec{Every: time.Hour, Blackouts: []cron.Window{{Days: "*"}}}, []string{"never fires"}},
		"an unknown day":       {cron.Spec{Every: time.Hour, Blackouts: []cron.Window{{Days: "caturday"}}}, []string{"caturday", `"sat,sun"`}},
		"a time of 25 hours":   {cron.Spec{Every: time.Hour, Blackouts: []cron.Window{{Days: "*", From: "25:00", Until: "26:00"}}}, []string{`"22:00"`}},
		"dates backwards": {cron.Spec{Every: time.Hour, Blackouts: []cron.Window{{From: "2026-12-26", Until: "2026-12-24"}}},
			[]string{`"2026-12-24"`}},
	} {
		_, err := cron.Compile(wrong.spec)
		require.Error(t, err, name)
		for _, part := range wrong.says {
			require.ErrorContains(t, err, part, name)
		}
	}
}

func TestNext_Intervals(t *testing.T) {
	t.Parallel()
	from := instant(t, "2026-01-01T00:00:00.0000005Z")
	require.Equal(t, []string{"2026-01-01T00:01:30Z", "2026-01-01T00:03:00Z"}, fires(compile(t, cron.Spec{Every: 90 * time.Second}), from, 2))
	anchored := compile(t, cron.Spec{Every: time.Hour, Anchor: instant(t, "2026-05-01T00:17:00Z")})
	require.Equal(t, []string{"2026-01-01T00:17:00Z", "2026-01-01T01:17:00Z"}, fires(anchored, from, 2), "also before the anchor")
	shifted := compile(t, cron.Spec{Every: time.Hour, Shift: 5 * time.Minute, Start: instant(t, "2026-01-01T02:00:00Z"), End: instant(t, "2026-01-01T04:05:00Z")})
	require.Equal(t, []string{"2026-01-01T02:05:00Z", "2026-01-01T03:05:00Z"}, fires(shifted, from, 9), "from the start, before the end")
	require.Equal(t, "1969-12-31T23:59:59Z", compile(t, cron.Spec{Every: time.Second}).Next(time.Unix(-2, 5)).Format(time.RFC3339Nano))
	once := compile(t, cron.Spec{Once: from})
	require.Equal(t, []string{"2026-01-01T00:00:00Z"}, fires(once, from.AddDate(-1, 0, 0), 9))
	require.Empty(t, fires(once, from, 9))
}

func TestNext_Blackouts(t *testing.T) {
	t.Parallel()
	nights := compile(t, cron.Spec{Every: 4 * time.Hour, Zone: "Europe/Berlin", Blackouts: []cron.Window{
		{Days: "mon-fri", From: "22:00", Until: "06:00"}, {Days: "sat,sun"}, {From: "2026-01-06", Until: "2026-01-07"},
		{From: "2026-01-08T12:00", Until: "2026-01-08T16:00"},
	}})
	// UTC is one hour behind Berlin. The first of January is a Thursday.
	require.Equal(t, []string{
		"2026-01-01T08:00:00Z", "2026-01-01T12:00:00Z", "2026-01-01T16:00:00Z", "2026-01-01T20:00:00Z",
		"2026-01-02T08:00:00Z", "2026-01-02T12:00:00Z", "2026-01-02T16:00:00Z", "2026-01-02T20:00:00Z",
		"2026-01-05T00:00:00Z", "2026-01-05T04:00:00Z", "2026-01-05T08:00:00Z", "2026-01-05T12:00:00Z", "2026-01-05T16:00:00Z", "2026-01-05T20:00:00Z",
		"2026-01-08T08:00:00Z", "2026-01-08T16:00:00Z",
	}, fires(nights, instant(t, "2026-01-01T05:00:00Z"), 16))
	overlap := compile(t, cron.Spec{Every: 10 * time.Minute, Zone: "Europe/Berlin", Blackouts: []cron.Window{{Days: "*", From: "01:00", Until: "02:30"}}})
	require.Equal(t, []string{"2026-10-25T00:30:00Z", "2026-10-25T00:40:00Z", "2026-10-25T00:50:00Z", "2026-10-25T01:30:00Z"},
		fires(overlap, instant(t, "2026-10-24T23:00:00Z"), 4), "the blackout holds in both passes of the repeated hour")
}

func TestLastAndRecent(t *testing.T) {
	t.Parallel()
	since, now := instant(t, "2026-02-27T00:00:00Z"), instant(t, "2026-03-01T00:00:30.5Z")
	for _, spec := range []cron.Spec{
		{Every: 7 * time.Second},
		{Expression: "*/5 * * * * *"},
		{Expression: "30 2 * * *", Zone: "Europe/Berlin"},
		{Expression: "* * * * * *", Blackouts: []cron.Window{{From: "2026-02-27T06:00", Until: "2026-03-30T00:00"}}},
		{Expression: "0 0 28 * *", Shift: 1234567 * time.Microsecond},
		{Once: instant(t, "2026-02-28T00:00:00Z")},
		{Once: instant(t, "2026-04-11T00:00:00Z")},
	} {
		rule := compile(t, spec)
		var all []time.Time // the whole calendar, its oldest part left out
		for at := rule.Next(since.Add(-1)); !at.IsZero() && !at.After(now); at = rule.Next(at) {
			all = append(all, at)
			if len(all) > 10_000 {
				all = append(all[:0], all[9_000:]...)
			}
		}
		var last time.Time
		if len(all) > 0 {
			last = all[len(all)-1]
		}
		require.Equal(t, last, rule.Last(since, now), "%+v", spec)
		for _, n := range []int{1, 3, 100} {
			recent := rule.Recent(since, now, n)
			require.Equal(t, len(recent), min(n, len(all)), "%+v", spec)
			for i, at := range recent {
				require.Equal(t, all[len(all)-len(recent)+i], at)
			}
		}
	}
}

func BenchmarkNext_AfterYearsOfSeconds(b *testing.B) {
	compiled, err := cron.Compile(cron.Spec{Expression: "* * * * * *", Zone: "Europe/Berlin"})
	require.NoError(b, err)
	rule := compiled.Search(b.Context())
	since, now := time.Date(2016, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 7, 1, 12, 0, 0, 1, time.UTC)
	b.Run("Next", func(b *testing.B) {
		for b.Loop() {
			rule.Next(now)
		}
	})
	b.Run("Last", func(b *testing.B) {
		for b.Loop() {
			rule.Last(since, now)
		}
	})
}
