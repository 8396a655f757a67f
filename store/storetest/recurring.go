package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// What a user of recurring work sees, through workers: first boot, restarts with
// the same code and with other code, outages, overlap, what operators do. Time
// passes only between two tenures of the workers.
func recurringTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"on first boot a schedule is planned and nothing is made":                 firstBoot,
		"a due occurrence becomes one run, and the schedule continues":            dueOnce,
		"of two concurrent workers, one makes the run of an occurrence":           dueOnceOfTwo,
		"after an outage skip makes nothing, latest one run, all several":         outageCaughtUp,
		"an occurrence on time becomes a run, although the one before was missed": onTimeAfterOutage,
		"while a run has not ended, skip makes no other and allow makes one":      overlapKept,
		"a run that has ended makes room for the next":                            overlapEnds,
		"of a backlog no more are made than may be unfinished":                    manyWait,
		"the same code started again changes nothing that an operator has done":   sameCodeAgain,
		"other code started later begins again, and what is paused stays paused":  otherCode,
		"what is due is not lost by code that changed anything but the times":     dueKeptByCode,
		"what is due is not lost by an edit of anything but the times":            dueKeptByEdit,
		"what waits keeps waiting when anything but the times is changed":         waitingKeptByEdit,
		"what was due when the code got other times is recorded":                  dueChangedByCode,
		"what was due when an edit gave other times is recorded":                  dueChangedByEdit,
		"what was due when it was paused is recorded, and nothing after that":     duePaused,
		"occurrences count from when it was made, got its times or was resumed":   plannedSince,
		"a program that does not know a schedule leaves it as it is":              unknownProgram,
		"what is declared paused rests until it is resumed, and then plans":       declaredPaused,
		"an edit of what is paused leaves it paused, with the new rule":           editedWhilePaused,
		"a run asked for now has no occurrence and moves nothing, also paused":    askedNow,
		"a rule that cannot be evaluated stops no other":                          badRuleAlone,
		"a schedule that cannot be kept or never fires is refused":                neverKept,
	}
}

// unserved is a job that no worker of these tests serves, so that its runs stay.
const unserved = "unserved"

// program is the code of a worker.
type program func(w *durable.Worker)

// hourly declares a schedule at each full hour.
func hourly(name string, options ...durable.Option) program {
	return recurring(name, store.Every(time.Hour), options...)
}

func recurring(name string, rule store.Rule, options ...durable.Option) program {
	return func(w *durable.Worker) {
		durable.AddSchedule(w, name, durable.NewJob[struct{}](unserved), struct{}{}, rule, options...)
	}
}

// both is the code of one worker that declares several schedules.
func both(programs ...program) program {
	return func(w *durable.Worker) {
		for _, declare := range programs {
			declare(w)
		}
	}
}

// until runs workers, each of its own program, until a condition holds, and
// stops them.
func (f *fixture) until(holds func() bool, programs ...program) {
	f.t.Helper()
	done, stop := context.WithCancel(f.ctx)
	var functions []func(context.Context) error
	for _, declare := range programs {
		functions = append(functions, func(context.Context) error {
			defer stop()
			w := durable.NewWorker(f.store, durable.WorkerConfig{PollInterval: 5 * time.Millisecond, NoListen: true})
			durable.Register(w, durable.NewJob[struct{}]("another"), func(context.Context, *durable.Run[struct{}]) error { return nil })
			declare(w)
			return w.Run(done)
		})
	}
	functions = append(functions, func(ctx context.Context) error {
		defer stop()
		again := time.NewTicker(5 * time.Millisecond)
		defer again.Stop()
		for !holds() {
			select {
			case <-done.Done():
				return errors.New("a worker has ended")
			case <-ctx.Done():
				return errors.New("it does not come about")
			case <-again.C:
			}
		}
		return nil
	})
	f.together(functions...)
}

// planned reports whether a schedule has a next occurrence, in the future.
func (f *fixture) planned(name string) func() bool {
	return func() bool {
		records, err := f.store.ListSchedules(f.ctx, name)
		return err == nil && len(records) == 1 && records[0].NextAt != nil && records[0].NextAt.After(f.now())
	}
}

// ruled reports whether a schedule has a rule by now.
func (f *fixture) ruled(name string, rule store.Rule) bool {
	records, err := f.store.ListSchedules(f.ctx, name)
	return err == nil && len(records) == 1 && records[0].Rule == rule
}

// made counts the runs that occurrences of a schedule have become, and the
// reasons of what was skipped.
func (f *fixture) made(name string) (runs int, skips []string) {
	past, err := f.store.ScheduleHistory(f.ctx, name, 1000)
	if err != nil {
		return -1, []string{err.Error()}
	}
	for _, line := range past {
		switch {
		case line.Kind == store.HistoryRun && line.Occurrence != nil:
			runs++
		case line.Kind == store.HistorySkip:
			skips = append(skips, text(line.Reason))
		}
	}
	return runs, skips
}

// came reports whether so many occurrences have become runs and the schedule is
// planned again.
func (f *fixture) came(name string, runs int) func() bool {
	return func() bool {
		n, _ := f.made(name)
		return n >= runs && f.planned(name)()
	}
}

// boot runs a program until its schedule is planned, and lets time pass until
// its next occurrence is due.
func (f *fixture) boot(name string, code program) {
	f.t.Helper()
	f.until(f.planned(name), code)
	f.due(name)
}

// due lets time pass until the next occurrence of a schedule is due.
func (f *fixture) due(name string) {
	f.t.Helper()
	next := f.schedule(name).NextAt
	if next == nil {
		f.t.Fatalf("%s is not planned", name)
	}
	f.advance(next.Sub(f.now()) + time.Second)
}

func (f *fixture) wantMade(name string, runs int, skips ...string) {
	f.t.Helper()
	if n, why := f.made(name); n != runs || !slices.Equal(why, skips) {
		f.t.Errorf("%s became %d runs and skipped %v, want %d and %v", name, n, why, runs, skips)
	}
}

func firstBoot(t *testing.T, f *fixture) {
	f.until(f.planned("tick"), hourly("tick"))
	f.wantMade("tick", 0)
	if next := f.schedule("tick").NextAt; next.Sub(f.now()) > time.Hour {
		t.Errorf("planned at %v, want within the hour", next)
	}
}

func dueOnce(_ *testing.T, f *fixture) {
	f.boot("tick", hourly("tick"))
	f.until(f.came("tick", 1), hourly("tick"))
	f.wantMade("tick", 1)
}

func dueOnceOfTwo(_ *testing.T, f *fixture) {
	f.boot("tick", hourly("tick", durable.Overlap(store.OverlapAllow)))
	f.until(f.came("tick", 1), hourly("tick", durable.Overlap(store.OverlapAllow)), hourly("tick", durable.Overlap(store.OverlapAllow)))
	f.wantMade("tick", 1)
}

func outageCaughtUp(t *testing.T, f *fixture) {
	code := both(hourly("skip"),
		hourly("latest", durable.CatchUp(store.CatchUpLatest, 0, 0)),
		hourly("all", durable.CatchUp(store.CatchUpAll, 0, 0), durable.Overlap(store.OverlapAllow)),
		hourly("some", durable.CatchUp(store.CatchUpAll, 0, 3), durable.Overlap(store.OverlapAllow)))
	f.until(func() bool {
		return f.planned("skip")() && f.planned("latest")() && f.planned("all")() && f.planned("some")()
	}, code)
	f.advance(10*time.Hour + 10*time.Minute)
	f.until(func() bool {
		return f.came("skip", 0)() && f.came("latest", 1)() && f.came("all", 1)() && f.came("some", 1)()
	}, code)
	f.wantMade("skip", 0, "missed")
	f.wantMade("latest", 1, "missed")
	f.wantMade("some", 3, "missed")
	if n, _ := f.made("all"); n < 9 || n > 11 {
		t.Errorf("all became %d runs, want 10", n)
	}
}

func overlapKept(_ *testing.T, f *fixture) {
	code := both(hourly("skip"), hourly("allow", durable.Overlap(store.OverlapAllow)))
	f.until(func() bool { return f.planned("skip")() && f.planned("allow")() }, code)
	f.due("skip")
	f.until(func() bool { return f.came("skip", 1)() && f.came("allow", 1)() }, code)
	f.due("skip")
	f.until(func() bool { return f.planned("skip")() && f.came("allow", 2)() }, code)
	f.wantMade("skip", 1, "overlap")
	f.wantMade("allow", 2)
}

func overlapEnds(_ *testing.T, f *fixture) {
	f.boot("tick", hourly("tick"))
	f.until(f.came("tick", 1), hourly("tick"))
	past, _ := f.store.ScheduleHistory(f.ctx, "tick", 1)
	f.did(store.CancelRuns, *past[0].Run, store.RunChanged, store.Cancelled)
	f.due("tick")
	f.until(f.came("tick", 2), hourly("tick"))
	f.wantMade("tick", 2)
}

func sameCodeAgain(t *testing.T, f *fixture) {
	f.until(f.planned("tick"), hourly("tick"))
	stored := f.schedule("tick")
	edited := stored.Schedule()
	edited.Rule = store.Cron("*/5 * * * *", "Europe/Berlin")
	f.save(edited)
	f.act("tick", store.PauseSchedule)
	f.advance(time.Minute)
	f.until(f.planned("other"), both(hourly("tick"), hourly("other")))
	if now := f.schedule("tick"); now.Rule != edited.Rule || !now.Paused || !now.Edited || now.NextAt != nil {
		t.Errorf("%+v, want the operator's rule, paused", now)
	}
	f.act("tick", store.ResumeSchedule)
	f.until(f.planned("tick"), hourly("tick"))
	if next := f.schedule("tick").NextAt; next.Sub(f.now()) > 5*time.Minute {
		t.Errorf("planned at %v, want by the operator's rule", next)
	}
}

func otherCode(t *testing.T, f *fixture) {
	f.until(func() bool { return f.planned("tick")() && f.planned("asleep")() }, both(hourly("tick"), hourly("asleep")))
	f.act("asleep", store.PauseSchedule)
	f.advance(time.Minute)
	rule := store.Cron("*/5 * * * *", "America/Chicago")
	other := both(recurring("tick", rule, durable.MaxAttempts(5)), recurring("asleep", rule))
	f.until(func() bool { return f.ruled("tick", rule) && f.planned("tick")() }, other)
	if now := f.schedule("tick"); now.MaxAttempts != 5 || now.Paused || now.NextAt.Sub(f.now()) > 5*time.Minute {
		t.Errorf("%+v, want what the code says now", now)
	}
	if now := f.schedule("asleep"); now.Rule != rule || !now.Paused {
		t.Errorf("%+v, want the new rule, and that the operator's pause is kept", now)
	}
}

func unknownProgram(t *testing.T, f *fixture) {
	f.boot("removed", hourly("removed"))
	f.until(f.came("removed", 1), hourly("other"))
	if now := f.schedule("removed"); now.Paused || now.NextAt == nil {
		t.Errorf("%+v, want it to continue", now)
	}
}

func declaredPaused(t *testing.T, f *fixture) {
	code := hourly("tick", durable.Paused())
	f.until(f.planned("other"), both(code, hourly("other")))
	if now := f.schedule("tick"); !now.Paused || now.NextAt != nil {
		t.Errorf("%+v, want it paused", now)
	}
	f.act("tick", store.ResumeSchedule)
	f.until(f.planned("tick"), code)
	f.wantMade("tick", 0)
}

func editedWhilePaused(t *testing.T, f *fixture) {
	f.until(f.planned("tick"), hourly("tick"))
	f.act("tick", store.PauseSchedule)
	stored := f.schedule("tick")
	edited := stored.Schedule()
	edited.Rule = store.Cron("*/5 * * * *", "UTC")
	f.save(edited)
	f.advance(time.Hour)
	f.until(f.planned("other"), both(hourly("tick"), hourly("other")))
	if now := f.schedule("tick"); !now.Paused || now.NextAt != nil || now.Rule != edited.Rule {
		t.Errorf("%+v, want the new rule, paused", now)
	}
	f.act("tick", store.ResumeSchedule)
	f.until(f.planned("tick"), hourly("tick"))
	f.wantMade("tick", 0)
}

func askedNow(t *testing.T, f *fixture) {
	f.until(f.planned("tick"), hourly("tick"))
	before := f.schedule("tick")
	for _, paused := range []bool{false, true} {
		if paused {
			f.act("tick", store.PauseSchedule)
			before = f.schedule("tick")
		}
		id := store.NewRunID()
		err := f.store.RunSchedule(f.ctx, "tick", id, store.OverlapAllow, "ann")
		if err != nil {
			t.Fatalf("RunSchedule: %v", err)
		}
		if run := f.record(id); run.State != store.Pending || text(run.Schedule) != "tick" {
			t.Errorf("%+v, want a run of the schedule", run)
		}
		after := f.schedule("tick")
		if before.NextAt != nil {
			if after.NextAt == nil || !after.NextAt.Equal(*before.NextAt) {
				t.Errorf("next at %v, want %v", after.NextAt, before.NextAt)
			}
			after.NextAt = before.NextAt
		}
		if fmt.Sprintf("%+v", after.Schedule()) != fmt.Sprintf("%+v", before.Schedule()) || after.Paused != paused {
			t.Errorf("%+v, want %+v", after, before)
		}
	}
	f.wantMade("tick", 0)
}

func badRuleAlone(t *testing.T, f *fixture) {
	// No worker of today declares these, but a newer one may, or a person.
	for name, change := range map[string]func(s *store.Schedule){
		"never":   func(s *store.Schedule) { s.Rule = store.Cron("0 0 30 2 *", "UTC") },
		"overlap": func(s *store.Schedule) { s.Plan.Overlap = "queue" },
		"catchup": func(s *store.Schedule) { s.Plan.CatchUp = "newest" },
		"most":    func(s *store.Schedule) { s.Plan.CatchUp, s.Plan.CatchUpMost = store.CatchUpAll, -1 },
	} {
		bad := newSchedule(name)
		bad.Rule, bad.Plan = store.Every(time.Minute), store.Plan{}
		change(&bad)
		f.declare(bad)
		f.advance(time.Hour)
		f.until(f.planned("good-"+name), hourly("good-"+name))
		if now := f.schedule(name); now.Fault == nil {
			t.Errorf("%+v, want a fault", now)
		}
		f.wantMade(name, 0)
	}
}

func neverKept(t *testing.T, f *fixture) {
	far, odd := time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC), time.FixedZone("odd", 30*60*60)
	never := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for says, change := range map[string]func(s *store.Schedule){
		"a start that JSON cannot hold":      func(s *store.Schedule) { s.Plan.Start = far },
		"an end that JSON cannot hold":       func(s *store.Schedule) { s.Plan.End = far },
		"a start before all":                 func(s *store.Schedule) { s.Plan.Start = time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC) },
		"an anchor that JSON cannot hold":    func(s *store.Schedule) { s.Rule.Anchor = far },
		"an offset that JSON cannot hold":    func(s *store.Schedule) { s.Plan.Start = time.Now().In(odd) },
		"an anchor of a cron expression":     func(s *store.Schedule) { s.Rule = store.Cron("@daily", "").From(time.Now()) },
		"an instant too far":                 func(s *store.Schedule) { s.Rule = store.Once(far) },
		"an instant after its end":           func(s *store.Schedule) { s.Rule, s.Plan.End = store.Once(never), never },
		"no interval":                        func(s *store.Schedule) { s.Rule = store.Every(0) },
		"an interval below a second":         func(s *store.Schedule) { s.Rule = store.Every(999 * time.Millisecond) },
		"an interval of three hundred years": func(s *store.Schedule) { s.Rule = store.Every(290 * 365 * 24 * time.Hour) },
		"an interval that goes back":         func(s *store.Schedule) { s.Rule = store.Every(-time.Hour) },
		"two rules":                          func(s *store.Schedule) { s.Rule.Cron = "@daily" },
		"no such minute":                     func(s *store.Schedule) { s.Rule = store.Cron("60 * * * *", "") },
		"a thirtieth of February":            func(s *store.Schedule) { s.Rule = store.Cron("0 0 30 2 *", "") },
		"seven fields":                       func(s *store.Schedule) { s.Rule = store.Cron("0 0 0 1 1 * 2030", "") },
		"ten thousand bytes":                 func(s *store.Schedule) { s.Rule = store.Cron(string(make([]byte, 10_000)), "") },
		"a zone of another system":           func(s *store.Schedule) { s.Rule = store.Cron("@daily", "Central Standard Time") },
		"the zone of the machine":            func(s *store.Schedule) { s.Rule = store.Cron("@daily", "Local") },
		"a blackout of all there is":         func(s *store.Schedule) { s.Plan.Blackouts = []store.Window{{Days: "*"}} },
		"jitter beyond the interval":         func(s *store.Schedule) { s.Plan.Jitter = store.Duration(time.Hour + 1) },
		"a spread that goes back":            func(s *store.Schedule) { s.Plan.Spread = -1 },
		"a bound below zero":                 func(s *store.Schedule) { s.Plan.CatchUp, s.Plan.CatchUpMost = store.CatchUpAll, -1 },
		"a bound without bounds":             func(s *store.Schedule) { s.Plan.CatchUpMost = 1 << 40 },
		"catching up with what is dropped":   func(s *store.Schedule) { s.Plan.CatchUp, s.Plan.Overlap = store.CatchUpAll, store.OverlapSkip },
		"an end before its start":            func(s *store.Schedule) { s.Plan.Start, s.Plan.End = never, never.Add(-1) },
		"a name with a space":                func(s *store.Schedule) { s.Name = "a b" },
		"a name with NUL":                    func(s *store.Schedule) { s.Name = "a\x00b" },
		"a name of a megabyte":               func(s *store.Schedule) { s.Name = string(make([]byte, 1<<20)) },
		"a name of a picture":                func(s *store.Schedule) { s.Name = "😀" },
		"no name":                            func(s *store.Schedule) { s.Name = "" },
		"args that are no JSON":              func(s *store.Schedule) { s.Args = []byte("{") },
	} {
		s := own("hostile")
		change(&s)
		invalid(t, says, f.store.SaveSchedule(f.ctx, s, "ann"))
	}
	if all, err := f.store.ListSchedules(f.ctx); err != nil || len(all) != 0 {
		t.Errorf("ListSchedules: %+v, %v, want none", all, err)
	}
}
