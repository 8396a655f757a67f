package cron_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/cron"
)

// TestNext_OnDecember31 goes through the last day of each year from 1970 to
// 2100, by both kinds of zone data.
func TestNext_OnDecember31(t *testing.T) {
	t.Parallel()
	rules := append(rules[:1:1], rules[3:5]...)
	for _, name := range []string{"Europe/Berlin", "America/New_York", "America/St_Johns", "Pacific/Auckland", "Australia/Lord_Howe", "Asia/Tokyo"} {
		for of, zone := range datasets(t, name) {
			t.Run(name+" by "+of, func(t *testing.T) {
				t.Parallel()
				compiled := make([]*cron.Search, len(rules))
				for i, rule := range rules {
					compiled[i] = compileIn(t, cron.Spec{Expression: rule.expression, Zone: name}, zone)
				}
				late := compileIn(t, cron.Spec{Expression: "59 23 31 12 *", Zone: name}, zone)
				for year := 1970; year <= 2100; year++ {
					end := time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC)
					minutes := walk(zone, end.Add(-3*time.Hour), end.Add(27*time.Hour))
					for i, rule := range rules {
						compareCalendars(t, rule.expression, compiled[i], minutes, calendar(minutes, rule.fixed, rule.matches))
					}
					at := late.Next(time.Date(year, 6, 1, 0, 0, 0, 0, zone))
					require.Equal(t, fmt.Sprintf("%d-12-31 23:59:00", year), at.In(zone).Format(time.DateTime))
				}
			})
		}
	}
}

func TestNext_EndsInTheYearsThatHung(t *testing.T) {
	t.Parallel()
	for of, zone := range datasets(t, "Europe/Berlin") {
		yearly := compileIn(t, cron.Spec{Expression: "0 3 1 1 *", Zone: "Europe/Berlin"}, zone)
		next, err := yearly.Preview(instant(t, "2028-12-30T00:00:00Z"), 3)
		require.NoError(t, err)
		require.Equal(t, []time.Time{instant(t, "2029-01-01T02:00:00Z"), instant(t, "2030-01-01T02:00:00Z"), instant(t, "2031-01-01T02:00:00Z")}, next, of)
		quarters := compileIn(t, cron.Spec{Expression: "*/15 * * * *", Zone: "Europe/Berlin"}, zone)
		require.Equal(t, []string{"2028-12-31T00:15:00Z", "2028-12-31T00:30:00Z"}, fires(quarters, instant(t, "2028-12-31T00:00:00Z"), 2), of)
		nights := compileIn(t, cron.Spec{Every: time.Hour, Zone: "Europe/Berlin", Blackouts: []cron.Window{{From: "2028-06-01", Until: "2029-02-28"}}}, zone)
		require.Equal(t, []string{"2029-02-28T23:00:00Z"}, fires(nights, instant(t, "2028-12-31T00:00:00Z"), 1), of)
	}
}

// TestSearch_IsBounded: what would take too many steps, or more time than there
// is, finds nothing any more and says so.
func TestSearch_IsBounded(t *testing.T) {
	t.Parallel()
	// From 2027 on a blackout of every other day covers each of its occurrences.
	spec := cron.Spec{Expression: "0 3 */2 * *", End: instant(t, "9999-01-01T00:00:00Z")}
	for year := 2027; year < 2127; year++ {
		spec.Blackouts = append(spec.Blackouts, cron.Window{From: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Format("2006-01-02"),
			Until: time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC).Format("2006-01-02")})
	}
	century := compile(t, spec)
	require.Equal(t, []string{"2127-01-01T03:00:00Z"}, fires(century, instant(t, "2026-12-31T04:00:00Z"), 1), "a blackout of years is one step")
	require.NoError(t, century.Err())

	spec = cron.Spec{Expression: "0 3 * * *", Start: instant(t, "2026-01-01T00:00:00Z"), Blackouts: []cron.Window{{Days: "*", From: "02:59", Until: "03:01"}}}
	_, err := cron.Compile(spec)
	require.ErrorContains(t, err, "never fires", "though the search for it has been given up")

	rule, err := cron.Compile(cron.Spec{Every: time.Hour})
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	search := rule.Search(ctx)
	at := instant(t, "2026-01-01T00:00:00Z")
	require.False(t, search.Next(at).IsZero())
	cancel(errors.New("asked to stop"))
	require.True(t, search.Next(at).IsZero())
	require.True(t, search.Last(at, at.AddDate(1, 0, 0)).IsZero())
	require.Empty(t, search.Recent(at, at.AddDate(1, 0, 0), 5))
	require.ErrorContains(t, search.Err(), "asked to stop")
	_, err = search.Preview(at, 5)
	require.ErrorContains(t, err, "asked to stop")
}

// TestRecent_PastALongBlackout asks for the last few of a rule that fires each
// second and has not for a year: it must not go through the second before that
// by the million.
func TestRecent_PastALongBlackout(t *testing.T) {
	t.Parallel()
	begun, now := instant(t, "2025-03-01T12:34:56Z"), instant(t, "2026-03-30T12:00:00.0000001Z")
	rule := compile(t, cron.Spec{Expression: "* * * * * *", Blackouts: []cron.Window{{From: "2025-03-15", Until: "2026-04-01"}}})
	asked := 0
	for _, n := range []int{1, 2, 100, 1000} {
		counted := &counting{Context: t.Context()}
		search := rule.Search(counted)
		recent := search.Recent(begun, now, n)
		require.NoError(t, search.Err())
		require.Len(t, recent, n)
		for i, at := range recent {
			require.Equal(t, instant(t, "2025-03-15T00:00:00Z").Add(time.Duration(i-n)*time.Second), at)
		}
		asked += counted.times
	}
	require.Less(t, asked, 200_000)
	few := rule.Recent(instant(t, "2025-03-14T23:59:57Z"), now, 10)
	require.Len(t, few, 3)
}

// counting counts how often a context is asked whether it has ended: once for
// each occurrence that is looked for, at least.
type counting struct {
	context.Context
	times int
}

func (c *counting) Err() error { c.times++; return c.Context.Err() }
