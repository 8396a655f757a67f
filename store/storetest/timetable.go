package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func timetableTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a schedule is saved, listed and edited by its generation":                scheduleSaved,
		"a paused schedule rests and is planned afresh when it is resumed":        schedulePaused,
		"a deleted schedule can be made again":                                    scheduleDeleted,
		"a run is asked for, unless one has not ended":                            scheduleAsked,
		"a run that is asked for twice with one id is one":                        scheduleAskedTwice,
		"as many are asked for as may be unfinished":                              scheduleAskedWithRoom,
		"there are never more than may be unfinished, however many":               asManyTogether,
		"what hangs is not forgotten when overlap is no longer allowed":           hungRemembered,
		"a run that is retried counts as unfinished again":                        retriedCounted,
		"decide is given how many runs have not ended":                            unfinishedCounted,
		"what waits is looked at again, and knows since when":                     waitingKept,
		"a hundred schedules that wait do not keep others from their turn":        waitingStarvesNone,
		"what was skipped, run and changed is listed, newest first":               pastNamed,
		"an operator's edit is kept until the code's own schedule changes":        editCounts,
		"an older program does not undo a newer one's schedule":                   olderDeclares,
		"what no worker declares is flagged, and paused where the policy says so": orphansPaused,
		"many ask for a run concurrently, and one gets it":                        askedTogether,
		"a program's schedule is put, and put again":                              schedulePut,
		"a schedule that workers declare is not replaced by a program's":          putOfWorkers,
		"many put one schedule concurrently":                                      putTogether,
		"what is not there is not found, and what is wrong is refused":            timetableRefuses,
	}
}

func (f *fixture) schedule(name string) store.ScheduleRecord {
	f.t.Helper()
	records, err := f.store.ListSchedules(f.ctx, name)
	if err != nil || len(records) != 1 {
		f.t.Fatalf("ListSchedules(%s): %+v, %v", name, records, err)
	}
	return records[0]
}

func (f *fixture) save(s store.Schedule) {
	f.t.Helper()
	if err := f.store.SaveSchedule(f.ctx, s, "ann"); err != nil {
		f.t.Fatalf("SaveSchedule: %v", err)
	}
}

func (f *fixture) act(name string, action store.ScheduleAction) {
	f.t.Helper()
	if err := f.store.ChangeSchedule(f.ctx, name, action, "ann"); err != nil {
		f.t.Fatalf("ChangeSchedule(%s): %v", action, err)
	}
}

// own makes an operator's schedule.
func own(name string) store.Schedule {
	s := newSchedule(name)
	s.Hash = ""
	return s
}

func scheduleSaved(t *testing.T, f *fixture) {
	s := own("nightly")
	s.Rule, s.Plan.Overlap, s.Plan.Jitter = store.Cron("0 3 * * *", "Europe/Berlin"), store.OverlapWait, store.Duration(time.Minute)
	s.Plan.Blackouts, s.Args, s.Tags = []store.Window{{Days: "sat,sun"}}, []byte(`{ "a" : 1 }`), []string{"x"}
	s.Priority, s.Timeout, s.OnCrash = 3, time.Minute, store.CrashDead
	f.save(s)
	if err := f.store.SaveSchedule(f.ctx, s, "ann"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("saved as new twice: %v, want a conflict", err)
	}
	listed := f.schedule("nightly")
	s.Generation = 1
	if got := listed.Schedule(); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", s) {
		t.Errorf("listed\n%+v, want\n%+v", got, s)
	}
	if !listed.Edited || listed.DeclaredAt != nil || listed.Orphaned || listed.NextAt != nil || listed.Paused {
		t.Errorf("listed %+v, want an operator's own, not planned yet", listed)
	}
	edit := listed.Schedule()
	edit.Rule = store.Every(time.Minute)
	f.save(edit)
	if err := f.store.SaveSchedule(f.ctx, edit, "ann"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("saved over a version that was not read: %v, want a conflict", err)
	}
	f.materialize(10, in(time.Hour))
	if edited := f.schedule("nightly"); edited.Rule != edit.Rule || edited.Generation != 2 || edited.NextAt == nil {
		t.Errorf("edited %+v, want generation 2, planned", edited)
	}
	f.save(own("another"))
	if all, err := f.store.ListSchedules(f.ctx); err != nil || len(all) != 2 || all[0].Name != "another" {
		t.Errorf("ListSchedules: %+v, %v, want both by name", all, err)
	}
	if none, err := f.store.ListSchedules(f.ctx, "none"); err != nil || len(none) != 0 {
		t.Errorf("ListSchedules of what is not there: %+v, %v", none, err)
	}
}

func schedulePaused(t *testing.T, f *fixture) {
	asleep := newSchedule("asleep")
	asleep.Paused = true
	f.declare(newSchedule("nightly"), asleep)
	if made := f.materialize(10, in(10*time.Second)); made.Due != 1 || !f.schedule("asleep").Paused {
		t.Errorf("looked at %+v, want the one that is not paused at first", made)
	}
	f.act("nightly", store.PauseSchedule)
	f.act("nightly", store.PauseSchedule)
	if paused := f.schedule("nightly"); !paused.Paused || text(paused.PausedBy) != "ann" || paused.NextAt != nil {
		t.Errorf("%+v, want paused by ann", paused)
	}
	f.advance(time.Hour)
	f.declare(newSchedule("nightly"), asleep)
	if made := f.materialize(10, fire); made.Due != 0 || made.Next >= 0 {
		t.Errorf("looked at %+v, want nothing", made)
	}
	f.act("nightly", store.ResumeSchedule)
	f.act("asleep", store.ResumeSchedule)
	planned := 0
	f.materialize(10, func(now time.Time, s store.Schedule) store.Decision {
		if s.NextAt.IsZero() {
			planned++
		}
		return in(time.Hour)(now, s)
	})
	if planned != 2 || f.schedule("nightly").Paused || f.schedule("nightly").PausedBy != nil {
		t.Errorf("planned %d afresh, want 2 that are not paused", planned)
	}
}

// fireAs makes one occurrence of a key.
func fireAs(key string) func(time.Time, store.Schedule) store.Decision {
	return func(now time.Time, s store.Schedule) store.Decision {
		decision := fire(now, s)
		decision.Occurrences[0].Key, decision.NextAt = key, now.Add(10*time.Second)
		return decision
	}
}

func scheduleDeleted(t *testing.T, f *fixture) {
	f.save(own("nightly"))
	f.materialize(10, in(10*time.Second))
	f.advance(10 * time.Second)
	first := f.materialize(10, fireAs("monday"))
	f.act("nightly", store.DeleteSchedule)
	if records, err := f.store.ListSchedules(f.ctx); err != nil || len(records) != 0 {
		t.Errorf("ListSchedules: %+v, %v, want none", records, err)
	}
	if state := f.record(first.Runs[0]).State; state != store.Pending {
		t.Errorf("its run is %v, want it kept", state)
	}
	f.save(own("nightly"))
	f.materialize(10, in(10*time.Second))
	f.advance(10 * time.Second)
	if made := f.materialize(10, fireAs("monday")); len(made.Runs) != 1 {
		t.Errorf("materialized %+v, want a run of the new one", made)
	}
}

func scheduleAskedWithRoom(t *testing.T, f *fixture) {
	three := newSchedule("nightly")
	three.Plan.MaxUnfinished = 3
	f.declare(three)
	for range 3 {
		if err := f.store.RunSchedule(f.ctx, "nightly", store.NewRunID(), store.OverlapSkip, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.store.RunSchedule(f.ctx, "nightly", store.NewRunID(), store.OverlapSkip, "ann"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("asked for a fourth one: %v, want a conflict", err)
	}
}

func retriedCounted(t *testing.T, f *fixture) {
	f.declare(newSchedule("nightly"))
	id := store.NewRunID()
	err := f.store.RunSchedule(f.ctx, "nightly", id, store.OverlapSkip, "ann")
	if err != nil {
		t.Fatal(err)
	}
	f.did(store.CancelRuns, id, store.RunChanged, store.Cancelled)
	count := func() (given int) {
		f.advance(10 * time.Second)
		f.materialize(10, func(now time.Time, s store.Schedule) store.Decision {
			given = s.Unfinished
			return in(10*time.Second)(now, s)
		})
		return given
	}
	if n := count(); n != 0 {
		t.Errorf("%d runs are unfinished once it is cancelled, want none", n)
	}
	f.did(store.RetryRuns, id, store.RunChanged, store.Pending)
	if err := f.store.RunSchedule(f.ctx, "nightly", store.NewRunID(), store.OverlapSkip, "ann"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("asked for another one beside it: %v, want a conflict", err)
	}
	if n := count(); n != 1 {
		t.Errorf("%d runs are unfinished once it is retried, want it", n)
	}
}

func scheduleAsked(t *testing.T, f *fixture) {
	f.declare(newSchedule("nightly"))
	id := store.NewRunID()
	err := f.store.RunSchedule(f.ctx, "nightly", id, store.OverlapSkip, "ann")
	if err != nil {
		t.Fatal(err)
	}
	if record := f.record(id); text(record.Schedule) != "nightly" || record.State != store.Pending || record.Job != "mail" {
		t.Errorf("%+v, want a run of the schedule", record)
	}
	if err := f.store.RunSchedule(f.ctx, "nightly", store.NewRunID(), store.OverlapSkip, "ann"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("asked for a second one: %v, want a conflict", err)
	}
	if err := f.store.RunSchedule(f.ctx, "nightly", store.NewRunID(), store.OverlapAllow, "ann"); err != nil {
		t.Errorf("asked for a second one all the same: %v", err)
	}
	worker := newWorker("w1")
	claim, claimed := f.claim(worker, 10)
	if len(claimed) != 2 {
		t.Fatalf("claimed %d runs, want 2", len(claimed))
	}
	f.settle(all(claim, worker, claimed, success()))
	if err := f.store.RunSchedule(f.ctx, "nightly", store.NewRunID(), store.OverlapSkip, "ann"); err != nil {
		t.Errorf("asked again when they had ended: %v", err)
	}
	if f.schedule("nightly").NextAt != nil {
		t.Error("the schedule has moved")
	}
}

func unfinishedCounted(t *testing.T, f *fixture) {
	f.declare(newSchedule("nightly"), newSchedule("other"))
	f.materialize(10, in(10*time.Second))
	if err := f.store.RunSchedule(f.ctx, "other", store.NewRunID(), store.OverlapSkip, "ann"); err != nil {
		t.Fatal(err)
	}
	worker := newWorker("w1")
	var counts []int
	for round := range 5 {
		f.advance(10 * time.Second)
		f.materialize(10, func(now time.Time, s store.Schedule) store.Decision {
			if s.Name == "other" {
				return in(10*time.Second)(now, s)
			}
			counts = append(counts, s.Unfinished)
			return fireAs(fmt.Sprint(round))(now, s)
		})
		if round == 2 {
			claim, claimed := f.claim(worker, 10)
			for i, run := range claimed {
				kinds := []store.OutcomeKind{store.Success, store.Death, store.Cancellation, store.Failure}
				f.settle(store.Settlement{Claim: claim, Worker: worker, Last: i == len(claimed)-1,
					Runs: []store.Settled{{ID: run.ID, Outcome: store.Outcome{Kind: kinds[i%len(kinds)], After: time.Hour}}}})
			}
		}
	}
	// Of four runs claimed, three of them the schedule's, one is tried again later.
	if !slices.Equal(counts[:3], []int{0, 1, 2}) || counts[3] > 1 || counts[4] != counts[3]+1 {
		t.Errorf("decide was given %v unfinished runs", counts)
	}
}

func waitingKept(t *testing.T, f *fixture) {
	f.declare(newSchedule("nightly"))
	f.materialize(10, in(10*time.Second))
	f.advance(10 * time.Second)
	wait := func(pause time.Duration) func(time.Time, store.Schedule) store.Decision {
		return func(_ time.Time, s store.Schedule) store.Decision {
			return store.Decision{NextAt: s.NextAt, Waiting: pause}
		}
	}
	made := f.materialize(10, wait(5*time.Second))
	if made.Due != 1 || made.Next <= 0 || made.Next > 5*time.Second || !f.schedule("nightly").Waiting {
		t.Errorf("looked at %+v, want it looked at again in 5 s", made)
	}
	f.advance(6 * time.Second)
	if made = f.materialize(10, func(time.Time, store.Schedule) store.Decision { return store.Decision{Fault: "none of its own"} }); made.Due != 1 {
		t.Errorf("looked at %+v, want it", made)
	}
	f.advance(time.Minute)
	var seen store.Schedule
	made = f.materialize(10, func(now time.Time, s store.Schedule) store.Decision {
		seen = s
		return fireAs("monday")(now, s)
	})
	if made.Due != 1 || seen.Waiting != 5*time.Second || seen.EvaluateAt.Sub(seen.NextAt) < 50*time.Second {
		t.Errorf("decide was given %+v, want that it has waited, and rested from its fault", seen)
	}
	f.advance(10 * time.Second)
	f.materialize(10, func(now time.Time, s store.Schedule) store.Decision {
		if s.Waiting != 0 || !s.EvaluateAt.IsZero() {
			t.Errorf("decide was given %+v, want that it does not wait", s)
		}
		return in(time.Hour)(now, s)
	})
}

func waitingStarvesNone(t *testing.T, f *fixture) {
	schedules := []store.Schedule{newSchedule("z")}
	for i := range 100 {
		schedules = append(schedules, newSchedule(fmt.Sprintf("a-%d", i)))
	}
	f.declare(schedules...)
	f.materialize(1000, in(10*time.Second))
	f.advance(10 * time.Second)
	for range 12 {
		f.materialize(10, func(now time.Time, s store.Schedule) store.Decision {
			if s.Name != "z" {
				return store.Decision{NextAt: s.NextAt, Waiting: time.Second}
			}
			return fire(now, s)
		})
	}
	if pending := f.counts()[store.Pending]; pending != 1 {
		t.Errorf("%d runs, want that of the schedule which does not wait", pending)
	}
}

func pastNamed(t *testing.T, f *fixture) {
	f.declare(newSchedule("nightly"))
	f.materialize(10, in(10*time.Second))
	var first time.Time
	f.advance(time.Hour)
	f.materialize(10, func(now time.Time, s store.Schedule) store.Decision {
		first = s.NextAt
		decision := fireAs("monday")(now, s)
		decision.Occurrences[0].Run.At = now
		decision.Skips = []store.Skip{{Reason: store.SkipMissed, First: s.NextAt, Last: now.Add(-time.Minute)}}
		return decision
	})
	f.advance(10 * time.Second)
	f.act("nightly", store.PauseSchedule)
	past, err := f.store.ScheduleHistory(f.ctx, "nightly", 10)
	if err != nil || len(past) != 4 {
		t.Fatalf("SchedulePast: %+v, %v, want four lines", past, err)
	}
	due, change, run, skip := past[0], past[1], past[2], past[3]
	if due.Kind == store.HistoryChange { // at the same moment
		due, change = change, due
	}
	if due.Kind != store.HistorySkip || text(due.Reason) != "changed" || due.First == nil || due.First.After(due.At) || !near(due.At, change.At) {
		t.Errorf("%+v, want what was due", due)
	}
	if change.Kind != store.HistoryChange || text(change.Reason) != "pause" || text(change.By) != "ann" {
		t.Errorf("%+v, want the change", change)
	}
	if run.Kind != store.HistoryRun || text(run.Occurrence) != "monday" || run.Run == nil || run.State == nil || *run.State != store.Pending {
		t.Errorf("%+v, want the run", run)
	}
	if skip.Kind != store.HistorySkip || text(skip.Reason) != "missed" || skip.First == nil || !near(*skip.First, first.Add(-10*time.Second)) ||
		!skip.At.After(*skip.First) || skip.At.Location() != time.UTC {
		t.Errorf("%+v, want the skip from %v", skip, first)
	}
	if few, err := f.store.ScheduleHistory(f.ctx, "nightly", 0); err != nil || len(few) != 0 {
		t.Errorf("SchedulePast of no lines: %+v, %v", few, err)
	}
}

// near reports whether two instants are close. A store whose time passes by
// moving what it has stored has moved one of them.
func near(a, b time.Time) bool { return a.Sub(b).Abs() <= 11*time.Second }
