package operate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store"
)

// AttentionFacts are what Attend judges. All times are of the store's clock.
type AttentionFacts struct {
	Workers   []store.WorkerInfo
	Survey    store.Survey
	Dead      []store.Problem // that ended in the last hour, and are open
	Held      []store.Hold    // dead runs that hold others
	Schedules []store.ScheduleRecord
	Limits    []store.LimitInfo
	Pauses    map[string]store.Change // by queue: who has paused it
	Shut      map[string]store.Change // by limit that admits nothing: who has changed it last
	Locks     []lock.Record
	Waits     []lock.Wait
}

const (
	overdueAfter   = 5 * time.Minute  // a run that is due waits for long
	limitFullAfter = 10 * time.Minute // a run has waited for a limit for long
	lockHeldLong   = 10 * time.Minute // a lock is held for long while others wait for it
	scheduleLate   = time.Minute      // after its next occurrence
)

// Attend says what needs attention, the worst first.
func Attend(facts AttentionFacts) []Attention {
	f := fleet{workers: facts.Workers, survey: facts.Survey}
	items := f.attendWorkers()
	if f.alive() > 0 {
		items = append(items, f.attendLanes()...)
	}
	items = append(items, f.attendLeases()...)
	items = append(items, f.attendQueues(facts.Pauses)...)
	items = append(items, attendDead(facts.Dead)...)
	items = append(items, attendHeld(facts.Held, facts.Survey.At)...)
	items = append(items, attendSchedules(facts.Schedules, facts.Survey.At)...)
	items = append(items, attendLimits(facts.Limits, facts.Shut, facts.Survey.At)...)
	items = append(items, attendLocks(facts.Locks, facts.Waits, facts.Survey.At)...)
	slices.SortStableFunc(items, func(a, b Attention) int { return cmp.Compare(b.Level, a.Level) })
	return whole(fewOfEach(items))
}

// attentionEach bounds what is said of one kind.
const attentionEach = 100

// fewOfEach leaves some items of each kind, the worst ones, and says how many more there are.
// Those that attendLanes makes are few.
func fewOfEach(items []Attention) []Attention {
	count, last := map[AttentionKind]int{}, map[AttentionKind]Attention{}
	few := slices.DeleteFunc(items, func(a Attention) bool {
		if a.Kind == AttentionUnserved {
			return false
		}
		count[a.Kind]++
		last[a.Kind] = a
		return count[a.Kind] > attentionEach
	})
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		if left := count[kind] - attentionEach; left > 0 {
			few = append(few, Attention{Kind: kind, Level: last[kind].Level,
				Text: fmt.Sprintf("%d more %s need attention for the same reason (%s)", left, attentionNames[kind], strings.ReplaceAll(string(kind), "_", " "))})
		}
	}
	return few
}

// alive counts the workers that are not silent.
func (f *fleet) alive() (n int) {
	for i := range f.workers {
		if f.workers[i].State != store.Silent {
			n++
		}
	}
	return n
}

// attendLeases examines what workers have in hand.
func (f *fleet) attendLeases() (items []Attention) {
	for i := range f.workers {
		if w := &f.workers[i]; w.Stuck > 0 && w.State != store.Silent {
			items = append(items, Attention{Kind: AttentionStuck, Level: store.Warning, Subject: w.Name, Text: stuckText(w), Next: []Remedy{restartStuck(w)}})
		}
	}
	for i := range f.workers {
		if w := &f.workers[i]; w.ShortOfCPU > 0 && w.State != store.Silent {
			items = append(items, Attention{Kind: AttentionShortOfCPU, Level: store.Warning, Subject: w.Name, Text: shortText(w), Next: []Remedy{giveCPU(w)}})
		}
	}
	if n := f.survey.ExpiredLeases; n.N > 0 {
		level := store.Warning
		if f.alive() == 0 {
			level = store.Failed
		}
		items = append(items, Attention{Kind: AttentionExpiredLeases, Level: level, Subject: "leases", Count: &n,
			Text: fmt.Sprintf("%s expired more than a minute ago, and no worker has taken the runs back", counted(n, "lease", "leases")),
			Next: []Remedy{{"start_worker", RoleDeployer, "start a worker, or see in the logs of the workers why they cannot reclaim", ""}}})
	}
	return items
}

// attendQueues examines runs that wait for long although workers serve them, and at
// paused queues.
func (f *fleet) attendQueues(pauses map[string]store.Change) (items []Attention) {
	type waiting struct {
		paused, due, isolated store.Count
		oldest                time.Duration
	}
	byQueue := map[string]*waiting{}
	for i := range f.survey.Lanes {
		lane := &f.survey.Lanes[i]
		if lane.Due.N == 0 || !lane.Paused && !f.served(lane) {
			continue
		}
		q := byQueue[lane.Queue]
		if q == nil {
			q = &waiting{}
			byQueue[lane.Queue] = q
		}
		if lane.Paused {
			q.paused = q.paused.Plus(lane.Due)
			continue
		}
		q.due, q.isolated = q.due.Plus(lane.Due), q.isolated.Plus(lane.Isolated)
		q.oldest = max(q.oldest, f.survey.At.Sub(*lane.OldestDue))
	}
	for name, q := range byQueue {
		since := f.survey.At.Add(-q.oldest)
		if q.paused.N > 0 {
			items = append(items, pausedWithWork(name, q.paused, pauses[name], f.survey.At))
		}
		if q.oldest > overdueAfter {
			items = append(items, Attention{Kind: AttentionOverdue, Level: store.Warning, Subject: name, Queue: name, Since: &since, Count: &q.due,
				Text: fmt.Sprintf("queue %s: %s due, the oldest for %s", name, counted(q.due, "run", "runs"), span(q.oldest)),
				Next: []Remedy{{"explain", RoleViewer, "see why the oldest waits (`runs list --state pending`, `runs explain ID`); add workers or capacity", ""}}})
		}
		if q.oldest > overdueAfter && q.isolated.N > 0 {
			items = append(items, Attention{Kind: AttentionIsolatedWaiting, Level: store.Warning, Subject: name, Queue: name, Count: &q.isolated,
				Text: fmt.Sprintf("queue %s: %s that crashed before for a worker that executes nothing else", name, counted(q.isolated, "run waits", "runs wait")),
				Next: []Remedy{startIdle()}})
		}
	}
	slices.SortFunc(items, func(a, b Attention) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Kind, b.Kind))
	})
	return items
}

func pausedWithWork(queue string, due store.Count, pause store.Change, now time.Time) Attention {
	a := Attention{Kind: AttentionPausedWithWork, Level: store.Warning, Subject: queue, Queue: queue, Count: &due,
		Text: fmt.Sprintf("queue %s is paused, %s due", queue, counted(due, "run is", "runs are")),
		Next: []Remedy{{"resume", RoleOperator, "resume the queue", "queues resume " + shellWord(queue)}}}
	if pause.Actor != "" {
		a.Since = &pause.At
		a.Text = fmt.Sprintf("queue %s was paused by %s %s ago, %s due", queue, pause.Actor, span(now.Sub(pause.At)), counted(due, "run is", "runs are"))
	}
	return a
}

// attendDead examines the runs that have died in the last hour, by job.
func attendDead(dead []store.Problem) (items []Attention) {
	byJob := map[string]int{}
	for i := range dead {
		at, known := byJob[dead[i].Job]
		if !known {
			at, byJob[dead[i].Job] = len(items), len(items)
			items = append(items, Attention{Kind: AttentionDead, Level: store.Warning, Subject: dead[i].Job, Job: dead[i].Job,
				Count: &store.Count{}, Text: firstLine(dead[i].Reason),
				Next: []Remedy{{"problems", RoleViewer, "see why: group by group, then retry, acknowledge or delete them", "problems list --job " + shellWord(dead[i].Job)}}})
		}
		items[at].Since = &dead[i].EndedAt // the newest come first
		items[at].Count.N++
	}
	for i := range items {
		items[i].Count.AtLeast = len(dead) >= store.MaxProblems
		items[i].Text = fmt.Sprintf("%s of job %s died in the last hour, the newest with: %s", counted(*items[i].Count, "run", "runs"), items[i].Job, items[i].Text)
	}
	return items
}

func attendSchedules(schedules []store.ScheduleRecord, now time.Time) (items []Attention) {
	for i := range schedules {
		s := &schedules[i]
		show := "schedules show " + shellWord(s.Name)
		switch {
		case s.Fault != nil:
			items = append(items, Attention{Kind: AttentionScheduleFault, Level: store.Warning, Subject: s.Name,
				Text: fmt.Sprintf("%s cannot be evaluated: %s", s.Name, *s.Fault), Next: []Remedy{{"edit", RoleOperator, "correct its declaration, or edit it", show}}})
		case s.Orphaned:
			text := s.Name + " still fires although no worker declares it any more"
			if s.Paused {
				text = s.Name + " is paused, and no worker declares it any more"
			}
			items = append(items, Attention{Kind: AttentionScheduleOrphaned, Level: store.Warning, Subject: s.Name, Text: text,
				Next: []Remedy{{"delete", RoleOperator, "delete it, or deploy the code that declares it", show}}})
		case !s.Paused && !s.Waiting && s.NextAt != nil && now.Sub(*s.NextAt) > scheduleLate:
			items = append(items, Attention{Kind: AttentionScheduleLate, Level: store.Warning, Subject: s.Name, Since: s.NextAt,
				Text: fmt.Sprintf("%s was due %s ago, and no worker has evaluated it", s.Name, span(now.Sub(*s.NextAt))),
				Next: []Remedy{{"start_worker", RoleDeployer, "start a worker, or see in the logs of the workers why they do not evaluate it", show}}})
		}
	}
	return items
}

func attendLimits(limits []store.LimitInfo, shut map[string]store.Change, now time.Time) (items []Attention) {
	for i := range limits {
		l := &limits[i]
		if l.Fault != "" && l.State != store.LimitOff {
			items = append(items, Attention{Kind: AttentionLimitFault, Level: store.Failed, Subject: l.Name,
				Text: fmt.Sprintf("limit %s cannot be applied, and admits nothing: %s", l.Name, l.Fault), Next: []Remedy{{"off", RoleOperator,
					"deploy the version that has stored it everywhere, or correct it, or turn it off", "limits show " + shellWord(l.Name)}}})
			continue
		}
		if isShut(l) {
			items = append(items, attendShut(l, shut[l.Name], now))
			continue
		}
		if l.Waiting.N == 0 || l.OldestDue == nil || now.Sub(*l.OldestDue) < limitFullAfter {
			continue
		}
		text := fmt.Sprintf("limit %s: %s, the oldest for %s", l.Name, counted(l.Waiting, "run waits", "runs wait"), span(now.Sub(*l.OldestDue)))
		items = append(items, Attention{Kind: AttentionLimitFull, Level: store.Warning, Subject: l.Name, Since: l.OldestDue, Count: &l.Waiting, Text: text,
			Next: []Remedy{{"show", RoleViewer, "see who has the places; let it admit more, or turn it off", "limits show " + shellWord(l.Name)}}})
	}
	return items
}

// isShut reports whether runs wait for a limit that is set to admit nothing.
func isShut(l *store.LimitInfo) bool {
	return l.Waiting.N > 0 && (l.State == store.LimitDraining || l.State == store.LimitActive && l.Max == 0)
}

// attendShut names who has shut a limit, which stops its runs from that moment on.
func attendShut(l *store.LimitInfo, by store.Change, now time.Time) Attention {
	why, next := "its max is 0", Remedy{"raise", RoleOperator, "give it as many places as it shall have, or turn it off", "limits set " + shellWord(l.Name) + " --max 1"}
	if l.State == store.LimitDraining {
		why, next = "it is draining", Remedy{"resume", RoleOperator, "let it admit runs again, or turn it off", "limits resume " + shellWord(l.Name)}
	}
	if by.Actor != "" {
		why += fmt.Sprintf(", since %s changed it %s ago", by.Actor, span(now.Sub(by.At)))
	}
	return Attention{Kind: AttentionLimitShut, Level: store.Failed, Subject: l.Name, Since: l.OldestDue, Count: &l.Waiting,
		Text: fmt.Sprintf("limit %s admits nothing (%s), and %s for it", l.Name, why, counted(l.Waiting, "run waits", "runs wait")), Next: []Remedy{next}}
}

func attendLocks(locks []lock.Record, waits []lock.Wait, now time.Time) (items []Attention) {
	for i := range locks {
		l := &locks[i]
		waiting := slices.ContainsFunc(waits, func(w lock.Wait) bool { return w.Name == l.Name })
		if l.Expired || !waiting || now.Sub(l.AcquiredAt) < lockHeldLong {
			continue
		}
		items = append(items, Attention{Kind: AttentionLockOverdue, Level: store.Warning, Subject: l.Name, Since: &l.AcquiredAt,
			Text: fmt.Sprintf("lock %s was taken by %s %s ago, and others wait for it", l.Name, l.Owner, span(now.Sub(l.AcquiredAt))),
			Next: []Remedy{{"release", RoleOperator, "see what the holder does; release the lock only if it is gone", "locks list " + shellWord(l.Name)}}})
	}
	return items
}

// ExamineAttention finds what Attend says besides what ExamineServing and
// ExamineSchedules do.
func (o *Operator) ExamineAttention(ctx context.Context) (f store.Findings) {
	facts, err := o.attentionFacts(ctx)
	if err != nil {
		f.Fail("attention", err.Error(), "repeat it when the database answers")
		return f
	}
	for _, a := range Attend(facts) {
		name := attentionNames[a.Kind]
		if examinedElsewhere(a.Kind) {
			continue
		}
		if a.Level == store.Failed {
			f.Fail(name, a.Text, a.hint())
		} else {
			f.Warn(name, a.Text, a.hint())
		}
	}
	if len(f) == 0 {
		f.Fine("attention", "nothing waits for long, no runs died in the last hour, none waits for the success of a dead one, no handler is stuck, no lease was left behind")
	}
	return f
}

// attentionNames are what each kind is about. Those that ExamineAttention reports are the
// names of its findings.
var attentionNames = map[AttentionKind]string{ //nolint:gochecknoglobals // a constant table
	AttentionOverdue: "queues", AttentionPausedWithWork: "queues", AttentionIsolatedWaiting: "queues", AttentionDead: "problems", AttentionHeld: "dependents",
	AttentionStuck: "handlers", AttentionShortOfCPU: "cpu", AttentionExpiredLeases: "leases", AttentionScheduleLate: "schedules", AttentionLimitFull: "limits",
	AttentionLimitFault: "limits", AttentionLimitShut: "limits", AttentionLockOverdue: "locks", AttentionScheduleFault: "schedules", AttentionScheduleOrphaned: "schedules",
	AttentionUnserved: "jobs", AttentionNoWorkers: "workers", AttentionSilentWorkers: "workers",
}

// examinedElsewhere are the kinds that ExamineServing and ExamineSchedules report.
func examinedElsewhere(kind AttentionKind) bool {
	return slices.Contains([]AttentionKind{AttentionScheduleFault, AttentionScheduleOrphaned, AttentionUnserved, AttentionNoWorkers, AttentionSilentWorkers}, kind)
}

// hint is what a finding says to do.
func (a *Attention) hint() string {
	if len(a.Next) == 0 {
		return ""
	}
	return a.Next[0].Text
}

// attendHeld names the dead runs whose success others wait for.
func attendHeld(held []store.Hold, now time.Time) (items []Attention) {
	for i := range held {
		hold := &held[i]
		items = append(items, Attention{Kind: AttentionHeld, Level: store.Warning, Subject: hold.Run.String(), Job: hold.Job, Since: &hold.DeadSince, Count: &hold.Dependents,
			Text: fmt.Sprintf("run %s of job %s has been dead for %s, and %s for its success", hold.Run, hold.Job, span(now.Sub(hold.DeadSince)),
				counted(hold.Dependents, "run waits", "runs wait")),
			Next: []Remedy{{"retry", RoleOperator, "retry it; what waits for it continues when it succeeds, and is cancelled when it is deleted", "runs retry " + hold.Run.String()}}})
	}
	return items
}
