package recur_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// TestDecide_IsWhatAListSays compares decisions with a list of all occurrences, made by a walk
// over the seconds: random rules and zones about changes of the clock, policies, outages and
// runs that end. Each occurrence is decided about once, and one that is on time is never missed.
func TestDecide_IsWhatAListSays(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // the same each time
		c := calendarOf(random)
		f := &fleet{t: t, random: random, calendar: c.occurrences, s: planned(c.rule, policies(random)...)}
		f.s.NextAt = c.occurrences[0]
		f.now = c.occurrences[0].Add(-time.Second)
		f.says = fmt.Sprintf("seed %d: %+v %+v", seed, f.s.Rule, f.s.Plan)
		for last := c.occurrences[len(c.occurrences)-1]; ; {
			f.now = f.now.Add(pause(random)).Truncate([]time.Duration{time.Microsecond, time.Second}[random.IntN(2)])
			if !f.now.Before(last) {
				break
			}
			f.evaluate()
		}
	}
}

// calendar is a rule and when it fires.
type calendar struct {
	rule        store.Rule
	occurrences []time.Time
}

func calendarOf(random *rand.Rand) calendar {
	zone, err := time.LoadLocation([]string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"}[random.IntN(5)])
	if err != nil {
		panic(err)
	}
	// About the days on which clocks are set.
	from := time.Date(2026, []time.Month{1, 3, 4, 10, 11}[random.IntN(5)], 1+random.IntN(28), random.IntN(24), 0, 0, 0, time.UTC)
	switch random.IntN(3) {
	case 0:
		every := []int{1, 10, 17, 30, 59, 60, 61, 90, 3600}[random.IntN(9)]
		var c calendar
		c.rule = durable.Every(time.Duration(every) * time.Second)
		for at := from.Unix() + int64(every) - from.Unix()%int64(every); len(c.occurrences) < 3000; at += int64(every) {
			c.occurrences = append(c.occurrences, time.Unix(at, 0).UTC())
		}
		return c
	case 1:
		minute, hour := random.IntN(60), random.IntN(24)
		return walk(from, zone, fmt.Sprintf("%d %d * * *", minute, hour), 40, true, func(wall int) bool { return wall == hour*60+minute })
	default:
		step := []int{1, 2, 7, 15, 20}[random.IntN(5)]
		return walk(from, zone, fmt.Sprintf("*/%d * * * *", step), 3000, false, func(wall int) bool { return wall%60%step == 0 })
	}
}

// walk looks at the wall clock each minute. A fixed time that the clock has shown before is not
// another occurrence, and one that it leaves out is at the minute after that.
func walk(from time.Time, zone *time.Location, expression string, n int, fixed bool, matches func(wall int) bool) calendar {
	c := calendar{rule: durable.Cron(expression, zone.String())}
	wallOf := func(t time.Time) time.Time {
		w := t.In(zone)
		return time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), 0, 0, time.UTC)
	}
	shown := wallOf(from.Add(-time.Minute)) // the latest wall time up to here
	for at := from; len(c.occurrences) < n; at = at.Add(time.Minute) {
		wall := wallOf(at)
		first := wall
		if fixed {
			first = shown.Add(time.Minute)
		}
		if !first.After(wall) && slices.ContainsFunc(minutes(first, wall), matches) {
			c.occurrences = append(c.occurrences, at)
		}
		if wall.After(shown) {
			shown = wall
		}
	}
	return c
}

// minutes are the minutes of the day from one wall time to another.
func minutes(from, to time.Time) (all []int) {
	for ; !from.After(to); from = from.Add(time.Minute) {
		all = append(all, from.Hour()*60+from.Minute())
	}
	return all
}

func policies(random *rand.Rand) []durable.Option {
	within := []time.Duration{0, 30 * time.Second, 5 * time.Minute, 48 * time.Hour}[random.IntN(4)]
	overlap := []store.OverlapPolicy{store.OverlapAllow, store.OverlapWait, store.OverlapSkip}[random.IntN(3)]
	var options []durable.Option
	switch catchUp := random.IntN(3); {
	case catchUp == 0:
		options = append(options, durable.CatchUp(store.CatchUpLatest, within, 0))
	case catchUp == 1 && overlap != store.OverlapSkip:
		options = append(options, durable.CatchUp(store.CatchUpAll, within, []int{0, 1, 3, 1000}[random.IntN(4)]))
	}
	if overlap != store.OverlapAllow && random.IntN(2) == 0 {
		options = append(options, durable.MaxUnfinished(1+random.IntN(4)))
	}
	return append(options, durable.Overlap(overlap))
}

// pause is from one evaluation to the next: mostly short, or an outage.
func pause(random *rand.Rand) time.Duration {
	most := []time.Duration{time.Second, time.Minute, 3 * time.Minute, 2 * time.Hour, 60 * time.Hour}[random.IntN(5)]
	return time.Duration(1 + random.Int64N(int64(most)))
}

// fleet evaluates one schedule.
type fleet struct {
	t        *testing.T
	random   *rand.Rand
	calendar []time.Time // from the next occurrence that is not decided about
	s        store.Schedule
	now      time.Time
	says     string
}

func (f *fleet) evaluate() {
	if f.s.NextAt.After(f.now) || f.s.EvaluateAt.After(f.now) {
		return
	}
	f.s.Unfinished -= f.random.IntN(f.s.Unfinished + 1)
	got := begun(f.t.Context()).Decide(f.now, f.s)
	require.Empty(f.t, got.Fault, f.says)
	var runs []time.Time
	for _, o := range got.Occurrences {
		runs = append(runs, o.Run.At)
	}
	want := f.expected()
	require.Equal(f.t, want.runs, runs, "%s: runs at %v", f.says, f.now)
	require.Equal(f.t, want.skips, got.Skips, "%s: skips at %v", f.says, f.now)
	require.Equal(f.t, want.waits, got.Waiting > 0, "%s: waits at %v", f.says, f.now)
	require.Equal(f.t, f.calendar[want.decided], got.NextAt, "%s: the next at %v", f.says, f.now)
	f.calendar = f.calendar[want.decided:]
	f.s.Unfinished += len(runs)
	f.s.NextAt, f.s.Waiting, f.s.EvaluateAt = got.NextAt, got.Waiting, time.Time{}
	if want.waits {
		f.s.EvaluateAt = f.now.Add(got.Waiting)
	}
}

// said is what a list says of the occurrences that are due.
type said struct {
	runs    []time.Time
	skips   []store.Skip
	waits   bool
	decided int // occurrences
}

func (f *fleet) expected() (want said) {
	due, _ := slices.BinarySearchFunc(f.calendar, f.now.Add(time.Microsecond), time.Time.Compare)
	late := 0 // those that were missed
	if f.s.Waiting == 0 || f.now.Sub(f.s.EvaluateAt) > time.Minute {
		late, _ = slices.BinarySearchFunc(f.calendar, f.now.Add(-time.Minute), time.Time.Compare)
	}
	overlap, room := f.s.OverlapPolicy(), max(f.s.Plan.MaxUnfinished, 1)-f.s.Unfinished
	left := late - f.caughtUp(f.calendar[:late])
	if left < late && overlap == store.OverlapSkip && room > 0 && due-late >= room {
		left = late // what is on time goes first
	}
	want.skip(store.SkipMissed, f.calendar[:left])
	for want.decided = left; want.decided < due && len(want.runs) < store.MaxCatchUp; want.decided++ {
		full := len(want.runs) >= room
		if full && overlap == store.OverlapSkip {
			want.skip(store.SkipOverlap, f.calendar[want.decided:due])
			want.decided = due
			break
		}
		if full && overlap == store.OverlapWait {
			want.waits = true
			break
		}
		want.runs = append(want.runs, f.calendar[want.decided])
	}
	return want
}

// caughtUp is how many of the missed occurrences become runs: the last ones.
func (f *fleet) caughtUp(missed []time.Time) int {
	most := map[store.CatchUpPolicy]int{store.CatchUpLatest: 1, store.CatchUpAll: f.s.Plan.CatchUpMost}[f.s.Plan.CatchUp]
	if f.s.Plan.CatchUp == store.CatchUpAll && most == 0 {
		most = store.MaxCatchUp
	}
	n := 0
	for _, at := range slices.Backward(missed) {
		if within := time.Duration(f.s.Plan.CatchUpWithin); n == most || within > 0 && f.now.Sub(at) > within {
			break
		}
		n++
	}
	return n
}

func (want *said) skip(reason store.SkipReason, all []time.Time) {
	if len(all) > 0 {
		want.skips = append(want.skips, store.Skip{Reason: reason, First: all[0], Last: all[len(all)-1]})
	}
}
