package cron_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/cron"
)

var oracles = flag.Int("oracles", 10, "random rules for each zone and its data that are compared with a walk over the minutes")

// setBack are zones whose clock is set back over the hours that a night's
// blackout has: by one hour, two, half an hour, three, and at midnight.
var setBack = []string{
	"Europe/Berlin", "America/New_York", "Europe/Dublin", "Antarctica/Troll", "America/St_Johns", "America/Sao_Paulo", "Antarctica/Casey",
	"Australia/Lord_Howe", "Africa/Casablanca", "Asia/Gaza", "Pacific/Apia",
}

// TestNext_IsWhatAWalkFinds compares random rules with a walk over the minutes
// around changes of the clock, the ends of years and leap days: the next
// occurrence from any minute, and the last one before any.
func TestNext_IsWhatAWalkFinds(t *testing.T) {
	t.Parallel()
	for _, name := range setBack {
		for of, zone := range datasets(t, name) {
			t.Run(name+" by "+of, func(t *testing.T) {
				t.Parallel()
				around := changes(zone, instant(t, "1990-01-01T00:00:00Z"), instant(t, "2050-01-01T00:00:00Z"))
				for i := range around {
					around[i] = minuteOf(zone, around[i])
				}
				for _, change := range around[len(around)*2/3:] {
					for _, o := range interrupted(zone, change) {
						o.compare(t, zone, rand.New(rand.NewPCG(1, 2))) //nolint:gosec // the same each time
					}
				}
				for year := 1996; year < 2100; year += 4 {
					around = append(around, time.Date(year, 12, 31, 3, 0, 0, 0, time.UTC), time.Date(year, 2, 29, 12, 0, 0, 0, time.UTC))
				}
				random := rand.New(rand.NewPCG(1, uint64(len(name)))) //nolint:gosec // the same rules each time
				for range *oracles {
					o := oracleOf(random, zone, around[random.IntN(len(around))])
					o.compare(t, zone, random)
				}
			})
		}
	}
}

// interrupted are rules with a blackout of the last half hour before a change of
// the clock, weekly and by dates: when the clock is set back it is interrupted.
func interrupted(zone *time.Location, change time.Time) []oracle {
	last := change.Add(-time.Minute).In(zone)
	until := time.Date(last.Year(), last.Month(), last.Day(), last.Hour(), last.Minute()+1, 0, 0, time.UTC)
	from := until.Add(-30 * time.Minute)
	weekly := oracle{spec: cron.Spec{Zone: zone.String(), Every: 10 * time.Minute}, about: change}
	dated := weekly
	weekly.spec.Blackouts = []cron.Window{{Days: "*", From: from.Format("15:04"), Until: until.Format("15:04")}}
	weekly.black = func(w time.Time) bool {
		return (w.Hour()*60+w.Minute()-from.Hour()*60-from.Minute()+24*60)%(24*60) < 30
	}
	dated.spec.Blackouts = []cron.Window{{From: from.Format("2006-01-02T15:04"), Until: until.Format("2006-01-02T15:04")}}
	dated.black = func(w time.Time) bool { return !w.Before(from) && w.Before(until) }
	return []oracle{weekly, dated}
}

// oracle is a rule, and the same said as a function of wall time.
type oracle struct {
	spec    cron.Spec
	fixed   bool
	matches func(wall time.Time) bool
	black   func(wall time.Time) bool
	about   time.Time
}

// minuteOf is the minute of a change of the clock within six hours.
func minuteOf(zone *time.Location, from time.Time) time.Time {
	offset := func(t time.Time) int { _, o := t.In(zone).Zone(); return o }
	t := from.Truncate(time.Minute)
	for offset(t) == offset(from) {
		t = t.Add(time.Minute)
	}
	return t
}

func oracleOf(random *rand.Rand, zone *time.Location, about time.Time) oracle {
	o := oracle{spec: cron.Spec{Zone: zone.String()}, about: about, black: func(time.Time) bool { return false }}
	if random.IntN(4) == 0 {
		minutes := []int{1, 7, 10, 30, 60, 90}[random.IntN(6)]
		o.spec.Every = time.Duration(minutes) * time.Minute
	} else {
		o.expression(random)
	}
	if random.IntN(3) > 0 {
		o.blackout(random, zone)
	}
	return o
}

func (o *oracle) expression(random *rand.Rand) {
	minute, minutes, often := randomField(random, 0, 59, []int{0, 1, 2, 3})
	hour, hours, oftener := randomField(random, 0, 23, []int{0, 1, 2, 3})
	day, days, _ := randomField(random, 1, 31, []int{0, 1})
	weekday, weekdays, _ := randomField(random, 0, 6, []int{0, 0, 1})
	if day != "*" && strings.HasPrefix(day, "*") {
		day = "1-31"
		days = func(int) bool { return true }
	}
	o.spec.Expression = strings.Join([]string{minute, hour, day, "*", weekday}, " ")
	o.fixed = !often && !oftener
	either := day != "*" && weekday != "*"
	o.matches = func(w time.Time) bool {
		date := days(w.Day()) && weekdays(int(w.Weekday()))
		if either {
			date = days(w.Day()) || weekdays(int(w.Weekday()))
		}
		return minutes(w.Minute()) && hours(w.Hour()) && date
	}
}

// randomField makes a field and what it means: of the kinds *, two values, a
// range, and a step. It tells whether it repeats within the day.
func randomField(random *rand.Rand, low, high int, kinds []int) (text string, holds func(int) bool, repeats bool) {
	a, b := low+random.IntN(high-low+1), low+random.IntN(high-low+1)
	a, b = min(a, b), max(a, b)
	switch kinds[random.IntN(len(kinds))] {
	case 1:
		return fmt.Sprintf("%d,%d", a, b), func(v int) bool { return v == a || v == b }, false
	case 2:
		return fmt.Sprintf("%d-%d", a, b), func(v int) bool { return a <= v && v <= b }, false
	case 3:
		step := 2 + random.IntN(15)
		return fmt.Sprintf("*/%d", step), func(v int) bool { return (v-low)%step == 0 }, true
	default:
		return "*", func(int) bool { return true }, true
	}
}

// blackout is under way, or begins or ends, about when the clock is set.
func (o *oracle) blackout(random *rand.Rand, zone *time.Location) {
	const day = 24 * 60
	clock := func(minute int) string { return fmt.Sprintf("%02d:%02d", minute%day/60, minute%60) }
	before := o.about.Add(-time.Minute).In(zone)
	from, length := before.Hour()*60+before.Minute()+1+15*(random.IntN(9)-6), 15*(1+random.IntN(12))
	if random.IntN(3) > 0 {
		from = (from + day) % day
		o.spec.Blackouts = []cron.Window{{Days: "*", From: clock(from), Until: clock(from + length)}}
		o.black = func(w time.Time) bool { return (w.Hour()*60+w.Minute()-from+day)%day < length }
		return
	}
	midnight := time.Date(before.Year(), before.Month(), before.Day(), 0, 0, 0, 0, time.UTC)
	first := midnight.Add(time.Duration(from) * time.Minute)
	last := first.Add(time.Duration(length) * time.Minute)
	o.spec.Blackouts = []cron.Window{{From: first.Format("2006-01-02T15:04"), Until: last.Format("2006-01-02T15:04")}}
	o.black = func(w time.Time) bool { return !w.Before(first) && w.Before(last) }
}

func (o *oracle) compare(t *testing.T, zone *time.Location, random *rand.Rand) {
	t.Helper()
	minutes := walk(zone, o.about.Truncate(time.Minute).Add(-27*time.Hour), o.about.Add(21*time.Hour))
	want := o.walk(minutes)
	search, err := cron.CompileIn(o.spec, zone)
	if err != nil {
		require.ErrorContains(t, err, "never fires", "%+v", o.spec)
		require.Empty(t, want, "%+v", o.spec)
		return
	}
	rule := search.Search(t.Context())
	begin, end := minutes[0].instant.Add(3*time.Hour), minutes[len(minutes)-1].instant
	at := begin
	for _, fires := range want {
		if fires.After(begin) {
			if at = rule.Next(at); !at.Equal(fires) {
				t.Fatalf("%+v goes on at %v, the walk says %v", o.spec, at, fires)
			}
		}
	}
	for range 20 {
		from := begin.Add(time.Duration(random.Int64N(int64(end.Sub(begin)))))
		wantNext, wantLast := time.Time{}, time.Time{}
		for _, at := range want {
			if at.After(from) && wantNext.IsZero() {
				wantNext = at
			}
			if !at.Before(begin) && !at.After(from) {
				wantLast = at
			}
		}
		if next := rule.Next(from); !next.Equal(wantNext) && (!wantNext.IsZero() || !next.After(end)) {
			t.Fatalf("%+v after %v: %v, the walk says %v", o.spec, from, next, wantNext)
		}
		if last := rule.Last(begin, from); !last.Equal(wantLast) {
			t.Fatalf("%+v from %v to %v: the last is %v, the walk says %v", o.spec, begin, from, last, wantLast)
		}
	}
	require.NoError(t, rule.Err())
}

// walk is when the rule fires, minute by minute.
func (o *oracle) walk(minutes []minute) (fires []time.Time) {
	wall := map[time.Time]time.Time{}
	for _, m := range minutes {
		wall[m.instant] = m.wall
	}
	var all []time.Time
	if o.spec.Every > 0 {
		for _, m := range minutes {
			if m.instant.Unix()%int64(o.spec.Every.Seconds()) == 0 {
				all = append(all, m.instant)
			}
		}
	} else {
		all = calendar(minutes, o.fixed, o.matches)
	}
	for _, at := range all {
		if !o.black(wall[at]) {
			fires = append(fires, at)
		}
	}
	return fires
}
