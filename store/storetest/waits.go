package storetest

import (
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// faultyWaitsForNone has a schedule wait for a run whose next one may not be stored: it has
// a fault then, and is not reported as one that waits.
func faultyWaitsForNone(t *testing.T, f *fixture) {
	f.declare(newSchedule("bad"))
	f.materialize(10, in(10*time.Second))
	f.advance(11 * time.Second)
	if made := f.materialize(10, fire); len(made.Runs) != 1 {
		t.Fatalf("%d runs are made, want 1", len(made.Runs))
	}
	f.advance(48 * time.Hour)
	made := f.materialize(10, func(now time.Time, s store.Schedule) store.Decision {
		run := s.RunAt(now)
		run.Limits = []store.LimitUse{{Limit: "nowhere"}}
		return store.Decision{NextAt: now, Waiting: time.Minute, Occurrences: []store.Occurrence{{Key: "next", Run: run}}}
	})
	if made.Due != 1 || len(made.Runs) != 0 || len(made.Waits) != 0 {
		t.Errorf("it is %+v, want no run and no wait", made)
	}
	if f.schedule("bad").Fault == nil {
		t.Error("it has no fault")
	}
}

// hastenWaiting has one schedule create a run and wait for it, next to one that
// does not wait and one that is paused while it waits.
func hastenWaiting(t *testing.T, f *fixture) {
	waits, calm, paused := newSchedule("waits"), newSchedule("calm"), newSchedule("paused")
	f.declare(waits, calm, paused)
	f.materialize(10, in(10*time.Second))
	f.advance(11 * time.Second)
	const pause = 40 * time.Second
	made := f.materialize(10, func(now time.Time, s store.Schedule) store.Decision {
		d := fire(now, s)
		if s.Name != "calm" {
			d.NextAt, d.Waiting = now, pause
		}
		return d
	})
	given := map[string]store.WaitingSchedule{}
	for _, one := range made.Waits {
		given[one.Schedule] = one
	}
	if one := given["waits"]; len(made.Waits) != 2 || one.Pause != pause || len(made.Runs) != 3 {
		t.Fatalf("waits are %+v, want those of two schedules, paused for %v", made.Waits, pause)
	}
	if record := f.record(given["waits"].Run); *record.Schedule != "waits" {
		t.Errorf("it waits for a run of %s", *record.Schedule)
	}
	if err := f.store.ChangeSchedule(f.ctx, "paused", store.PauseSchedule, "ann"); err != nil {
		t.Fatal(err)
	}
	seen := func() (names []string) {
		f.materialize(10, func(_ time.Time, s store.Schedule) store.Decision {
			names = append(names, s.Name)
			return store.Decision{NextAt: s.NextAt, Waiting: pause}
		})
		return names
	}
	if names := seen(); names != nil {
		t.Fatalf("before it is hastened %v is looked at", names)
	}
	for range 2 {
		if err := f.store.ReevaluateNow(f.ctx, "waits", "calm", "paused", "unknown"); err != nil {
			t.Fatalf("Hasten: %v", err)
		}
	}
	if names := seen(); len(names) != 1 || names[0] != "waits" {
		t.Errorf("hastened, %v is looked at, want only what waits", names)
	}
	if names := seen(); names != nil {
		t.Errorf("after one look, %v is looked at again", names)
	}
	if err := f.store.ReevaluateNow(f.ctx); err != nil {
		t.Errorf("Hasten of nothing: %v", err)
	}
}

// faultRests has a schedule wait for a run whose rule cannot be evaluated then: it rests,
// although the run ends.
func faultRests(t *testing.T, f *fixture) {
	f.declare(newSchedule("waits"))
	f.materialize(10, in(10*time.Second))
	f.advance(11 * time.Second)
	f.materialize(10, func(now time.Time, s store.Schedule) store.Decision {
		d := fire(now, s)
		d.NextAt, d.Waiting = now, time.Hour
		return d
	})
	looks := 0
	for range 2 {
		if err := f.store.ReevaluateNow(f.ctx, "waits"); err != nil {
			t.Fatalf("Reevaluate: %v", err)
		}
		f.materialize(10, func(_ time.Time, s store.Schedule) store.Decision {
			looks++
			return store.Decision{NextAt: s.NextAt, Fault: "no such zone"}
		})
	}
	if looks != 1 || f.schedule("waits").Fault == nil {
		t.Errorf("a schedule with a fault is evaluated %d times, want once", looks)
	}
}
