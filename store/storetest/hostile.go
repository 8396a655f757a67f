package storetest

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/durable-worker/durable-worker/store"
)

// What operators type, and what programs hand on, may be anything.
func hostileTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a schedule cannot be asked for by what is no text":       hostileSchedules,
		"who asks is named in text":                               hostileActors,
		"a rule of what is no text, or endless, is refused":       hostileRules,
		"a past of fewer than no lines is refused":                hostilePast,
		"an unused queue that is resumed stays unknown":           resumeUnused,
		"a list of runs or changes cannot be narrowed by no text": hostileFilters,
	}
}

// noTexts are what every engine must refuse.
func noTexts() []string {
	return []string{"a\x00b", "\x00", "a\xff", "\xed\xa0\x80", strings.Repeat("n", 10<<20)}
}

// invalid fails unless an answer is ErrInvalid, in a text that is no longer than
// a person reads and that every terminal can show.
func invalid(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, store.ErrInvalid) {
		t.Errorf("%s answered %.300v, want ErrInvalid", what, err)
		return
	}
	if text := err.Error(); len(text) > 2000 || !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		t.Errorf("%s: the error of %d bytes holds what it refuses: %.300q", what, len(text), text)
	}
}

func hostileSchedules(t *testing.T, f *fixture) {
	f.save(newSchedule("plain"))
	for _, name := range noTexts() {
		_, err := f.store.ListSchedules(f.ctx, "plain", name)
		invalid(t, "ListSchedules", err)
		_, err = f.store.ScheduleHistory(f.ctx, name, 5)
		invalid(t, "ScheduleHistory", err)
		for _, action := range []store.ScheduleAction{store.PauseSchedule, store.ResumeSchedule, store.DeleteSchedule} {
			invalid(t, "ChangeSchedule", f.store.ChangeSchedule(f.ctx, name, action, "ann"))
		}
		err = f.store.RunSchedule(f.ctx, name, store.NewRunID(), store.OverlapAllow, "ann")
		invalid(t, "RunSchedule", err)
		invalid(t, "SetQueue", f.store.SetQueue(f.ctx, name, store.PauseQueue, "ann"))
		_, err = f.store.Operate(f.ctx, store.RunCommand{Action: store.CancelRuns, Runs: []store.RunID{store.NewRunID()}, By: "ann", Reason: name})
		invalid(t, "Operate", err)
		invalid(t, "Reveal", f.store.Reveal(f.ctx, store.NewRunID(), name, "ann"))
	}
	if records, err := f.store.ListSchedules(f.ctx); err != nil || len(records) != 1 {
		t.Errorf("ListSchedules answered %d, %v, want the plain one", len(records), err)
	}
}

func hostileActors(t *testing.T, f *fixture) {
	f.save(newSchedule("plain"))
	record := f.schedule("plain")
	one := record.Schedule()
	for _, by := range append(noTexts(), "") {
		invalid(t, "SaveSchedule", f.store.SaveSchedule(f.ctx, one, by))
		invalid(t, "ChangeSchedule", f.store.ChangeSchedule(f.ctx, "plain", store.PauseSchedule, by))
		err := f.store.RunSchedule(f.ctx, "plain", store.NewRunID(), store.OverlapAllow, by)
		invalid(t, "RunSchedule", err)
		invalid(t, "SetQueue", f.store.SetQueue(f.ctx, "default", store.PauseQueue, by))
		_, err = f.store.Rerun(f.ctx, store.NewRunID(), newRun(), by)
		invalid(t, "Rerun", err)
		invalid(t, "Reveal", f.store.Reveal(f.ctx, store.NewRunID(), "", by))
	}
	changes, err := f.store.Changes(f.ctx, store.ChangeFilter{})
	if err != nil || len(changes.Changes) != 1 {
		t.Errorf("Changes answered %+v, %v, want that the schedule was made", changes, err)
	}
	if record := f.schedule("plain"); record.Paused || record.Generation != one.Generation {
		t.Errorf("the schedule was changed: %+v", record)
	}
}

func hostilePast(t *testing.T, f *fixture) {
	f.save(newSchedule("plain"))
	_, err := f.store.ScheduleHistory(f.ctx, "plain", -1)
	invalid(t, "ScheduleHistory", err)
	if past, err := f.store.ScheduleHistory(f.ctx, "plain", 0); err != nil || len(past) != 0 {
		t.Errorf("SchedulePast of no lines answered %+v, %v", past, err)
	}
}

func hostileRules(t *testing.T, f *fixture) {
	for _, text := range noTexts() {
		cron, zone, window := newSchedule("one"), newSchedule("one"), newSchedule("one")
		cron.Rule = store.Cron("* * * * "+text, "")
		zone.Rule = store.Cron("* * * * *", text)
		window.Plan.Blackouts = []store.Window{{Days: text}, {From: text, Until: text}}
		for _, s := range []store.Schedule{cron, zone, window} {
			invalid(t, "SaveSchedule", f.store.SaveSchedule(f.ctx, s, "ann"))
		}
	}
}

func hostileFilters(t *testing.T, f *fixture) {
	for _, text := range noTexts()[:4] {
		for _, filter := range []store.Filter{{Jobs: []string{text}}, {Queues: []string{text}}, {Tag: text}} {
			_, err := f.store.Runs(f.ctx, filter)
			invalid(t, "Runs", err)
		}
		for _, filter := range []store.ChangeFilter{{Kind: text}, {Subject: text}} {
			_, err := f.store.Changes(f.ctx, filter)
			invalid(t, "Changes", err)
		}
	}
}

// resumeUnused: a name mistyped must not become a queue.
func resumeUnused(t *testing.T, f *fixture) {
	for range 2 {
		f.setQueue("mial", store.ResumeQueue)
	}
	if queues := f.queues(); len(queues) != 0 {
		t.Errorf("queues %+v, want none", queues)
	}
	if changes, err := f.store.Changes(f.ctx, store.ChangeFilter{}); err != nil || len(changes.Changes) != 0 {
		t.Errorf("Changes answered %+v, %v, want none", changes, err)
	}
	f.setQueue("mial", store.PauseQueue)
	f.setQueue("mial", store.ResumeQueue)
	if queues := f.queues(); len(queues) != 1 || queues[0].Paused {
		t.Errorf("queues %+v, want one that was paused and is not", queues)
	}
}
