package storetest

import (
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func occurrenceTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a run has its occurrence at every attempt, in the schedule's zone": occurrenceKept,
		"a run behind a limit has its occurrence":                           occurrenceLimited,
		"a run keeps its occurrence and the name of a deleted schedule":     occurrenceOutlives,
		"a run that an operator requests of a schedule has no occurrence":   occurrenceOfNone,
		"a rerun keeps the occurrence, and is no run of the schedule":       occurrenceRerun,
		"a run that is replaced loses the occurrence":                       occurrenceReplaced,
	}
}

// midnight is one in a zone that is not known where zone data are missing.
func midnight(month time.Month) time.Time {
	return time.Date(2026, month, 1, 0, 0, 0, 0, time.FixedZone("Mars/Utopia", 5400))
}

// fireFor has what is due make a run for each of some instants, due now.
func (f *fixture) fireFor(name string, instants ...time.Time) (runs []store.NewRun) {
	f.t.Helper()
	f.materialize(10, in(10*time.Second))
	f.advance(10 * time.Second)
	f.materialize(10, func(now time.Time, s store.Schedule) store.Decision {
		d := store.Decision{NextAt: now.Add(time.Hour)}
		if s.Name != name {
			return d
		}
		runs = nil // a store may ask again
		for _, at := range instants {
			run := s.RunAt(now)
			runs = append(runs, run)
			d.Occurrences = append(d.Occurrences, store.Occurrence{Key: at.Format(time.RFC3339), At: at, Run: run})
		}
		return d
	})
	if len(runs) != len(instants) {
		f.t.Fatalf("made %d runs, want %d", len(runs), len(instants))
	}
	return runs
}

// wantOccurrence compares the occurrence of a run on record; the zero time: none.
func (f *fixture) wantOccurrence(why string, id store.RunID, want time.Time) {
	f.t.Helper()
	listed := f.record(id).Occurrence
	for _, record := range f.list(store.Filter{Limit: 200}).Runs {
		if record.ID == id && (record.Occurrence == nil) != (listed == nil) {
			f.t.Errorf("%s: listed with %v, shown with %v", why, record.Occurrence, listed)
		}
	}
	switch {
	case want.IsZero() && listed == nil:
	case want.IsZero() || listed == nil || listed.String() != want.String() || listed.Location().String() != want.Location().String():
		f.t.Errorf("%s: on record with %v, want %v", why, listed, want)
	}
}

// wantClaimed compares the occurrence that a claim says of a run.
func (f *fixture) wantClaimed(why string, claimed store.ClaimedRun, want time.Time) {
	f.t.Helper()
	info := store.RunInfo{OccursAt: claimed.OccursAt}
	if at, ok := info.Occurrence(); ok == want.IsZero() || at.String() != want.String() {
		f.t.Errorf("%s: claimed with %q, want %v", why, claimed.OccursAt, want)
	}
}

func occurrenceKept(_ *testing.T, f *fixture) {
	f.declare(newSchedule("monthly"))
	instants := []time.Time{midnight(time.January), midnight(time.February), time.Date(2026, 3, 1, 0, 0, 0, 7000, time.UTC)}
	want := map[store.RunID]time.Time{}
	for i, run := range f.fireFor("monthly", instants...) {
		want[run.ID] = instants[i]
	}
	plain := newRun()
	f.enqueue(plain)
	want[plain.ID] = time.Time{}
	worker := newWorker("w1")
	for attempt, outcome := range []store.Outcome{{Kind: store.Failure, Error: "e"}, {Kind: store.Snoozed}, {Kind: store.HandedBack}, success()} {
		request := f.request(worker, 10)
		for range 2 { // the second time as a repeat
			claimed, err := f.store.Claim(f.ctx, request)
			if err != nil || len(claimed) != len(want) {
				f.t.Fatalf("claim %d: %d runs, %v", attempt, len(claimed), err)
			}
			for _, c := range claimed {
				f.wantClaimed("claimed", c, want[c.ID])
			}
		}
		settlement := store.Settlement{Claim: request.Claim, Worker: worker, Last: true}
		for id := range want {
			settlement.Runs = append(settlement.Runs, store.Settled{ID: id, Outcome: outcome})
		}
		f.settle(settlement)
		for id, at := range want {
			f.wantOccurrence("settled", id, at)
		}
		f.advance(time.Second)
	}
}

func occurrenceLimited(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	monthly := newSchedule("monthly")
	monthly.Limits = limitUses(f.t, "api")
	f.declare(monthly)
	instants := []time.Time{midnight(time.January), midnight(time.February)}
	want := map[store.RunID]time.Time{}
	for i, run := range f.fireFor("monthly", instants...) {
		want[run.ID] = instants[i]
	}
	for range instants {
		claims := f.admit(10)
		if len(claims.runs) != 1 {
			f.t.Fatalf("admitted %d runs, want one", len(claims.runs))
		}
		f.wantClaimed("admitted", claims.runs[0], want[claims.runs[0].ID])
		f.wantOccurrence("admitted", claims.runs[0].ID, want[claims.runs[0].ID])
		admittedAll{claims}.end(success())
	}
}

func occurrenceOutlives(t *testing.T, f *fixture) {
	f.declare(newSchedule("monthly"))
	run := f.fireFor("monthly", midnight(time.January))[0]
	record := f.schedule("monthly")
	edited := record.Schedule()
	edited.Rule = store.Cron("0 3 * * *", "America/New_York")
	f.save(edited)
	f.wantOccurrence("changed", run.ID, midnight(time.January))
	f.act("monthly", store.DeleteSchedule)
	f.wantOccurrence("deleted", run.ID, midnight(time.January))
	if got := text(f.record(run.ID).Schedule); got != "monthly" {
		t.Errorf("on record as a run of schedule %q, want the name of the deleted one", got)
	}
	_, claimed := f.claimOne(newWorker("w1"))
	if claimed.ID != run.ID {
		t.Fatalf("claimed %s", claimed.ID)
	}
	f.wantClaimed("deleted", claimed, midnight(time.January))
	if claimed.Schedule != "monthly" {
		t.Errorf("claimed as a run of schedule %q, want the name of the deleted one", claimed.Schedule)
	}
}

func occurrenceOfNone(t *testing.T, f *fixture) {
	f.declare(newSchedule("monthly"))
	f.materialize(10, in(time.Hour))
	id := store.NewRunID()
	if err := f.store.RunSchedule(f.ctx, "monthly", id, store.OverlapAllow, "ann"); err != nil {
		t.Fatal(err)
	}
	f.wantOccurrence("requested", id, time.Time{})
	_, claimed := f.claimOne(newWorker("w1"))
	f.wantClaimed("requested", claimed, time.Time{})
	if claimed.ID != id || claimed.Schedule != "monthly" {
		t.Errorf("claimed %+v, want the run of the schedule", claimed)
	}
}

func occurrenceRerun(t *testing.T, f *fixture) {
	f.declare(newSchedule("monthly"))
	run := f.fireFor("monthly", midnight(time.January))[0]
	claim, claimed := f.claimOne(newWorker("w1"))
	f.settle(store.Settlement{Claim: claim, Worker: newWorker("w1"), Runs: []store.Settled{{ID: claimed.ID, Outcome: success()}}, Last: true})
	rerun := func(of store.RunID, changes ...func(*store.NewRun)) store.NewRun {
		t.Helper()
		made := newRun(changes...)
		for range 2 { // the second time as a repeat
			if _, err := f.store.Rerun(f.ctx, of, made, "ann"); err != nil {
				t.Fatal(err)
			}
		}
		return made
	}
	first := rerun(run.ID)
	second := rerun(first.ID)
	for _, made := range []store.NewRun{first, second} {
		f.wantOccurrence("rerun", made.ID, midnight(time.January))
		if record := f.record(made.ID); record.Schedule != nil {
			t.Errorf("a rerun is of schedule %s", *record.Schedule)
		}
		_, claimed := f.claimOne(newWorker("w1"))
		f.wantClaimed("rerun", claimed, midnight(time.January))
	}
	f.wantOccurrence("of a plain run", rerun(func() store.RunID { plain := newRun(); f.enqueue(plain); return plain.ID }()).ID, time.Time{})
	f.wantOccurrence("of a run that is gone", rerun(store.NewRunID()).ID, time.Time{})
	f.wantOccurrence("the run itself", run.ID, midnight(time.January))
}

func occurrenceReplaced(t *testing.T, f *fixture) {
	f.declare(newSchedule("monthly"))
	run := f.fireFor("monthly", midnight(time.January))[0]
	made := newRun(with(replacing("k")))
	if _, err := f.store.Rerun(f.ctx, run.ID, made, "ann"); err != nil {
		t.Fatal(err)
	}
	f.wantOccurrence("rerun with a key", made.ID, midnight(time.January))
	f.existing(made.ID, newRun(with(replacing("k"))))
	f.wantOccurrence("replaced by what is for no occurrence", made.ID, time.Time{})
}
