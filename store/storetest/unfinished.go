package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// makesUntilFull creates up to so many occurrences of a schedule per evaluation,
// unless there is no room.
func makesUntilFull(round, n int) func(time.Time, store.Schedule) store.Decision {
	return func(now time.Time, s store.Schedule) store.Decision {
		d := store.Decision{NextAt: now.Add(time.Second)}
		for i := 0; i < n && !s.Plan.Full(s.Unfinished+i); i++ {
			d.Occurrences = append(d.Occurrences, store.Occurrence{Key: fmt.Sprintf("%04d-%04d", round, i), Run: newRun()})
		}
		return d
	}
}

// asManyAtOnce fills schedules to their bounds, a part per evaluation, and evaluates
// again when some have ended.
func asManyAtOnce(t *testing.T, f *fixture) {
	for _, most := range []int{3, 100, 101, 150, store.MaxUnfinishedRuns} {
		s := own(fmt.Sprintf("at-once-%d", most))
		s.Plan.MaxUnfinished, s.Job = most, s.Name
		f.save(s)
	}
	for round := range 16 {
		f.materialize(10, makesUntilFull(round, 80))
		f.advance(2 * time.Second)
	}
	for _, most := range []int{3, 100, 101, 150, store.MaxUnfinishedRuns} {
		name := fmt.Sprintf("at-once-%d", most)
		f.wantUnfinished(name, most)
		if err := f.store.RunSchedule(f.ctx, name, store.NewRunID(), store.OverlapSkip, "ann"); !errors.Is(err, store.ErrConflict) {
			t.Errorf("asked for one more of %s: %v, want a conflict", name, err)
		}
	}
	past, err := f.store.ScheduleHistory(f.ctx, "at-once-150", 150)
	if err != nil {
		t.Fatal(err)
	}
	past = slices.DeleteFunc(past, func(line store.HistoryEntry) bool { return line.Kind != store.HistoryRun })
	for _, line := range past[:30] {
		f.did(store.CancelRuns, *line.Run, store.RunChanged, store.Cancelled)
	}
	f.wantUnfinished("at-once-150", 120)
	f.did(store.RetryRuns, *past[7].Run, store.RunChanged, store.Pending)
	f.wantUnfinished("at-once-150", 121)
}

// wantUnfinished checks the count that decide gets, and leaves the schedule due soon.
func (f *fixture) wantUnfinished(name string, want int) {
	f.t.Helper()
	told := -1
	f.materialize(10, func(now time.Time, s store.Schedule) store.Decision {
		if s.Name == name {
			told = s.Unfinished
		}
		return in(time.Second)(now, s)
	})
	f.advance(2 * time.Second)
	if told != want {
		f.t.Errorf("decide is given %d unfinished runs of %s, want %d", told, name, want)
	}
}

// hungRemembered makes many runs of a schedule that may overlap, ends all but
// the first, and then forbids it.
func hungRemembered(t *testing.T, f *fixture) {
	s := own("nightly")
	s.Plan.Overlap = store.OverlapAllow
	f.save(s)
	var all []store.RunID
	for round := range 30 {
		made := f.materialize(10, func(now time.Time, _ store.Schedule) store.Decision {
			d := store.Decision{NextAt: now.Add(time.Second)}
			for i := range 10 {
				d.Occurrences = append(d.Occurrences, store.Occurrence{Key: fmt.Sprintf("%04d-%04d", round, i), Run: newRun()})
			}
			return d
		})
		all = append(all, made.Runs...)
		f.advance(2 * time.Second)
	}
	slices.SortFunc(all, func(a, b store.RunID) int { return slices.Compare(a[:], b[:]) })
	for _, id := range all[1:] {
		f.did(store.CancelRuns, id, store.RunChanged, store.Cancelled)
	}
	if err := f.store.RunSchedule(f.ctx, "nightly", store.NewRunID(), store.OverlapSkip, "ann"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("asked for another one beside what hangs: %v, want a conflict", err)
	}
	stored := f.schedule("nightly")
	edited := stored.Schedule()
	edited.Plan.Overlap = store.OverlapSkip
	f.save(edited)
	f.wantUnfinished("nightly", 1)
	f.wantUnfinished("nightly", 1)
	f.did(store.CancelRuns, all[0], store.RunChanged, store.Cancelled)
	f.wantUnfinished("nightly", 0)
	f.did(store.RetryRuns, all[0], store.RunChanged, store.Pending)
	f.wantUnfinished("nightly", 1)
}

// manyWait has workers catch up with a backlog of a schedule whose runs no worker
// executes.
func manyWait(_ *testing.T, f *fixture) {
	const most = 120
	code := both(recurring("many", store.Every(time.Second), durable.CatchUp(store.CatchUpAll, 0, 0), durable.MaxUnfinished(most)),
		recurring("beat", store.Every(time.Second), durable.Overlap(store.OverlapAllow)))
	f.until(func() bool { return f.planned("many")() && f.planned("beat")() }, code)
	f.advance(15 * time.Minute)
	f.until(func() bool { n, _ := f.made("many"); return n >= most }, code, code)
	for range 3 {
		f.advance(2 * time.Second)
		looked, _ := f.made("beat")
		f.until(f.came("beat", looked+1), code, code)
	}
	f.wantMade("many", most)
}

// scheduleAskedTwice repeats calls whose answers were lost.
func scheduleAskedTwice(t *testing.T, f *fixture) {
	f.declare(newSchedule("nightly"), newSchedule("other"))
	first, second := store.NewRunID(), store.NewRunID()
	for range 3 {
		if err := f.store.RunSchedule(f.ctx, "nightly", first, store.OverlapSkip, "ann"); err != nil {
			t.Errorf("asked again with the same id: %v", err)
		}
		if err := f.store.RunSchedule(f.ctx, "nightly", second, store.OverlapAllow, "ann"); err != nil {
			t.Errorf("asked again with the same id, beside another: %v", err)
		}
	}
	f.did(store.CancelRuns, first, store.RunChanged, store.Cancelled)
	if err := f.store.RunSchedule(f.ctx, "nightly", first, store.OverlapSkip, "ann"); err != nil {
		t.Errorf("asked again when it had ended: %v", err)
	}
	past, err := f.store.ScheduleHistory(f.ctx, "nightly", 10)
	if err != nil || len(past) != 4 {
		t.Errorf("SchedulePast: %+v, %v, want two runs and who asked for them", past, err)
	}
	if err := f.store.RunSchedule(f.ctx, "other", first, store.OverlapAllow, "ann"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("asked with the id of another's run: %v, want a conflict", err)
	}
	enqueued := newRun()
	f.enqueue(enqueued)
	if err := f.store.RunSchedule(f.ctx, "other", enqueued.ID, store.OverlapAllow, "ann"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("asked with the id of a run of none: %v, want a conflict", err)
	}
	invalid(t, "RunSchedule without an id", f.store.RunSchedule(f.ctx, "other", store.RunID{}, store.OverlapAllow, "ann"))
	if counts := f.counts(); counts[store.Pending] != 2 || counts[store.Cancelled] != 1 {
		t.Errorf("counts %v, want 2 pending and 1 cancelled", counts)
	}
}
