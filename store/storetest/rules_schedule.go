package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// supersedeTable is whether the version that a worker declares replaces the one
// that is stored: by its hash, by when its worker has started compared with the one
// that brought the stored version, and by whether that was declared of late.
const supersedeTable = `
hash  started late replaced
same  older   yes  no
same  older   no   no
same  alike   yes  no
same  alike   no   no
same  newer   yes  no
same  newer   no   no
other older   yes  no
other older   no   yes
other alike   yes  yes
other alike   no   yes
other newer   yes  yes
other newer   no   yes
`

func supersedeRule(_ *testing.T, f *fixture) {
	for i, row := range rows(f.t, supersedeTable) {
		name := "version-" + strconv.Itoa(i)
		workers := map[string]store.WorkerID{"older": newWorker("older"), "alike": newWorker("alike"), "newer": newWorker("newer")}
		f.declares(workers["older"], 0)
		f.advance(time.Minute)
		f.declares(workers["alike"], 0, version(name, "same"))
		pause := time.Minute
		if row["late"] == "no" {
			pause += store.DeclaredWithin
		}
		f.advance(pause)
		f.declares(workers[row["started"]], 0, version(name, row["hash"]))
		if row["replaced"] == "yes" {
			f.wantVersion(name, row["hash"], 2)
		} else {
			f.wantVersion(name, "same", 1)
		}
	}
}

// timesRow changes one field of a schedule that fires every hour.
type timesRow struct {
	change func(*store.Schedule)
	same   bool // it fires at the same times then
}

// timesTable has a row for each field of store.Rule and store.Plan. A version of
// which only fields change that say how occurrences are made keeps the plan.
func timesTable() map[string]timesRow {
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	return map[string]timesRow{
		"Rule.Cron":          {func(s *store.Schedule) { s.Rule = store.Cron("0 * * * *", "") }, false},
		"Rule.Zone":          {func(s *store.Schedule) { s.Rule.Zone = "Europe/Berlin" }, false},
		"Rule.Every":         {func(s *store.Schedule) { s.Rule.Every *= 2 }, false},
		"Rule.Anchor":        {func(s *store.Schedule) { s.Rule.Anchor = day }, false},
		"Rule.Once":          {func(s *store.Schedule) { s.Rule = store.Once(day) }, false},
		"Plan.Start":         {func(s *store.Schedule) { s.Plan.Start = day }, false},
		"Plan.End":           {func(s *store.Schedule) { s.Plan.End = day.AddDate(50, 0, 0) }, false},
		"Plan.Blackouts":     {func(s *store.Schedule) { s.Plan.Blackouts = []store.Window{{Days: "sat,sun"}} }, false},
		"Plan.Spread":        {func(s *store.Schedule) { s.Plan.Spread = store.Duration(time.Minute) }, false},
		"Plan.CatchUp":       {func(s *store.Schedule) { s.Plan.CatchUp = store.CatchUpLatest }, true},
		"Plan.CatchUpWithin": {func(s *store.Schedule) { s.Plan.CatchUpWithin = store.Duration(time.Hour) }, true},
		"Plan.CatchUpMost":   {func(s *store.Schedule) { s.Plan.CatchUpMost = 7 }, true},
		"Plan.Overlap":       {func(s *store.Schedule) { s.Plan.Overlap = store.OverlapWait }, true},
		"Plan.MaxUnfinished": {func(s *store.Schedule) { s.Plan.MaxUnfinished = 7 }, true},
		"Plan.Jitter":        {func(s *store.Schedule) { s.Plan.Jitter = store.Duration(time.Minute) }, true},
	}
}

// fieldsOf are the fields of a rule and a plan, so that a new one needs a row.
func fieldsOf(kinds ...any) (fields []string) {
	for _, kind := range kinds {
		of := reflect.TypeOf(kind)
		for i := range of.NumField() {
			fields = append(fields, of.Name()+"."+of.Field(i).Name)
		}
	}
	return fields
}

func timesRule(t *testing.T, f *fixture) {
	table, worker := timesTable(), newWorker("w1")
	fields := fieldsOf(store.Rule{}, store.Plan{})
	if len(fields) != len(table) {
		t.Errorf("%d fields, %d rows", len(fields), len(table))
	}
	next := f.now().Add(time.Hour).Truncate(time.Microsecond)
	for i, field := range fields {
		row, ok := table[field]
		if !ok {
			t.Errorf("the field %s has no row: does a schedule fire at the same times when it changes?", field)
			continue
		}
		for _, how := range []string{"declared", "saved"} {
			one := newSchedule(fmt.Sprintf("%s-%d", how, i))
			one.Hash, one.Rule, one.Plan = "one", store.Every(time.Hour), store.Plan{}
			f.declares(worker, 0, one)
			f.plan(next)
			if how == "declared" {
				one.Hash = "two"
				row.change(&one)
				f.declares(worker, 0, one)
			} else {
				listed := f.schedule(one.Name)
				edited := listed.Schedule()
				row.change(&edited)
				f.save(edited)
			}
			got := f.schedule(one.Name)
			if kept := got.NextAt != nil && got.NextAt.Equal(next); got.Generation != 2 || kept != row.same {
				t.Errorf("%s, %s: generation %d, next at %v; want generation 2, the plan kept: %v", field, how, got.Generation, got.NextAt, row.same)
			}
		}
	}
}

// plan plans all schedules that are due for one instant.
func (f *fixture) plan(next time.Time) {
	f.t.Helper()
	for {
		done, err := f.store.Materialize(f.ctx, 10, func(time.Time, store.Schedule) store.Decision { return store.Decision{NextAt: next} })
		if err != nil {
			f.t.Fatalf("Materialize: %v", err)
		}
		if done.Due == 0 {
			return
		}
	}
}

// auditRule changes a schedule and a queue in every way, and reads what the audit
// says of it, oldest first: who, and in which words.
func auditRule(t *testing.T, f *fixture) {
	worker, asked := newWorker("w1"), store.NewRunID()
	declared := version("nightly", "one")
	f.save(own("mine"))
	listed := f.schedule("mine")
	f.save(listed.Schedule())
	f.act("mine", store.PauseSchedule)
	f.act("mine", store.PauseSchedule)
	f.act("mine", store.ResumeSchedule)
	if err := f.store.RunSchedule(f.ctx, "mine", asked, store.OverlapAllow, "ann"); err != nil {
		t.Fatal(err)
	}
	f.act("mine", store.DeleteSchedule)
	f.wantAudit("schedule", "mine", "ann created", "ann edited", "ann pause", "ann resume", "ann run "+asked.String(), "ann delete")

	f.declares(worker, 0, declared)
	f.advance(4 * time.Hour)
	f.declares(worker, 3*time.Hour)
	f.declares(worker, 0, declared)
	f.wantAudit("schedule", "nightly", "orphan paused, no worker declares it", "orphan resumed, it is declared again")

	for _, action := range []store.QueueAction{store.PauseQueue, store.PauseQueue, store.ResumeQueue, store.ResumeQueue} {
		if err := f.store.SetQueue(f.ctx, "slow", action, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	f.wantAudit("queue", "slow", "ann pause", "ann resume")

	of := store.NewRunID()
	if _, err := f.store.Rerun(f.ctx, of, newRun(), "ann"); err != nil {
		t.Fatal(err)
	}
	f.wantAudit("run", of.String(), "ann rerun")
}

// wantAudit compares all that the audit says of a thing, oldest first.
func (f *fixture) wantAudit(kind, subject string, want ...string) {
	f.t.Helper()
	var got []string
	for _, c := range slices.Backward(f.changes(store.ChangeFilter{Kind: kind, Subject: subject})) {
		got = append(got, c.Actor+" "+c.Action)
	}
	if !slices.Equal(got, want) {
		f.t.Errorf("the audit of %s %s says %q, want %q", kind, subject, got, want)
	}
}
