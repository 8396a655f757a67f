package operate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

func TestASurveySaysWhatEachFigureIs(t *testing.T) {
	t.Parallel()
	w := watch(t)
	s, err := w.Survey(t.Context())
	require.NoError(t, err)
	require.Nil(t, s.Failed)
	require.Nil(t, s.OldestDue)

	did := store.LaneTally{Queue: "default", Job: "mail", Tally: store.Tally{Succeeded: 6, Failed: 1, Dead: 1}}
	w.reports("web-7", []string{"default"}, did)
	w.now = w.now.Add(50 * time.Minute)
	w.reports("web-8", []string{"default"})
	for range 4 {
		w.enqueues("mail", "default")
	}
	w.enqueues("mail", "bulk")
	w.enqueues("mail", "default", durable.After(time.Hour))
	_, err = w.As("ann").PauseQueue(t.Context(), "bulk")
	require.NoError(t, err)
	w.now = w.now.Add(10 * time.Second)
	s, err = w.Survey(t.Context())
	require.NoError(t, err)
	seen := w.now.Add(-10 * time.Second)
	require.Equal(t, operate.Figure{N: 4, Is: operate.Exact}, s.Due)
	require.Equal(t, operate.Figure{N: 1, Is: operate.Exact}, s.Paused)
	require.Equal(t, 10*time.Second, time.Duration(*s.OldestDue))
	require.Equal(t, operate.Figure{N: 10, Is: operate.Reported, AsOf: &seen}, s.Capacity)
	require.Equal(t, operate.Figure{N: 1, Is: operate.Exact}, s.Alive)
	require.Equal(t, operate.Figure{N: 1, Is: operate.Exact}, s.Silent)
	require.Equal(t, operate.Figure{N: 0.25, Is: operate.Reported, AsOf: &seen}, *s.Failed)
	require.Equal(t, 8.0, s.Ended.N)
}

// kindsOf are the kinds, in order.
func kindsOf(items []operate.Attention) (kinds []operate.AttentionKind) {
	for _, a := range items {
		kinds = append(kinds, a.Kind)
	}
	return kinds
}

// TestAHundredJobsThatWaitHideNone: runs that are due come first, and the rest is counted.
func TestAHundredJobsThatWaitHideNone(t *testing.T) {
	t.Parallel()
	var lanes []store.LaneInfo
	for i := range 150 {
		lanes = append(lanes, store.LaneInfo{Queue: "fax", Job: fmt.Sprintf("job-%03d", i), Pending: store.Count{N: 2}})
	}
	lanes = append(lanes, store.LaneInfo{Queue: "fax", Job: "urgent", Pending: store.Count{N: 7}, Due: store.Count{N: 7}, OldestDue: before(time.Second)})
	items := operate.Attend(operate.AttentionFacts{Workers: []store.WorkerInfo{serving()}, Survey: store.Survey{At: explainedAt, Lanes: lanes}})
	require.Len(t, items, 101)
	require.Equal(t, "urgent", items[0].Job)
	require.Equal(t, store.Failed, items[0].Level)
	require.Equal(t, "no living worker serves 51 more jobs on their queues: 102 runs wait", items[100].Text)
	require.Equal(t, store.Warning, items[100].Level)

	for i := range lanes {
		lanes[i].Due, lanes[i].OldestDue = lanes[i].Pending, before(time.Second)
	}
	items = operate.Attend(operate.AttentionFacts{Workers: []store.WorkerInfo{serving()}, Survey: store.Survey{At: explainedAt, Lanes: lanes}})
	require.Len(t, items, 101)
	require.Equal(t, "no living worker serves 51 more jobs on their queues: 107 runs wait", items[100].Text)
	require.Equal(t, store.Failed, items[100].Level)
}

func TestAttend(t *testing.T) {
	t.Parallel()
	at := explainedAt
	lane := func(change func(*store.LaneInfo)) store.Survey {
		l := store.LaneInfo{Queue: "mail", Job: "invoice", Pending: store.Count{N: 7}, Due: store.Count{N: 7}, OldestDue: before(time.Second)}
		change(&l)
		return store.Survey{At: at, Lanes: []store.LaneInfo{l}}
	}
	alive := []store.WorkerInfo{serving()}
	for _, c := range []struct {
		name  string
		facts operate.AttentionFacts
		kind  operate.AttentionKind
		level store.Level
		text  string
	}{
		{"nobody", operate.AttentionFacts{Survey: lane(func(*store.LaneInfo) {})}, operate.AttentionNoWorkers, store.Failed, "0 workers alive; 7 runs due, the oldest for 1 s"},
		{"unserved", operate.AttentionFacts{Workers: alive, Survey: lane(func(l *store.LaneInfo) { l.Queue = "fax" })}, operate.AttentionUnserved, store.Failed, "no living worker serves job invoice on queue fax"},
		{"overdue", operate.AttentionFacts{Workers: alive, Survey: lane(func(l *store.LaneInfo) { l.OldestDue = before(6 * time.Minute) })}, operate.AttentionOverdue, store.Warning, "queue mail: 7 runs due, the oldest for 6 min"},
		{"paused", operate.AttentionFacts{Workers: alive, Survey: lane(func(l *store.LaneInfo) { l.Paused = true }), Pauses: map[string]store.Change{"mail": {Actor: "ada", At: *before(2 * time.Hour)}}},
			operate.AttentionPausedWithWork, store.Warning, "queue mail was paused by ada 2 h ago, 7 runs are due"},
		{"dead", operate.AttentionFacts{Workers: alive, Survey: store.Survey{At: at}, Dead: []store.Problem{{Job: "invoice", Reason: "smtp 550", EndedAt: at}, {Job: "invoice", Reason: "old", EndedAt: at}}},
			operate.AttentionDead, store.Warning, "2 runs of job invoice died in the last hour, the newest with: smtp 550"},
		{"held", operate.AttentionFacts{Workers: alive, Survey: store.Survey{At: at}, Held: []store.Hold{{Job: "extract", DeadSince: *before(3 * time.Hour), Dependents: store.Count{N: 1000, AtLeast: true}}}},
			operate.AttentionHeld, store.Warning, "of job extract has been dead for 3 h, and more than 1000 runs wait for its success"},
		{"stuck", operate.AttentionFacts{Survey: store.Survey{At: at}, Workers: []store.WorkerInfo{func() store.WorkerInfo { w := serving(); w.Stuck = 2; return w }()}},
			operate.AttentionStuck, store.Warning, "web-7 v1.4 has given up 2 handlers"},
		{"short of CPU", operate.AttentionFacts{Survey: store.Survey{At: at}, Workers: []store.WorkerInfo{func() store.WorkerInfo { w := serving(); w.ShortOfCPU = store.Duration(2 * time.Second); return w }()}},
			operate.AttentionShortOfCPU, store.Warning, "web-7 v1.4 is short of CPU: its goroutines wait 2s"},
		{"leases", operate.AttentionFacts{Workers: alive, Survey: store.Survey{At: at, ExpiredLeases: store.Count{N: 3}}}, operate.AttentionExpiredLeases, store.Warning, "3 leases expired more than a minute ago"},
		{"silent", operate.AttentionFacts{Survey: store.Survey{At: at}, Workers: []store.WorkerInfo{serving(), func() store.WorkerInfo { w := serving(); w.State = store.Silent; return w }()}},
			operate.AttentionSilentWorkers, store.Warning, "1 worker alive; silent: web-7"},
		{"faulty", operate.AttentionFacts{Workers: alive, Survey: store.Survey{At: at}, Schedules: []store.ScheduleRecord{{Name: "nightly", Fault: text("no zone")}}}, operate.AttentionScheduleFault, store.Warning, "nightly cannot be evaluated: no zone"},
		{"orphan", operate.AttentionFacts{Workers: alive, Survey: store.Survey{At: at}, Schedules: []store.ScheduleRecord{{Name: "nightly", Orphaned: true}}}, operate.AttentionScheduleOrphaned, store.Warning, "nightly still fires"},
		{"late", operate.AttentionFacts{Workers: alive, Survey: store.Survey{At: at}, Schedules: []store.ScheduleRecord{{Name: "nightly", NextAt: before(5 * time.Minute)}}}, operate.AttentionScheduleLate, store.Warning, "nightly was due 5 min ago"},
		{"limit", operate.AttentionFacts{Workers: alive, Survey: store.Survey{At: at}, Limits: []store.LimitInfo{{Limit: store.Limit{Name: "api", Max: 2}, Waiting: store.Count{N: 9}, OldestDue: before(11 * time.Minute)}}},
			operate.AttentionLimitFull, store.Warning, "limit api: 9 runs wait, the oldest for 11 min"},
		{"limit of no places", operate.AttentionFacts{Workers: alive, Survey: store.Survey{At: at}, Limits: []store.LimitInfo{{Limit: store.Limit{Name: "api"}, Waiting: store.Count{N: 9}, OldestDue: before(time.Second)}},
			Shut: map[string]store.Change{"api": {Actor: "ada", At: *before(3 * time.Minute)}}},
			operate.AttentionLimitShut, store.Failed, "limit api admits nothing (its max is 0, since ada changed it 3 min ago), and 9 runs wait for it"},
		{"limit that is draining", operate.AttentionFacts{Workers: alive, Survey: store.Survey{At: at}, Limits: []store.LimitInfo{{Limit: store.Limit{Name: "api", Max: 2, State: store.LimitDraining}, Waiting: store.Count{N: 1}, OldestDue: before(time.Second)}}},
			operate.AttentionLimitShut, store.Failed, "limit api admits nothing (it is draining), and 1 run waits for it"},
		{"limit that is not known", operate.AttentionFacts{Workers: alive, Survey: store.Survey{At: at}, Limits: []store.LimitInfo{{Limit: store.Limit{Name: "api", Fault: "limit kind(9) is unknown"}}}},
			operate.AttentionLimitFault, store.Failed, "limit api cannot be applied, and admits nothing: limit kind(9) is unknown"},
		{"lock", operate.AttentionFacts{Workers: alive, Survey: store.Survey{At: at}, Locks: []lock.Record{{Name: "etl", Owner: "web-7", AcquiredAt: *before(time.Hour)}}, Waits: []lock.Wait{{Name: "etl"}}},
			operate.AttentionLockOverdue, store.Warning, "lock etl was taken by web-7 1 h ago"},
	} {
		items := operate.Attend(c.facts)
		require.Equal(t, []operate.AttentionKind{c.kind}, kindsOf(items), c.name)
		require.Equal(t, c.level, items[0].Level, c.name)
		require.Contains(t, items[0].Text, c.text, c.name)
		require.NotEmpty(t, items[0].Next, c.name)
	}
	items := operate.Attend(operate.AttentionFacts{Workers: alive, Survey: lane(func(l *store.LaneInfo) { l.OldestDue, l.Isolated = before(6*time.Minute), store.Count{N: 1} })})
	require.Equal(t, []operate.AttentionKind{operate.AttentionIsolatedWaiting, operate.AttentionOverdue}, kindsOf(items))
	require.Empty(t, operate.Attend(operate.AttentionFacts{Workers: alive, Survey: lane(func(*store.LaneInfo) {})}))
}

func TestASeriesHasNoGaps(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.now = w.now.Add(30 * time.Second)
	tally := store.Tally{Enqueued: 5, Succeeded: 90, Failed: 10}
	tally.Took[1], tally.Took[3] = 50, 50 // from 5 to 10 ms, and from 25 to 50 ms
	tally.Wait[store.Buckets-1] = 1
	w.reports("web-7", []string{"default"}, store.LaneTally{Queue: "default", Job: "mail", Tally: tally}, store.LaneTally{Queue: "slow", Job: "fax", Tally: store.Tally{Succeeded: 1}})
	w.now = w.now.Add(10 * time.Minute)
	for of, steps := range map[operate.SeriesRange]int{operate.LastHour: 60, operate.LastDay: 96, operate.LastWeek: 84, operate.LastMonth: 120, "": 60} {
		series, err := w.Series(t.Context(), operate.SeriesRequest{Range: of})
		require.NoError(t, err)
		require.Len(t, series.Steps, steps, of)
		require.Equal(t, int64(91), series.Total.Succeeded, of)
		sum := int64(0)
		for i, step := range series.Steps {
			sum += step.Succeeded
			require.Equal(t, series.Steps[0].At.Add(time.Duration(i)*time.Duration(series.Step)), step.At)
		}
		require.Equal(t, int64(91), sum, of)
		require.False(t, w.now.Before(series.Steps[steps-1].At))
		require.Less(t, w.now.Sub(series.Steps[steps-1].At), time.Duration(series.Step))
	}
	series, err := w.Series(t.Context(), operate.SeriesRequest{Queue: "default"})
	require.NoError(t, err)
	require.Equal(t, int64(90), series.Total.Succeeded)
	require.Equal(t, []time.Duration{10 * time.Millisecond, 47500 * time.Microsecond, 49500 * time.Microsecond},
		[]time.Duration{time.Duration(*series.Total.Took.P50), time.Duration(*series.Total.Took.P95), time.Duration(*series.Total.Took.P99)})
	require.Equal(t, 30*time.Minute, time.Duration(*series.Total.Wait.P50), "the last class has no end")
	require.Nil(t, series.Steps[0].Took.P50)
	_, err = w.Series(t.Context(), operate.SeriesRequest{Range: "2h"})
	require.ErrorIs(t, err, store.ErrInvalid)
}

// dies executes the run of a job that waits first, which dies.
func dies(t *testing.T, db store.Store, job, reason string) {
	t.Helper()
	heads, err := db.Heads(t.Context(), store.Serves{Queues: []string{"default"}, Jobs: []string{job}})
	require.NoError(t, err)
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: store.WorkerID{Name: "w", Instance: uuid.New()}, Duration: time.Minute, Limit: 1,
		Steps: []store.Step{{Lane: heads[0].Lane, Take: 1}}}
	claimed, err := db.Claim(t.Context(), request)
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	_, err = db.Settle(t.Context(), []store.Settlement{{Claim: request.Claim, Worker: request.Worker, Last: true,
		Runs: []store.Settled{{ID: claimed[0].ID, Outcome: store.Outcome{Kind: store.Death, Error: reason}}}}})
	require.NoError(t, err)
}

func TestProblemsAreGroupedAndChangedAsAGroup(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	o := operate.New(db, operate.Config{})
	die := func(job string, reasons ...string) (ids []store.RunID) {
		for _, reason := range reasons {
			run := store.NewRun{ID: store.NewRunID(), Job: job, Queue: "default", Args: []byte("{}"), MaxAttempts: 1}
			_, err := o.Enqueue(t.Context(), run)
			require.NoError(t, err)
			dies(t, db, job, reason)
			ids = append(ids, run.ID)
		}
		return ids
	}
	ids := die("mail", `smtp 550: "ann@example.com" unknown (id 4f3a9c2b77)`, `smtp 550: "bob@example.com" unknown (id 99a0b1c2d3)`, "panic: nil map")
	die("fax", "smtp 421: busy")
	list, err := o.Problems(t.Context(), operate.ProblemFilter{})
	require.NoError(t, err)
	require.Equal(t, store.Count{N: 4}, list.Read)
	require.Len(t, list.Groups, 3)
	group := list.Groups[2]
	require.Equal(t, []any{"mail", "smtp #: # unknown (id #)", 2, ids[1], []string{"default"}}, []any{group.Job, group.Like, group.Count, group.Newest, group.Queues})

	actor := o.As("ann")
	_, err = actor.ChangeProblem(t.Context(), store.CancelRuns, group.ID, "", nil)
	require.ErrorIs(t, err, store.ErrInvalid)
	_, err = actor.ChangeProblem(t.Context(), store.RetryRuns, "nosuch", "", nil)
	require.ErrorIs(t, err, store.ErrNotFound)
	done, err := actor.ChangeProblem(t.Context(), store.AcknowledgeRuns, group.ID, "known", nil)
	require.NoError(t, err)
	require.Equal(t, 2, done.Changed)
	list, err = o.Problems(t.Context(), operate.ProblemFilter{})
	require.NoError(t, err)
	require.Len(t, list.Groups, 2)
	list, err = o.Problems(t.Context(), operate.ProblemFilter{Acknowledged: true})
	require.NoError(t, err)
	require.Equal(t, "ann", *list.Groups[0].AcknowledgedBy)
	changes, err := o.Changes(t.Context(), store.ChangeFilter{})
	require.NoError(t, err)
	require.Len(t, changes.Changes, 1, "one row for the group")
	require.Equal(t, []any{"bulk", "acknowledge", int64(2)}, []any{changes.Changes[0].Kind, changes.Changes[0].Action, changes.Changes[0].Runs})
	require.Contains(t, string(changes.Changes[0].Detail), "known; reason like: smtp #")

	list, err = o.Problems(t.Context(), operate.ProblemFilter{Jobs: []string{"fax"}})
	require.NoError(t, err)
	done, err = actor.ChangeProblem(t.Context(), store.RetryRuns, list.Groups[0].ID, "", nil)
	require.NoError(t, err)
	require.Equal(t, 1, done.Changed)
	_, err = actor.Acknowledge(t.Context(), "", uuid.New())
	require.ErrorIs(t, err, store.ErrNotFound)
}
