package storetest

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func scheduleTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a thousand due schedules are materialized in chunks":       materializeThousand,
		"the schedule that has been due longest comes first":        materializeLongestFirst,
		"one caller evaluates, another gets the answer busy":        materializeBusy,
		"a schedule reaches decide as it was declared":              scheduleComplete,
		"what decide answers is stored with the schedule's name":    occurrenceStored,
		"an occurrence that is refused does not stop the others":    occurrenceRefused,
		"an occurrence that is stored is skipped, alone":            occurrenceAgain,
		"many callers together store each occurrence once":          materializeRace,
		"declared jobs are listed by name, the last word counts":    jobsListed,
		"an older program does not show what a newer one hides":     hiddenByNewer,
		"what programs hide is hidden if they begin together":       hiddenTogether,
		"a schedule with a fault is not reported as one that waits": faultyWaitsForNone,
		"what waits is listed with its runs, and may be hastened":   hastenWaiting,
		"what waits with a fault rests although its run ends":       faultRests,
		"without schedules there is nothing to do and nothing is":   materializeNothing,
		"what is due in thousands of years is not due now":          farAway,
	}
}

func newSchedule(name string) store.Schedule {
	return store.Schedule{
		Name: name, Rule: store.Every(time.Hour), Hash: "h1", Job: "mail", Queue: store.DefaultQueue,
		Args: []byte(`{}`), MaxAttempts: store.DefaultMaxAttempts,
	}
}

func (f *fixture) declare(schedules ...store.Schedule) {
	f.t.Helper()
	if err := f.store.Declare(f.ctx, store.Declaration{Worker: newWorker("w1"), Schedules: schedules}); err != nil {
		f.t.Fatalf("Declare: %v", err)
	}
}

func (f *fixture) materialize(limit int, decide func(time.Time, store.Schedule) store.Decision) store.MaterializeResult {
	f.t.Helper()
	made, err := f.store.Materialize(f.ctx, limit, decide)
	if err != nil || made.Busy {
		f.t.Fatalf("Materialize: %+v, %v", made, err)
	}
	return made
}

// in plans a schedule without an occurrence.
func in(d time.Duration) func(time.Time, store.Schedule) store.Decision {
	return func(now time.Time, _ store.Schedule) store.Decision { return store.Decision{NextAt: now.Add(d)} }
}

// fire makes one occurrence of what is due, and plans the next in an hour.
func fire(now time.Time, s store.Schedule) store.Decision {
	run := newRun(func(r *store.NewRun) { r.At = s.NextAt })
	return store.Decision{NextAt: now.Add(time.Hour), Occurrences: []store.Occurrence{{Key: "once", Run: run}}}
}

func materializeThousand(t *testing.T, f *fixture) {
	const n, limit = 1000, 300
	schedules := make([]store.Schedule, n)
	for i := range schedules {
		schedules[i] = newSchedule(fmt.Sprintf("schedule-%d", i))
	}
	f.declare(schedules...)
	for _, decide := range []func(time.Time, store.Schedule) store.Decision{in(10 * time.Second), fire} {
		seen := map[string]bool{}
		for _, want := range []int{300, 300, 300, 100, 0} {
			made := f.materialize(limit, func(now time.Time, s store.Schedule) store.Decision {
				seen[s.Name] = true
				return decide(now, s)
			})
			if made.Due != want {
				t.Fatalf("looked at %d schedules, want %d", made.Due, want)
			}
			if want == limit && made.Next != 0 {
				t.Errorf("the next schedule is due in %v, want now", made.Next)
			}
		}
		if len(seen) != n {
			t.Fatalf("decided about %d schedules, want %d", len(seen), n)
		}
		f.advance(10 * time.Second)
	}
	names := map[string]bool{}
	for _, id := range must(f.pages(store.Filter{Limit: 200})) {
		names[text(f.record(id).Schedule)] = true
	}
	if pending := f.counts()[store.Pending]; pending != n || len(names) != n {
		t.Errorf("%d runs of %d schedules, want %d", pending, len(names), n)
	}
	if made := f.materialize(limit, fire); made.Due != 0 || made.Next <= 55*time.Minute || made.Next > time.Hour {
		t.Errorf("afterwards: %+v, want nothing due for about an hour", made)
	}
}

func must(ids []store.RunID, _ []int) []store.RunID { return ids }

func materializeBusy(t *testing.T, f *fixture) {
	f.declare(newSchedule("nightly"))
	evaluating, goOn := make(chan struct{}), make(chan struct{})
	f.together(func(ctx context.Context) error {
		made, err := f.store.Materialize(ctx, 10, func(now time.Time, s store.Schedule) store.Decision {
			close(evaluating)
			<-goOn
			return in(time.Hour)(now, s)
		})
		if err == nil && (made.Busy || made.Due != 1) {
			t.Errorf("the first caller: %+v", made)
		}
		return err
	}, func(ctx context.Context) error {
		defer close(goOn)
		select {
		case <-evaluating:
		case <-ctx.Done():
			return ctx.Err()
		}
		made, err := f.store.Materialize(ctx, 10, func(time.Time, store.Schedule) store.Decision {
			t.Error("the second caller was asked to decide")
			return store.Decision{}
		})
		if err == nil && (!made.Busy || made.Due != 0 || len(made.Runs) != 0) {
			t.Errorf("the second caller: %+v, want busy", made)
		}
		return err
	})
}

func scheduleComplete(t *testing.T, f *fixture) {
	want := store.Schedule{
		Name: "nightly", Rule: store.Cron("0 3 * * *", "Europe/Berlin"), Hash: "a hash", Job: "report", Queue: "slow",
		Priority: -2, Args: []byte(`{ "a" : 9007199254740993 }`), MaxAttempts: 7, Timeout: 90 * time.Second,
		OnCrash: store.CrashDead, Tags: []string{"x", "y,z"},
	}
	every := newSchedule("every")
	every.Rule = store.Every(90 * time.Second)
	f.declare(want, every)
	want.Generation, every.Generation = 1, 1
	asked := 0
	planned := false
	decide := func(now time.Time, got store.Schedule) store.Decision {
		asked++
		if got.NextAt.IsZero() == planned {
			t.Errorf("%s is planned for %v", got.Name, got.NextAt)
		}
		if planned && (got.NextAt.Location() != time.UTC || got.NextAt.After(now)) {
			t.Errorf("%s is planned for %v, and it is %v", got.Name, got.NextAt, now)
		}
		if got.EvaluateAt.IsZero() != planned || got.EvaluateAt.After(now) {
			t.Errorf("%s counts from %v, and it is %v", got.Name, got.EvaluateAt, now)
		}
		got.NextAt, got.EvaluateAt = time.Time{}, time.Time{}
		wanted := map[string]store.Schedule{"nightly": want, "every": every}[got.Name]
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", wanted) {
			t.Errorf("decide got\n%+v, want\n%+v", got, wanted)
		}
		return in(10*time.Second)(now, got)
	}
	f.materialize(10, decide)
	f.advance(10 * time.Second)
	planned = true
	f.materialize(10, decide)
	if asked != 4 {
		t.Errorf("decide was asked %d times, want 4", asked)
	}
}

func occurrenceStored(t *testing.T, f *fixture) {
	f.declare(newSchedule("nightly"))
	f.materialize(10, in(10*time.Second))
	f.advance(10 * time.Second)
	first := newRun(func(r *store.NewRun) { r.Args, r.Tags, r.Priority = []byte(`{"n": 1}`), []string{"a"}, 3 })
	second := newRun(func(r *store.NewRun) { r.Job, r.Queue, r.After = "report", "slow", time.Hour })
	made := f.materialize(10, func(now time.Time, _ store.Schedule) store.Decision {
		return store.Decision{NextAt: now.Add(time.Hour), Occurrences: []store.Occurrence{{Key: "1", Run: first}, {Key: "2", Run: second}}}
	})
	if len(made.Runs) != 2 || made.Due != 1 {
		t.Fatalf("materialized %+v, want two runs of one schedule", made)
	}
	for _, run := range []store.NewRun{first, second} {
		record := f.record(run.ID)
		if text(record.Schedule) != "nightly" || record.Job != run.Job || record.Queue != run.Queue ||
			record.Priority != run.Priority || string(record.Args) != string(run.Args) || record.State != store.Pending {
			t.Errorf("record %+v, want %+v of schedule nightly", record, run)
		}
	}
	if listed := f.list(store.Filter{Limit: 1}).Runs[0]; text(listed.Schedule) != "nightly" {
		t.Errorf("listed without its schedule: %+v", listed)
	}
	if _, claimed := f.claimOne(newWorker("w1")); claimed.ID != first.ID {
		t.Errorf("claimed %s, want the occurrence that is due", claimed.ID)
	}
}

func occurrenceRefused(t *testing.T, f *fixture) {
	f.declare(newSchedule("good"), newSchedule("bad"))
	f.materialize(10, in(10*time.Second))
	f.advance(10 * time.Second)
	decide := func(now time.Time, s store.Schedule) store.Decision {
		decision := fire(now, s)
		if s.Name == "bad" {
			decision.Occurrences[0].Run.Args = []byte(strings.Repeat("x", 10))
		}
		return decision
	}
	if made := f.materialize(10, decide); len(made.Runs) != 1 || made.Due != 2 || text(f.record(made.Runs[0]).Schedule) != "good" {
		t.Errorf("materialized %+v, want one run", made)
	}
	if made := f.materialize(10, decide); made.Due != 0 || made.Next <= 0 || made.Next > time.Minute {
		t.Errorf("afterwards %+v, want the bad schedule to rest for a minute", made)
	}
	f.advance(time.Minute)
	if made := f.materialize(10, fire); len(made.Runs) != 1 || text(f.record(made.Runs[0]).Schedule) != "bad" {
		t.Errorf("materialized %+v, want the schedule that had been bad", made)
	}
}

// occurrenceAgain has two schedules fire, and then one of them fire the same
// occurrence again.
func occurrenceAgain(t *testing.T, f *fixture) {
	f.declare(newSchedule("again"), newSchedule("fresh"))
	f.materialize(10, in(10*time.Second))
	f.advance(10 * time.Second)
	f.materialize(10, fire)
	f.advance(time.Hour)
	made := f.materialize(10, func(now time.Time, s store.Schedule) store.Decision {
		d := fire(now, s)
		if s.Name == "fresh" {
			d.Occurrences[0].Key = "twice"
		}
		return d
	})
	if made.Due != 2 || len(made.Runs) != 1 || text(f.record(made.Runs[0]).Schedule) != "fresh" {
		t.Errorf("materialized %+v, want the occurrence that is new", made)
	}
	if made := f.materialize(10, fire); made.Due != 0 || made.Next < 59*time.Minute {
		t.Errorf("afterwards %+v, want both schedules to have gone on", made)
	}
}

func materializeRace(t *testing.T, f *fixture) {
	for i := range 20 {
		f.declare(newSchedule(fmt.Sprintf("schedule-%d", i)))
	}
	f.materialize(100, in(10*time.Second))
	f.advance(10 * time.Second)
	f.together(repeat(8, func(int) func(context.Context) error {
		return func(ctx context.Context) error {
			for {
				made, err := f.store.Materialize(ctx, 7, fire)
				if err != nil || !made.Busy && made.Due == 0 {
					return err
				}
			}
		}
	})...)
	if counts := f.counts(); counts[store.Pending] != 20 {
		t.Errorf("counts %v, want 20 pending", counts)
	}
}

func jobsListed(t *testing.T, f *fixture) {
	jobs := []store.JobInfo{
		{Name: "report", Queue: "slow", Priority: -4, MaxAttempts: 1, Timeout: store.Duration(time.Hour), OnCrash: store.CrashDead,
			Code: store.JobCode{Aliases: []string{"summary", "summary/daily"}, Redacted: []string{"**.token", "\"\\'.é"}}},
		{Name: "mail", Queue: store.DefaultQueue, MaxAttempts: 3, Code: store.JobCode{Aliases: []string{"letter"}, Redacted: []string{"to"}}},
	}
	if before, err := f.store.Jobs(f.ctx); err != nil || before == nil || len(before) != 0 {
		t.Errorf("Jobs of an empty store: %v, %v", before, err)
	}
	newer := store.JobInfo{Name: "mail", Queue: "mail", Priority: 4, MaxAttempts: 10_000, Timeout: store.Duration(1500 * time.Microsecond)}
	for _, declared := range [][]store.JobInfo{jobs, jobs, {newer}} {
		if err := f.store.Declare(f.ctx, store.Declaration{Worker: newWorker("w1"), Jobs: declared}); err != nil {
			t.Fatalf("Declare: %v", err)
		}
	}
	newer.Code = jobs[1].Code // its rules outlive it, see hiddenByNewer
	listed, err := f.store.Jobs(f.ctx)
	if err != nil || !reflect.DeepEqual(listed, []store.JobInfo{newer, jobs[0]}) {
		t.Errorf("Jobs: %+v, %v, want mail as declared last, and report", listed, err)
	}
}

func materializeNothing(t *testing.T, f *fixture) {
	made := f.materialize(10, func(time.Time, store.Schedule) store.Decision {
		t.Error("asked to decide")
		return store.Decision{}
	})
	if made.Due != 0 || len(made.Runs) != 0 || made.Next >= 0 {
		t.Errorf("materialized %+v, want nothing, and nothing to come", made)
	}
}

func materializeLongestFirst(t *testing.T, f *fixture) {
	f.declare(newSchedule("alpha"), newSchedule("omega"))
	f.materialize(10, func(now time.Time, s store.Schedule) store.Decision {
		if s.Name == "omega" {
			return in(10*time.Second)(now, s)
		}
		return in(20*time.Second)(now, s)
	})
	f.advance(30 * time.Second)
	var order []string
	for range 2 {
		f.materialize(1, func(now time.Time, s store.Schedule) store.Decision {
			order = append(order, s.Name)
			return in(time.Hour)(now, s)
		})
	}
	if fmt.Sprint(order) != "[omega alpha]" {
		t.Errorf("evaluated %v, want the one that was due first, first", order)
	}
}

func farAway(t *testing.T, f *fixture) {
	far := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	const years = 250 * 365 * 24 * time.Hour // a duration holds 292 of them
	f.declare(newSchedule("nightly"))
	plan := func(time.Time, store.Schedule) store.Decision { return store.Decision{NextAt: far} }
	for _, made := range []store.MaterializeResult{f.materialize(10, plan), f.materialize(10, plan)} {
		if made.Next < years {
			t.Errorf("looked at %+v, want nothing for centuries", made)
		}
	}
	f.enqueue(newRun(func(r *store.NewRun) { r.At = far }))
	heads, err := f.store.Heads(f.ctx, store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}})
	if err != nil || len(heads) == 0 {
		t.Fatalf("Heads: %+v, %v", heads, err)
	}
	for _, head := range heads {
		if head.Waiting && head.In < years {
			t.Errorf("head %+v, want it due in centuries", head)
		}
	}
}
