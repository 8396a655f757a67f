package metrics

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Database is what was read of the store. It is the same in every process that reads it:
// take the largest value over processes.
type Database struct {
	Age           time.Duration // since it was read
	At            time.Time     // of the store's clock
	Lanes         []store.LaneInfo
	Unserved      []store.LaneInfo // those of which runs are due, and that no living worker serves
	Alive, Silent int              // workers
	ExpiredLeases store.Count      // that no worker has taken
	Notices       store.Count      // of inputs whose runs are to be looked at
	OldestNotice  *time.Time       // when the first of them is, or was; nil: there is none
	Limits        []store.LimitInfo
	Flagged       map[string]int // schedules, by what is wrong: fault, orphaned, late
	Lateness      time.Duration  // of the schedule that is the latest
}

// lanesMost bounds the queues, the jobs on queues and the limits that are written by name;
// the others are together store.OtherLanes.
const lanesMost = store.MaxReportLanes

// waits is what waits on a queue.
type waits struct {
	due, later int64
	oldest     time.Duration
	paused     bool
}

func (t *text) database(d *Database) {
	t.family(gauge, "durable_survey_age_seconds", "Time since what follows was read of the store.")
	t.seconds(d.Age)
	t.family(gauge, "durable_workers_alive", "Living workers of the store.")
	t.number(int64(d.Alive))
	t.family(gauge, "durable_workers_silent", "Workers that were not stopped in order, for a day.")
	t.number(int64(d.Silent))
	t.family(gauge, "durable_leases_expired", "Leases that expired more than a minute ago and that no worker has taken.")
	t.number(d.ExpiredLeases.N)
	t.family(gauge, "durable_notices", "Inputs that were sent, and whose runs no worker has looked at since.")
	t.number(d.Notices.N)
	t.family(gauge, "durable_notices_oldest_seconds", "For how long the first of them has been to be looked at.")
	age := time.Duration(0)
	if d.OldestNotice != nil {
		age = max(d.At.Sub(*d.OldestNotice), 0)
	}
	t.seconds(age)
	t.queues(d)
	t.family(gauge, "durable_lanes_unserved", "Due runs of a job on a queue that no living worker serves.")
	rest := int64(0)
	for i, lane := range d.Unserved {
		if i < lanesMost {
			t.number(lane.Due.N, label{"job", lane.Job}, label{"queue", lane.Queue})
		} else {
			rest += lane.Due.N
		}
	}
	if rest > 0 {
		t.number(rest, label{"job", store.OtherLanes}, label{"queue", store.OtherLanes})
	}
	t.limits(d)
	t.family(gauge, "durable_schedules_flagged", "Schedules that need attention, by the reason.")
	for _, reason := range slices.Sorted(maps.Keys(d.Flagged)) {
		t.number(int64(d.Flagged[reason]), label{"reason", reason})
	}
	t.family(gauge, "durable_schedule_lateness_seconds", "By how much the latest schedule is late.")
	t.seconds(d.Lateness)
}

func (t *text) queues(d *Database) {
	byName := map[string]*waits{}
	for i := range d.Lanes {
		lane := &d.Lanes[i]
		name := lane.Queue
		if byName[name] == nil && len(byName) >= lanesMost {
			name = store.OtherLanes
		}
		if byName[name] == nil {
			byName[name] = &waits{}
		}
		q := byName[name]
		q.due, q.later, q.paused = q.due+lane.Due.N, q.later+lane.Pending.N-lane.Due.N, q.paused || lane.Paused
		if lane.Due.N > 0 && lane.OldestDue != nil {
			q.oldest = max(q.oldest, d.At.Sub(*lane.OldestDue))
		}
	}
	each := func(kind, help string, write func(q *waits, name label)) {
		t.family(gauge, kind, help)
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			write(byName[name], label{"queue", name})
		}
	}
	each("durable_queue_due", "Runs that wait and are due, up to a bound of the store's.", func(q *waits, name label) { t.number(q.due, name) })
	each("durable_queue_later", "Runs that wait and are due later, likewise.", func(q *waits, name label) { t.number(q.later, name) })
	each("durable_queue_oldest_due_seconds", "For how long the first run that is due has been so.", func(q *waits, name label) { t.seconds(q.oldest, name) })
	each("durable_queue_paused", "1: the queue is paused.", func(q *waits, name label) { t.number(number(q.paused), name) })
}

func (t *text) limits(d *Database) {
	limits := slices.SortedFunc(slices.Values(d.Limits), func(a, b store.LimitInfo) int { return cmp.Compare(a.Name, b.Name) })
	limits = limits[:min(len(limits), lanesMost)]
	of := func(sort kind, family, help string, write func(l *store.LimitInfo, name label)) {
		t.family(sort, family, help)
		for i := range limits {
			write(&limits[i], label{"limit", limits[i].Name})
		}
	}
	each := func(family, help string, write func(l *store.LimitInfo, name label)) { of(gauge, family, help, write) }
	counted := func(family, help string, write func(l *store.LimitInfo, name label)) {
		of(counter, family, help, write)
	}
	each("durable_limit_in_use", "Places that are taken, over all keys.", func(l *store.LimitInfo, name label) { t.number(l.InUse.N, name) })
	each("durable_limit_max", "Places, or starts in a period, of each key.", func(l *store.LimitInfo, name label) { t.number(int64(l.Max), name) })
	each("durable_limit_waiting", "Runs that wait for the limit.", func(l *store.LimitInfo, name label) { t.number(l.Waiting.N, name) })
	each("durable_limit_oldest_due_seconds", "For how long the first of them has been due.", func(l *store.LimitInfo, name label) {
		age := time.Duration(0)
		if l.OldestDue != nil {
			age = max(d.At.Sub(*l.OldestDue), 0)
		}
		t.seconds(age, name)
	})
	each("durable_limit_draining", "1: the limit is draining.", func(l *store.LimitInfo, name label) { t.number(number(l.State == store.LimitDraining), name) })
	counted("durable_limit_admitted_total", "Runs of the limit that this process has started.", func(l *store.LimitInfo, name label) { t.number(l.Done.Admitted, name) })
	counted("durable_limit_refused_total", "Runs that the full limit has put off, cancelled or ended, in this process.", func(l *store.LimitInfo, name label) { t.number(l.Done.Refused, name) })
	counted("durable_limit_repaired_total", "Keys that this process has found as they must not be.", func(l *store.LimitInfo, name label) { t.number(l.Done.Repaired, name) })
}
