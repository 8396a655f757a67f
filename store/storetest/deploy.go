package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// declares makes a worker declare schedules, with what it does about orphans.
func (f *fixture) declares(worker store.WorkerID, orphans time.Duration, schedules ...store.Schedule) {
	f.t.Helper()
	declaration := store.Declaration{Worker: worker, Schedules: schedules, DisableOrphans: orphans}
	if err := f.store.Declare(f.ctx, declaration); err != nil {
		f.t.Fatalf("Declare: %v", err)
	}
}

// version is a schedule as a version of the code declares it.
func version(name, hash string) store.Schedule {
	s := newSchedule(name)
	s.Hash, s.Tags = hash, []string{hash}
	return s
}

func (f *fixture) wantVersion(name, hash string, generation int64) {
	f.t.Helper()
	if got := f.schedule(name); len(got.Tags) != 1 || got.Tags[0] != hash || got.Generation != generation {
		f.t.Errorf("%s is %v of generation %d, want %s of generation %d", name, got.Tags, got.Generation, hash, generation)
	}
}

func editCounts(t *testing.T, f *fixture) {
	worker := newWorker("w1")
	f.declares(worker, 0, version("nightly", "one"))
	listed := f.schedule("nightly")
	edit := listed.Schedule()
	edit.Tags = []string{"edited"}
	f.save(edit)
	f.declares(worker, 0, version("nightly", "one"))
	f.declares(newWorker("w2"), 0, version("nightly", "one"))
	f.wantVersion("nightly", "edited", 2)
	if !f.schedule("nightly").Edited {
		t.Error("it is not marked as edited, though an operator's version is kept")
	}
	f.advance(time.Second)
	f.declares(newWorker("w3"), 0, version("nightly", "two"))
	f.wantVersion("nightly", "two", 3)
	if f.schedule("nightly").Edited {
		t.Error("it is marked as edited, though no operator's version is kept")
	}
}

func olderDeclares(_ *testing.T, f *fixture) {
	older, newer, back := newWorker("older"), newWorker("newer"), newWorker("back")
	f.declares(older, 0, version("nightly", "one"))
	f.advance(time.Minute)
	f.declares(newer, 0, version("nightly", "two"))
	f.advance(time.Minute)
	f.declares(older, 0, version("nightly", "one"))
	f.wantVersion("nightly", "two", 2)
	f.declares(back, 0, version("nightly", "one")) // rolled back: it has started last
	f.wantVersion("nightly", "one", 3)
	f.declares(newer, 0, version("nightly", "two"))
	f.wantVersion("nightly", "one", 3)
	f.advance(store.DeclaredWithin + time.Minute) // no worker declares it any more
	f.declares(newer, 0, version("nightly", "two"))
	f.wantVersion("nightly", "two", 4)
}

// declaresJob makes a worker declare one job, with what its code says.
func (f *fixture) declaresJob(worker store.WorkerID, code store.JobCode) error {
	job := store.JobInfo{Name: "charge", Queue: store.DefaultQueue, MaxAttempts: 3, Code: code}
	return f.store.Declare(f.ctx, store.Declaration{Worker: worker, Jobs: []store.JobInfo{job}})
}

// wantCode checks what the code of the job says, in any order.
func (f *fixture) wantCode(when string, aliases, redacted string) {
	f.t.Helper()
	jobs, err := f.store.Jobs(f.ctx)
	if err != nil || len(jobs) != 1 {
		f.t.Fatalf("Jobs: %+v, %v, want one", jobs, err)
	}
	code := jobs[0].Code
	slices.Sort(code.Aliases)
	slices.Sort(code.Redacted)
	if strings.Join(code.Aliases, " ") != aliases || strings.Join(code.Redacted, " ") != redacted {
		f.t.Errorf("%s: aliases %q, redacted %q, want %s and %s", when, code.Aliases, code.Redacted, aliases, redacted)
	}
}

func hiddenByNewer(t *testing.T, f *fixture) {
	older, newer := newWorker("older"), newWorker("newer")
	before := store.JobCode{Redacted: []string{"card"}}
	after := store.JobCode{Aliases: []string{"pay"}, Redacted: []string{"card.number", "**.token"}}
	declares := func(worker store.WorkerID, code store.JobCode) {
		t.Helper()
		if err := f.declaresJob(worker, code); err != nil {
			t.Fatalf("Declare: %v", err)
		}
	}
	declares(older, before)
	f.wantCode("at first", "", "card")
	declares(newer, after)
	f.wantCode("in a deploy", "pay", "**.token card card.number")
	for range 3 { // each hour, both programs declare what they know
		f.advance(store.DeclareEvery)
		declares(newer, after)
		declares(older, before)
		f.wantCode("while both work", "pay", "**.token card card.number")
	}
	f.advance(store.DeclaredWithin + time.Minute)
	f.wantCode("while no worker is there", "pay", "**.token card card.number")
	declares(newer, after)
	f.wantCode("without the older", "pay", "**.token card.number")
	f.advance(store.DeclaredWithin - time.Minute)
	declares(newer, store.JobCode{}) // the next version takes the rules away
	f.wantCode("just after the last worker that hides it", "pay", "**.token card.number")
	f.advance(2 * time.Minute)
	declares(newer, store.JobCode{})
	f.wantCode("after the last worker that hides it", "", "")
}

func hiddenTogether(_ *testing.T, f *fixture) {
	paths := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	f.together(repeat(len(paths), func(i int) func(context.Context) error {
		return func(context.Context) error {
			return f.declaresJob(newWorker(paths[i]), store.JobCode{Redacted: paths[i : i+1]})
		}
	})...)
	f.wantCode("declared for the first time by all together", "", strings.Join(paths, " "))
}

func orphansPaused(t *testing.T, f *fixture) {
	worker := newWorker("w1")
	f.declares(worker, 0, version("kept", "one"), version("removed", "one"))
	f.save(own("own"))
	f.advance(2 * time.Hour)
	f.declares(worker, 3*time.Hour, version("kept", "one"))
	if kept, removed := f.schedule("kept"), f.schedule("removed"); kept.Orphaned || !removed.Orphaned || removed.Paused {
		t.Errorf("kept %+v, removed %+v, want the latter flagged", kept, removed)
	}
	f.advance(2 * time.Hour)
	f.declares(worker, 0, version("kept", "one"))
	if f.schedule("removed").Paused {
		t.Error("paused although the worker's policy does not say so")
	}
	f.declares(worker, 3*time.Hour, version("kept", "one"))
	if kept, removed, own := f.schedule("kept"), f.schedule("removed"), f.schedule("own"); kept.Paused || own.Paused || own.Orphaned ||
		!removed.Paused || text(removed.PausedBy) != "orphan" {
		t.Errorf("kept %+v, removed %+v, own %+v, want the orphan paused", kept, removed, own)
	}
	f.declares(worker, 3*time.Hour, version("kept", "one"), version("removed", "one"))
	if removed := f.schedule("removed"); removed.Paused || removed.Orphaned || removed.Generation != 1 {
		t.Errorf("%+v, want it resumed, since it is declared again", removed)
	}
	f.act("removed", store.PauseSchedule)
	f.declares(worker, 0, version("removed", "one"))
	if !f.schedule("removed").Paused {
		t.Error("what an operator has paused was resumed")
	}
}

func dueKeptByCode(t *testing.T, f *fixture) {
	f.boot("tick", hourly("tick"))
	f.until(f.came("tick", 1), hourly("tick", durable.MaxAttempts(7), durable.CatchUp(store.CatchUpLatest, 0, 0)))
	f.wantMade("tick", 1)
	if now := f.schedule("tick"); now.Generation != 2 || now.MaxAttempts != 7 {
		t.Errorf("%+v, want what the code says now", now)
	}
}

func dueKeptByEdit(t *testing.T, f *fixture) {
	f.until(f.planned("tick"), hourly("tick"))
	f.advance(10*time.Hour + 10*time.Minute) // no worker runs, and then all of it is wanted
	stored := f.schedule("tick")
	edited := stored.Schedule()
	edited.Plan.CatchUp, edited.Plan.Overlap, edited.Queue = store.CatchUpAll, store.OverlapAllow, "other"
	f.save(edited)
	f.until(f.came("tick", 1), hourly("tick"))
	if n, _ := f.made("tick"); n < 9 || n > 11 {
		t.Errorf("%d runs, want all ten", n)
	}
}

func waitingKeptByEdit(t *testing.T, f *fixture) {
	code := hourly("tick", durable.Overlap(store.OverlapWait))
	f.boot("tick", code)
	f.until(f.came("tick", 1), code)
	f.due("tick")
	f.until(func() bool {
		records, _ := f.store.ListSchedules(f.ctx, "tick")
		return len(records) == 1 && records[0].Waiting
	}, code)
	f.advance(30 * time.Second)
	stored := f.schedule("tick")
	edited := stored.Schedule()
	edited.Priority = 2
	f.save(edited)
	if now := f.schedule("tick"); !now.Waiting || now.NextAt == nil || !now.NextAt.Equal(*stored.NextAt) {
		t.Errorf("%+v, want it waiting as before", now)
	}
	past, _ := f.store.ScheduleHistory(f.ctx, "tick", 1)
	for _, line := range past {
		if line.Kind == store.HistoryRun {
			f.did(store.CancelRuns, *line.Run, store.RunChanged, store.Cancelled)
		}
	}
	f.until(func() bool { // just after a full hour the next occurrence waits already
		n, _ := f.made("tick")
		return n == 2
	}, code)
	f.wantMade("tick", 2)
}

func askedTogether(t *testing.T, f *fixture) {
	f.declare(newSchedule("nightly"))
	var got, refused atomic.Int32
	f.together(repeat(8, func(int) func(context.Context) error {
		return func(ctx context.Context) error {
			err := f.store.RunSchedule(ctx, "nightly", store.NewRunID(), store.OverlapSkip, "ann")
			if errors.Is(err, store.ErrConflict) {
				refused.Add(1)
				return nil
			}
			got.Add(1)
			return err
		}
	})...)
	if got.Load() != 1 || refused.Load() != 7 {
		t.Errorf("%d got a run and %d were refused, want 1 and 7", got.Load(), refused.Load())
	}
}

func timetableRefuses(t *testing.T, f *fixture) {
	if _, err := f.store.ScheduleHistory(f.ctx, "none", 10); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("SchedulePast: %v", err)
	}
	if err := f.store.ChangeSchedule(f.ctx, "none", store.PauseSchedule, "ann"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("ChangeSchedule: %v", err)
	}
	if err := f.store.RunSchedule(f.ctx, "none", store.NewRunID(), store.OverlapSkip, "ann"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("RunSchedule: %v", err)
	}
	absent := own("absent")
	absent.Generation = 7
	if err := f.store.SaveSchedule(f.ctx, absent, "ann"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("SaveSchedule of what is gone: %v", err)
	}
	wrong := own("wrong")
	wrong.Rule = store.Cron("61 * * * *", "")
	if err := f.store.SaveSchedule(f.ctx, wrong, "ann"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("SaveSchedule: %v", err)
	}
	f.save(own("nightly"))
	if err := f.store.ChangeSchedule(f.ctx, "nightly", "paint", "ann"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("ChangeSchedule: %v", err)
	}
	if past, err := f.store.ScheduleHistory(f.ctx, "nightly", 10); err != nil || len(past) != 1 {
		t.Errorf("what was refused is in the history: %+v, %v", past, err)
	}
}
