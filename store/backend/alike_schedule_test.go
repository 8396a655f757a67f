package backend_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/recur"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// timetable is what a history knows of its schedules. They are evaluated by a clock of
// the history's own, which is years behind those of the stores: each is due at any time,
// and has the same occurrences on all engines.
type timetable struct {
	now     time.Time
	workers int
	planner *recur.Planner
	faulty  string                   // a schedule that cannot be evaluated, in this evaluation
	ids     map[string]store.RunID   // of the runs of occurrences, in this evaluation
	asked   map[string][]store.RunID // by operators, of each schedule
	// deleted are the schedules that were deleted once. A run of a deleted schedule is
	// shown with the schedule's name on some engines only, and a new schedule of the name
	// may show it among its own.
	deleted map[string]bool
}

var scheduleNames = []string{"s1", "s2", "s3"} //nolint:gochecknoglobals // a constant

// calendarBegins is at midnight, so that intervals and cron expressions meet.
var calendarBegins = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // a constant

// schedule is one of a few definitions of a schedule.
func (h *history) schedule() store.Schedule {
	version := h.random.IntN(6)
	s := store.Schedule{Name: one(h, scheduleNames...), Hash: fmt.Sprint("h", version), Job: one(h, "mail", "pay"), Queue: one(h, "default", "other"),
		Args: []byte(`{"s":1}`), MaxAttempts: 2, Tags: one(h, nil, []string{"a"}), Metadata: one(h, nil, store.Metadata{"tenant": "x"}), Paused: h.random.IntN(8) == 0,
		Rule: one(h, store.Every(time.Hour), store.Every(time.Hour), store.Cron("*/20 * * * *", ""), store.Once(calendarBegins.Add(100*time.Hour)))}
	s.Plan = one(h, store.Plan{}, store.Plan{Overlap: store.OverlapAllow}, store.Plan{Overlap: store.OverlapWait}, store.Plan{Overlap: store.OverlapWait, MaxUnfinished: 3},
		store.Plan{Overlap: store.OverlapSkip, MaxUnfinished: 2}, store.Plan{CatchUp: store.CatchUpAll, CatchUpMost: 3}, store.Plan{CatchUp: store.CatchUpLatest, Overlap: store.OverlapWait},
		store.Plan{CatchUp: store.CatchUpAll, CatchUpMost: 4, Overlap: store.OverlapAllow, Jitter: store.Duration(time.Minute)})
	if h.random.IntN(4) == 0 {
		s.Limits = []store.LimitUse{h.use()}
	}
	return s
}

// declare declares jobs and schedules, by a worker that is new or by one that has begun
// long ago.
func (h *history) declare() {
	if h.random.IntN(3) == 0 {
		h.calendar.workers++
	}
	worker := store.WorkerID{Name: "d", Instance: uuid.UUID{9, byte(max(h.calendar.workers-h.random.IntN(2), 0))}}
	declaration := store.Declaration{Worker: worker, Schedules: []store.Schedule{h.schedule()},
		Jobs: []store.JobInfo{{Name: one(h, "mail", "pay"), Queue: "default", MaxAttempts: 3, Retention: one(h, 0, 0, store.Duration(store.KeepForever), store.Duration(time.Hour))}}}
	if other := h.schedule(); other.Name != declaration.Schedules[0].Name {
		declaration.Schedules = append(declaration.Schedules, other)
	}
	if h.random.IntN(8) == 0 {
		declaration.DisableOrphans = time.Millisecond
		<-time.After(3 * time.Millisecond) // all that was declared before is so old on every clock
	}
	h.each(fmt.Sprint("declare by ", worker.Instance[1], " disable orphans ", declaration.DisableOrphans, textsOf(declaration.Schedules...)), func(s backend.Store) any { return wordOf(s.Declare(h.t.Context(), declaration)) })
}

// textsOf are schedules in short.
func textsOf(schedules ...store.Schedule) (texts []string) {
	for _, s := range schedules {
		texts = append(texts, fmt.Sprintf("%s %s %s%v %s/%s paused %v catch up %s %d overlap %s of %d limits %v", s.Name, s.Hash, s.Rule.Cron, time.Duration(s.Rule.Every),
			s.Job, s.Queue, s.Paused, s.Plan.CatchUp, s.Plan.CatchUpMost, s.Plan.Overlap, s.Plan.MaxUnfinished, s.Limits))
	}
	return texts
}

// materialize evaluates the schedules at a later hour.
func (h *history) materialize() {
	h.calendar.now = h.calendar.now.Add(one(h, 0, 30*time.Second, 20*time.Minute, time.Hour, 5*time.Hour))
	h.calendar.ids = map[string]store.RunID{}
	h.calendar.faulty = ""
	if h.random.IntN(12) == 0 {
		h.calendar.faulty = one(h, scheduleNames...)
	}
	var made []store.RunID
	h.each(fmt.Sprint("materialize ", h.calendar.now), func(s backend.Store) any {
		h.calendar.planner.Begin(h.t.Context())
		done, err := s.Materialize(h.t.Context(), 100, h.decide)
		made = slices.SortedFunc(slices.Values(done.Runs), func(a, b store.RunID) int { return slices.Compare(a[:], b[:]) })
		var waits []string
		for _, wait := range done.Waits {
			waits = append(waits, fmt.Sprint(wait))
		}
		slices.Sort(waits)
		return []any{done.Busy, done.Due, made, waits, len(done.SetAside), hoursOf(done.Next), wordOf(err)}
	})
	for _, id := range made {
		h.known = append(h.known, store.NewRun{ID: id})
	}
}

// decide is what workers decide, at the hour of the history. What waits is evaluated again
// in an hour, or when it is asked for.
func (h *history) decide(_ time.Time, s store.Schedule) store.Decision {
	if s.Name == h.calendar.faulty {
		return store.Decision{NextAt: s.NextAt, Fault: "no such zone"}
	}
	waited := s.Waiting
	s.EvaluateAt = h.calendar.now
	d := h.calendar.planner.Decide(h.calendar.now, s)
	if d.Waiting > 0 || waited > 0 && len(d.Occurrences) == 0 && d.NextAt.Equal(s.NextAt) {
		d.Waiting = time.Hour
	}
	for i := range d.Occurrences {
		name := fmt.Sprint(s.Name, d.Occurrences[i].Key)
		if _, known := h.calendar.ids[name]; !known {
			h.calendar.ids[name] = store.NewRunID()
		}
		d.Occurrences[i].Run.ID = h.calendar.ids[name]
	}
	return d
}

// hoursOf says how long a time is, as far as it is the same on all engines.
func hoursOf(d time.Duration) string {
	switch {
	case d < 0:
		return "never"
	case d < 30*time.Second: // what has a fault is evaluated again in a minute
		return "now"
	default:
		return fmt.Sprint("in hours: ", int((d+10*time.Minute)/time.Hour))
	}
}

func (h *history) operateSchedule() {
	name, action := one(h, scheduleNames...), one(h, store.PauseSchedule, store.ResumeSchedule, store.ResumeSchedule, store.DeleteSchedule)
	if action == store.DeleteSchedule {
		h.calendar.deleted[name] = true
		delete(h.calendar.asked, name)
	}
	h.each(fmt.Sprint(action, " ", name), func(s backend.Store) any { return wordOf(s.ChangeSchedule(h.t.Context(), name, action, "ann")) })
}

// saveSchedule edits a schedule, as it is or as it was before, or makes one.
func (h *history) saveSchedule() {
	edited, back := h.schedule(), one(h, 0, 0, 0, 1)
	if h.random.IntN(3) == 0 {
		edited.Generation = -1
	}
	h.each(fmt.Sprint("save ", back, edited.Generation, textsOf(edited)), func(s backend.Store) any {
		saved := edited
		stored, err := s.ListSchedules(h.t.Context(), saved.Name)
		if saved.Generation++; err == nil && len(stored) > 0 && saved.Generation > 0 {
			saved.Generation = stored[0].Generation - int64(back)
		}
		return wordOf(s.SaveSchedule(h.t.Context(), saved, "bob"))
	})
}

func (h *history) runSchedule() {
	name, overlap := one(h, scheduleNames...), one(h, store.OverlapSkip, store.OverlapSkip, store.OverlapAllow, store.OverlapWait)
	id := store.NewRunID()
	switch {
	case h.random.IntN(4) == 0 && len(h.calendar.asked[name]) > 0:
		id = one(h, h.calendar.asked[name]...) // its answer was lost
	case h.random.IntN(6) == 0 && len(h.known) > 0:
		if other := one(h, h.known...); other.Job != "" {
			id = other.ID
		}
	}
	h.calendar.asked[name] = append(h.calendar.asked[name], id)
	h.known = append(h.known, store.NewRun{ID: id})
	h.each(fmt.Sprint("run ", name, " ", overlap, " as ", id), func(s backend.Store) any {
		return wordOf(s.RunSchedule(h.t.Context(), name, id, overlap, "ann"))
	})
}

func (h *history) reevaluate() {
	names := []string{one(h, scheduleNames...), one(h, "none", scheduleNames[0])}
	h.each(fmt.Sprint("reevaluate ", names), func(s backend.Store) any { return wordOf(s.ReevaluateNow(h.t.Context(), names...)) })
}

// scheduleOf is the schedule of a run.
func (h *history) scheduleOf(r *store.Record) string {
	if r.Schedule == nil {
		return ""
	}
	return h.named(*r.Schedule)
}

func (h *history) named(schedule string) string {
	if h.calendar.deleted[schedule] {
		return ""
	}
	return schedule
}

// compareSchedules compares the schedules and what happened to them. What an operator's
// clock said is in no answer.
func (h *history) compareSchedules() {
	h.each("schedules", func(s backend.Store) any {
		records, err := s.ListSchedules(h.t.Context())
		answer := []any{wordOf(err)}
		for _, r := range records {
			if r.DeclaredAt = nil; h.calendar.deleted[r.Name] {
				r.Generation = 0 // it may begin after that of the deleted one
			}
			answer = append(answer, r)
		}
		return answer
	})
	for _, name := range scheduleNames {
		h.each("history of "+name, func(s backend.Store) any {
			past, err := s.ScheduleHistory(h.t.Context(), name, 1000)
			var answer []string
			for _, line := range past {
				text := func(p *string) string {
					if p == nil {
						return ""
					}
					return *p
				}
				if line.Kind == store.HistoryRun && h.calendar.deleted[name] {
					continue
				}
				entry := fmt.Sprint(line.Kind, " ", text(line.Occurrence), " ", line.Run, " ", line.State, " ", text(line.Reason), " ", text(line.By))
				if line.At.Before(calendarBegins.AddDate(3, 0, 0)) {
					entry += line.At.String()
				}
				if line.First != nil {
					entry += " from " + line.First.String()
				}
				answer = append(answer, entry)
			}
			slices.Sort(answer) // what happened in one microsecond has no order
			return []any{answer, wordOf(err)}
		})
	}
}
