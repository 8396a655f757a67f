package recur_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/recur"
	"github.com/durable-worker/durable-worker/store"
)

// noon is a Thursday.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func everyTen(options ...durable.Option) store.Schedule {
	return planned(durable.Every(10*time.Second), options...)
}

func hourly(options ...durable.Option) store.Schedule {
	return planned(durable.Every(time.Hour), options...)
}

func planned(rule store.Rule, options ...durable.Option) store.Schedule {
	job := durable.JobInfo{Name: "tick", Queue: durable.DefaultQueue, MaxAttempts: 3}
	s, err := durable.ScheduleOf(job, "tick", []byte("{}"), rule, options...)
	if err != nil {
		panic(err)
	}
	s.NextAt = noon
	return s
}

// begun is a planner with a transaction under way.
func begun(ctx context.Context) *recur.Planner {
	p := recur.NewPlanner()
	p.Begin(ctx)
	return p
}

func plannerWith(ctx context.Context, left int) *recur.Planner {
	p := begun(ctx)
	p.SetLeft(left)
	return p
}

// decided writes a decision in short, times as seconds from noon.
func decided(t *testing.T, s store.Schedule, now time.Time) string {
	t.Helper()
	d := begun(t.Context()).Decide(now, s)
	require.Empty(t, d.Fault)
	at := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return fmt.Sprint(int(t.Sub(noon).Seconds()))
	}
	var words []string
	for i, o := range d.Occurrences {
		if i < 3 || i == len(d.Occurrences)-1 {
			words = append(words, "run "+at(o.Run.At))
		}
	}
	if n := len(d.Occurrences); n > 4 {
		words = append(words, fmt.Sprintf("(%d)", n))
	}
	for _, skip := range d.Skips {
		words = append(words, fmt.Sprintf("%s %s to %s", skip.Reason, at(skip.First), at(skip.Last)))
	}
	words = append(words, "next "+at(d.NextAt))
	if d.Waiting > 0 {
		words = append(words, fmt.Sprintf("waiting, look in %v", d.Waiting))
	}
	return strings.Join(words, ", ")
}

func TestDecide(t *testing.T) {
	t.Parallel()
	const weeks = 14 * 24 * time.Hour
	busy := func(s store.Schedule) store.Schedule { s.Unfinished = 1; return s }
	waiting := func(s store.Schedule, look time.Duration) store.Schedule {
		s.Waiting, s.EvaluateAt = 400*time.Millisecond, noon.Add(look)
		return s
	}
	for _, one := range []struct {
		says string
		s    store.Schedule
		now  time.Duration
		want string
	}{
		{"on time", everyTen(), 0, "run 0, next 10"},
		{"late by less than a minute: what is due is not missed, the first is at work", everyTen(), 25 * time.Second,
			"run 0, overlap 10 to 20, next 30"},
		{"with overlap allowed each due one becomes a run", everyTen(durable.Overlap(durable.OverlapAllow)), time.Minute,
			"run 0, run 10, run 20, run 60, (7), next 70"},
		{"an outage is skipped", hourly(), weeks + 2*time.Minute, "missed 0 to 1209600, next 1213200"},
		{"what is on time follows the missed ones that are skipped", hourly(), time.Hour + time.Minute, "run 3600, missed 0 to 0, next 7200"},
		{"a microsecond later it is missed", hourly(), time.Hour + time.Minute + time.Microsecond, "missed 0 to 3600, next 7200"},
		{"several are on time", everyTen(), weeks, "run 1209540, missed 0 to 1209530, overlap 1209550 to 1209600, next 1209610"},
		{"several are on time, and may overlap", everyTen(durable.Overlap(durable.OverlapAllow)), weeks,
			"run 1209540, run 1209550, run 1209560, run 1209600, (7), missed 0 to 1209530, next 1209610"},
		{"the last one is caught up", hourly(durable.CatchUp(durable.CatchUpLatest, 0, 0)), weeks + 2*time.Minute,
			"run 1209600, missed 0 to 1206000, next 1213200"},
		{"the last one is not caught up where it would have one skipped that is on time",
			hourly(durable.CatchUp(durable.CatchUpLatest, 0, 0)), weeks, "run 1209600, missed 0 to 1206000, next 1213200"},
		{"the last one is caught up, and there is room for the one that is on time",
			hourly(durable.CatchUp(durable.CatchUpLatest, 0, 0), durable.MaxUnfinished(2)), weeks, "run 1206000, run 1209600, missed 0 to 1202400, next 1213200"},
		{"the last one is caught up, and the one that is on time waits for it",
			hourly(durable.CatchUp(durable.CatchUpLatest, 0, 0), durable.Overlap(durable.OverlapWait)), weeks,
			"run 1206000, missed 0 to 1202400, next 1209600, waiting, look in 25ms"},
		{"none is young enough to be caught up", hourly(durable.CatchUp(durable.CatchUpLatest, 30*time.Second, 0)), weeks,
			"run 1209600, missed 0 to 1206000, next 1213200"},
		{"the last one is too old", planned(durable.Cron("0 12 1 1 *", ""), durable.CatchUp(durable.CatchUpLatest, time.Hour, 0)), weeks, "missed 0 to 0, next 31536000"},
		{"all are caught up, one after the other", everyTen(durable.CatchUp(durable.CatchUpAll, 0, 0)), 90 * time.Second,
			"run 0, next 10, waiting, look in 25ms"},
		{"all are caught up, the latest hundred", everyTen(durable.CatchUp(durable.CatchUpAll, 0, 100), durable.Overlap(durable.OverlapAllow)), weeks,
			"run 1208540, run 1208550, run 1208560, run 1209600, (107), missed 0 to 1208530, next 1209610"},
		{"all are caught up, those of the last hour", everyTen(durable.CatchUp(durable.CatchUpAll, time.Hour, 0), durable.Overlap(durable.OverlapAllow)), weeks,
			"run 1206000, run 1206010, run 1206020, run 1209600, (361), missed 0 to 1205990, next 1209610"},
		{"it is at an instant that this machine's calendar does not hold", planned(durable.Every(24*time.Hour), durable.CatchUp(durable.CatchUpAll, 0, 10)), 2 * time.Minute,
			"run 0, next 43200"},
		{"an earlier run has not ended", busy(everyTen()), 0, "overlap 0 to 0, next 10"},
		{"no one was there, and an earlier run has not ended", busy(everyTen(durable.CatchUp(durable.CatchUpLatest, 0, 0))), time.Hour,
			"missed 0 to 3520, overlap 3530 to 3600, next 3610"},
		{"an earlier run may overlap", busy(everyTen(durable.Overlap(durable.OverlapAllow))), 0, "run 0, next 10"},
		{"room for two more beside the earlier one", busy(everyTen(durable.MaxUnfinished(3))), 25 * time.Second, "run 0, run 10, overlap 20 to 20, next 30"},
		{"no room", func(s store.Schedule) store.Schedule { s.Unfinished = 3; return s }(everyTen(durable.MaxUnfinished(3))), 0, "overlap 0 to 0, next 10"},
		{"room for one more, the next waits", busy(everyTen(durable.MaxUnfinished(2), durable.Overlap(durable.OverlapWait))), 15 * time.Second, "run 0, next 10, waiting, look in 25ms"},
		{"wait for the earlier run", busy(everyTen(durable.Overlap(durable.OverlapWait))), 0, "next 0, waiting, look in 25ms"},
		{"wait on", waiting(busy(everyTen(durable.Overlap(durable.OverlapWait))), 4*time.Second), 4 * time.Second, "next 0, waiting, look in 800ms"},
		{"the earlier run has ended", waiting(everyTen(durable.Overlap(durable.OverlapWait)), 5*time.Second), 5 * time.Second, "run 0, next 10"},
		{"it has waited long and is not missed", waiting(everyTen(durable.Overlap(durable.OverlapWait)), time.Hour), time.Hour + time.Second,
			"run 0, next 10, waiting, look in 25ms"},
		{"while it waited no one was there any more", waiting(hourly(durable.Overlap(durable.OverlapWait)), time.Hour), 3*time.Hour + 2*time.Minute,
			"missed 0 to 10800, next 14400"},
		{"once, on time", planned(durable.Once(noon)), 0, "run 0, next never"},
		{"once, after an outage", planned(durable.Once(noon)), weeks, "run 0, next never"},
		{"once, skipped by choice", planned(durable.Once(noon), durable.CatchUp(durable.CatchUpSkip, 0, 0)), weeks, "missed 0 to 0, next never"},
		{"the end", everyTen(durable.EndAt(noon.Add(5 * time.Second))), 0, "run 0, next never"},
	} {
		require.Equal(t, one.want, decided(t, one.s, noon.Add(one.now)), one.says)
	}
}

func TestDecide_PlansWhatIsNew(t *testing.T) {
	t.Parallel()
	s := everyTen(durable.StartAt(noon.Add(time.Hour)))
	s.NextAt = time.Time{}
	require.Equal(t, "next 3600", decided(t, s, noon))
	s = planned(durable.Once(noon))
	s.NextAt = time.Time{}
	require.Equal(t, "next 0", decided(t, s, noon.Add(-time.Second)))
	require.Equal(t, "next never", decided(t, s, noon), "its instant is over when it is declared")
}

func TestDecide_BoundsOneTransaction(t *testing.T) {
	t.Parallel()
	plan := plannerWith(t.Context(), 3)
	s := everyTen(durable.Overlap(durable.OverlapAllow))
	require.Len(t, plan.Decide(noon.Add(35*time.Second), s).Occurrences, 4)
	d := plan.Decide(noon.Add(35*time.Second), s)
	require.Empty(t, d.Occurrences)
	require.Equal(t, noon, d.NextAt, "left due")

	s.NextAt = time.Time{}
	d = plan.Decide(noon.Add(5*time.Second), s)
	require.Equal(t, noon.Add(10*time.Second), d.NextAt, "planned all the same: one without a plan is over")
	s.EvaluateAt = noon.Add(-time.Second)
	d = plan.Decide(noon.Add(35*time.Second), s)
	require.Empty(t, d.Occurrences)
	require.Equal(t, noon, d.NextAt, "left due, from when it was made")

	large := everyTen(durable.CatchUp(durable.CatchUpAll, 0, 0), durable.Overlap(durable.OverlapAllow))
	large.Args = make([]byte, store.MaxArgsSize)
	plan.Begin(t.Context())
	var made []store.Occurrence
	for now := noon.Add(999 * 10 * time.Second); !large.NextAt.After(now); {
		before := plan.Left()
		d = plan.Decide(now, large)
		require.LessOrEqual(t, len(d.Occurrences)*store.MaxArgsSize, 8<<20)
		require.Greater(t, before-plan.Left(), len(d.Occurrences)*store.MaxArgsSize/recur.ArgsOfOne)
		made, large.NextAt = append(made, d.Occurrences...), d.NextAt
		plan.SetLeft(max(plan.Left(), 1))
		require.Empty(t, d.Skips)
	}
	require.Len(t, made, 1000, "large ones some at a time, none is left out")
}

// TestDecide_SkipsAMonthInOneStep: what waited for a month, and then may not wait any
// more, is one skip and not two and a half million steps.
func TestDecide_SkipsAMonthInOneStep(t *testing.T) {
	t.Parallel()
	s := planned(durable.Every(time.Second), durable.Overlap(durable.OverlapSkip))
	const month = 30 * 24 * time.Hour
	now := noon.Add(month)
	s.Waiting, s.EvaluateAt, s.Unfinished = time.Second, now.Add(-time.Second), 1
	asked := &counted{Context: t.Context()}
	d := begun(asked).Decide(now, s)
	require.Empty(t, d.Fault)
	require.Equal(t, []store.Skip{{Reason: store.SkipOverlap, First: noon, Last: now}}, d.Skips)
	require.Equal(t, now.Add(time.Second), d.NextAt)
	require.Less(t, asked.times, 200)
}

// counted counts how often a context is asked whether it has ended: a search does
// it for each occurrence.
type counted struct {
	context.Context
	times int
}

func (c *counted) Err() error { c.times++; return c.Context.Err() }

// TestDecide_GivesUp: an evaluation that finds no end, or no time, is a fault of
// its schedule, which stays where it is.
func TestDecide_GivesUp(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no time left"))
	for _, room := range []int{0, 1} {
		plan := plannerWith(ended, room)
		s := everyTen()
		s.NextAt, s.EvaluateAt = time.Time{}, noon
		require.Equal(t, store.Decision{Fault: "no time left"}, plan.Decide(noon.Add(time.Hour), s))
	}
	plan := plannerWith(ended, 1)
	require.Equal(t, store.Decision{NextAt: noon, Fault: "no time left"}, plan.Decide(noon.Add(time.Hour), everyTen(durable.CatchUp(durable.CatchUpAll, 0, 0))))
	require.Equal(t, 1, plan.Left())
}

func TestDecide_JitterAndSpreadFollowFromNames(t *testing.T) {
	t.Parallel()
	var starts, delays []time.Duration
	for i := range 200 {
		s := planned(durable.Every(time.Hour), durable.SpreadStart(time.Hour), durable.Jitter(time.Minute))
		s.Name = fmt.Sprintf("spread-%d", i)
		next, err := s.Preview(noon.Add(-time.Microsecond), 2)
		require.NoError(t, err)
		require.Equal(t, time.Hour, next[1].Sub(next[0]))
		starts = append(starts, next[0].Sub(noon))
		s.NextAt = next[0]
		plan := plannerWith(t.Context(), 1)
		first := plan.Decide(next[0], s)
		plan.SetLeft(1)
		again := plan.Decide(next[0], s)
		require.Equal(t, first.Occurrences[0].Run.At, again.Occurrences[0].Run.At, "the same on every worker")
		delays = append(delays, first.Occurrences[0].Run.At.Sub(next[0]))
	}
	requireSpread(t, starts, time.Hour)
	requireSpread(t, delays, time.Minute)
}

// requireSpread wants delays in each quarter of a range and none outside.
func requireSpread(t *testing.T, delays []time.Duration, within time.Duration) {
	t.Helper()
	var quarters [4]int
	for _, d := range delays {
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.Less(t, d, within)
		quarters[4*d/within]++
	}
	for _, n := range quarters {
		require.InDelta(t, len(delays)/4, n, float64(len(delays))/8)
	}
}

func TestSchedule_SpecIsReadBack(t *testing.T) {
	t.Parallel()
	s := planned(durable.Every(time.Minute).From(noon).In("Europe/Berlin"), durable.CatchUp(durable.CatchUpAll, time.Hour, 7), durable.Overlap(durable.OverlapWait),
		durable.StartAt(noon), durable.EndAt(noon.Add(time.Hour)), durable.Blackout(durable.Window{Days: "sat"}), durable.Jitter(time.Second), durable.SpreadStart(time.Second))
	var read store.Schedule
	require.NoError(t, read.SetSpec(s.Spec()))
	require.Equal(t, s.Rule, read.Rule)
	require.Equal(t, s.Plan, read.Plan)
	require.JSONEq(t, `{"rule": {"every": "10s"}, "plan": {}}`, string((&store.Schedule{Rule: durable.Every(10 * time.Second)}).Spec()))
}
