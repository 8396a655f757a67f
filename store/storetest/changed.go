package storetest

import (
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// catchesUp is an operator's schedule of an interval that makes up for everything
// that was missed while no worker ran.
func catchesUp(name string, every time.Duration) store.Schedule {
	s := own(name)
	s.Rule = store.Every(every)
	s.Plan.CatchUp, s.Plan.Overlap = store.CatchUpAll, store.OverlapAllow
	return s
}

// wantChanged checks that one skip reports what was due before a change, up to
// the change.
func (f *fixture) wantChanged(name string, due time.Time) {
	f.t.Helper()
	f.wantMade(name, 0, "changed")
	past, err := f.store.ScheduleHistory(f.ctx, name, 10)
	for _, line := range past {
		if line.Kind == store.HistorySkip && (!near(*line.First, due) || !near(line.At, f.now()) || line.At.Before(*line.First)) {
			f.t.Errorf("skipped from %v to %v, want from %v to now, %v", line.First, line.At, due, f.now())
		}
	}
	if err != nil {
		f.t.Errorf("SchedulePast: %v", err)
	}
}

func dueChangedByCode(_ *testing.T, f *fixture) {
	one := version("tick", "one")
	one.Rule = store.Every(time.Hour)
	f.declares(newWorker("w1"), 0, one)
	f.until(f.planned("tick"), workless)
	f.due("tick")
	two := version("tick", "two")
	two.Rule = store.Every(2 * time.Hour)
	f.declares(newWorker("w2"), 0, two)
	f.wantChanged("tick", f.now().Add(-time.Second))
	f.until(f.planned("tick"), workless)
	f.wantMade("tick", 0, "changed")
}

func dueChangedByEdit(_ *testing.T, f *fixture) {
	f.save(catchesUp("tick", time.Hour))
	f.until(f.planned("tick"), workless)
	f.due("tick")
	stored := f.schedule("tick")
	edited := stored.Schedule()
	edited.Rule = store.Every(3 * time.Hour)
	f.save(edited)
	f.wantChanged("tick", f.now().Add(-time.Second))
}

func duePaused(_ *testing.T, f *fixture) {
	f.save(catchesUp("tick", time.Hour))
	f.until(f.planned("tick"), workless)
	f.due("tick")
	f.act("tick", store.PauseSchedule)
	f.wantChanged("tick", f.now().Add(-time.Second))
	f.advance(10 * time.Hour)
	stored := f.schedule("tick")
	edited := stored.Schedule()
	edited.Rule = store.Every(3 * time.Hour)
	f.save(edited)
	f.act("tick", store.ResumeSchedule)
	f.until(f.planned("tick"), workless)
	f.wantMade("tick", 0, "changed") // what comes while it is paused is not due
}

func plannedSince(t *testing.T, f *fixture) {
	made := func(name, since string, before int) int {
		f.advance(10 * time.Hour) // and no worker runs
		f.until(f.came(name, before+9), workless)
		n, skips := f.made(name)
		if n -= before; n < 9 || n > 11 {
			t.Errorf("%d runs, want one for each hour since %s", n, since)
		}
		if len(skips) > 0 {
			t.Errorf("skipped %v since %s", skips, since)
		}
		return before + n
	}
	f.save(catchesUp("tick", time.Hour))
	all := made("tick", "it was made", 0)
	stored := f.schedule("tick")
	edited := stored.Schedule()
	edited.Plan.Start = f.now().Add(-48 * time.Hour).Truncate(time.Second)
	f.save(edited)
	made("tick", "its times were changed", all)
	rests := catchesUp("rests", time.Hour)
	rests.Paused = true
	f.save(rests)
	f.advance(10 * time.Hour)
	f.act("rests", store.ResumeSchedule)
	made("rests", "it was resumed", 0)
}

// workless is the code of a worker that declares no schedule.
func workless(*durable.Worker) {}

func onTimeAfterOutage(t *testing.T, f *fixture) {
	code := recurring("tick", store.Every(time.Minute))
	f.until(f.planned("tick"), code)
	f.advance(time.Hour)
	f.until(func() bool { _, skips := f.made("tick"); return len(skips) > 0 }, code)
	if runs, skips := f.made("tick"); runs != 1 || skips[len(skips)-1] != "missed" {
		t.Errorf("tick became %d runs and skipped %v, want 1 of the last minute, and those before missed", runs, skips)
	}
}
