package storetest

import (
	"context"
	"errors"
	"slices"
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

func (f *fixture) put(to store.Scheduler, s store.Schedule) {
	f.t.Helper()
	if err := to.PutSchedule(f.ctx, s); err != nil {
		f.t.Fatalf("PutSchedule: %v", err)
	}
}

// planAll gives each schedule that is due to be planned its next occurrence, in an hour.
func (f *fixture) planAll() {
	f.t.Helper()
	f.materialize(10, func(now time.Time, _ store.Schedule) store.Decision {
		return store.Decision{NextAt: now.Add(time.Hour).Truncate(time.Second)}
	})
}

func (f *fixture) wantNoSchedule(name string) {
	f.t.Helper()
	if records, err := f.store.ListSchedules(f.ctx, name); err != nil || len(records) != 0 {
		f.t.Errorf("ListSchedules(%s): %+v, %v; want none", name, records, err)
	}
}

func schedulePut(t *testing.T, f *fixture) {
	put := own("customer/7")
	put.Tags = []string{"one"}
	f.put(f.store, put)
	f.planAll()
	first := f.schedule("customer/7")
	if first.Edited || first.DeclaredAt != nil || first.Paused || first.NextAt == nil || !slices.Equal(first.Tags, put.Tags) {
		t.Errorf("it is %+v; want it planned, of no worker and not an operator's", first)
	}
	put.Args, put.Tags, put.MaxAttempts = []byte(`{"to": "bob"}`), []string{"two"}, 7
	f.put(f.store, put)
	f.put(f.store, put)
	second := f.schedule("customer/7")
	if second.NextAt == nil || !second.NextAt.Equal(*first.NextAt) || !slices.Equal(second.Tags, put.Tags) || second.MaxAttempts != 7 {
		t.Errorf("it is %+v; want the new run at the same instant, %v", second, first.NextAt)
	}
	f.act("customer/7", store.PauseSchedule)
	put.Rule = store.Every(time.Minute)
	f.put(f.store, put)
	if now := f.schedule("customer/7"); !now.Paused || now.Rule.Every != store.Duration(time.Minute) {
		t.Errorf("it is %+v; want the new rule, and paused still", now)
	}
	edited := f.schedule("customer/7")
	f.save(edited.Schedule())
	f.put(f.store, put)
	if f.schedule("customer/7").Edited {
		t.Error("it is marked as edited, though the program has replaced the edit")
	}
	changes := 0
	history, err := f.store.ScheduleHistory(f.ctx, "customer/7", 10)
	for _, line := range history {
		if line.Kind == store.HistoryChange {
			changes++
		}
	}
	if err != nil || changes != 2 {
		t.Errorf("ScheduleHistory: %+v, %v; want the pause and the edit", history, err)
	}
	put.Name, put.Paused = "customer/8", true
	f.put(f.store, put)
	if !f.schedule("customer/8").Paused {
		t.Error("it was put paused, and is not")
	}
	put.Rule = store.Cron("61 * * * *", "")
	invalid(t, "PutSchedule", f.store.PutSchedule(f.ctx, put))
}

func putOfWorkers(t *testing.T, f *fixture) {
	f.declare(newSchedule("nightly"))
	if err := f.store.PutSchedule(f.ctx, own("nightly")); !errors.Is(err, store.ErrConflict) {
		t.Errorf("PutSchedule answered %v, want ErrConflict", err)
	}
	if f.schedule("nightly").Generation != 1 {
		t.Error("it has changed")
	}
}

func putTogether(_ *testing.T, f *fixture) {
	f.together(repeat(8, func(int) func(context.Context) error {
		return func(ctx context.Context) error { return f.store.PutSchedule(ctx, own("customer/7")) }
	})...)
	f.schedule("customer/7")
}

func txPut(_ *testing.T, f *fixture) {
	tx := f.begin()
	f.put(tx, own("customer/7"))
	f.wantNoSchedule("customer/7")
	f.commit(tx)
	f.planAll()
	if f.schedule("customer/7").NextAt == nil {
		f.t.Error("it is not planned")
	}
	tx = f.begin()
	f.put(tx, own("customer/8"))
	tx.Rollback()
	f.wantNoSchedule("customer/8")
	tx = f.begin()
	f.put(tx, own("customer/9"))
	again := own("customer/9")
	again.Tags = []string{"again"}
	f.put(tx, again)
	f.commit(tx)
	if tags := f.schedule("customer/9").Tags; !slices.Equal(tags, again.Tags) {
		f.t.Errorf("tags %v, want those that were put last", tags)
	}
}

func txChangeSchedule(t *testing.T, f *fixture) {
	f.put(f.store, own("customer/7"))
	f.put(f.store, own("customer/8"))
	change := func(tx Transaction, name string, action store.ScheduleAction) {
		t.Helper()
		if err := tx.ChangeSchedule(f.ctx, name, action, "billing"); err != nil {
			t.Fatalf("ChangeSchedule(%s, %s): %v", name, action, err)
		}
	}
	tx := f.begin()
	change(tx, "customer/7", store.PauseSchedule)
	change(tx, "customer/7", store.PauseSchedule)
	change(tx, "customer/8", store.DeleteSchedule)
	if err := tx.ChangeSchedule(f.ctx, "customer/8", store.PauseSchedule, "billing"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("ChangeSchedule of what the transaction has deleted answered %v, want ErrNotFound", err)
	}
	f.commit(tx)
	if now := f.schedule("customer/7"); !now.Paused || now.PausedBy == nil || *now.PausedBy != "billing" {
		t.Errorf("it is %+v, want it paused by billing", now)
	}
	f.wantNoSchedule("customer/8")
	tx = f.begin()
	change(tx, "customer/7", store.ResumeSchedule)
	f.put(tx, own("customer/8"))
	f.commit(tx)
	if f.schedule("customer/7").Paused {
		t.Error("it is paused, and was resumed")
	}
	f.schedule("customer/8")
	tx = f.begin()
	change(tx, "customer/7", store.DeleteSchedule)
	tx.Rollback()
	f.schedule("customer/7")
}

func txPutRefused(t *testing.T, f *fixture) {
	f.declare(newSchedule("nightly"))
	wrong := own("wrong")
	wrong.Rule = store.Cron("61 * * * *", "")
	tx := f.begin()
	invalid(t, "PutSchedule", tx.PutSchedule(f.ctx, wrong))
	invalid(t, "ChangeSchedule", tx.ChangeSchedule(f.ctx, "nightly", "paint", "billing"))
	if err := tx.ChangeSchedule(f.ctx, "none", store.PauseSchedule, "billing"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("ChangeSchedule answered %v, want ErrNotFound", err)
	}
	if err := tx.PutSchedule(f.ctx, newSchedule("nightly")); !errors.Is(err, store.ErrConflict) {
		t.Errorf("PutSchedule answered %v, want ErrConflict", err)
	}
	f.put(tx, own("customer/7"))
	f.commit(tx)
	f.schedule("customer/7")
}
