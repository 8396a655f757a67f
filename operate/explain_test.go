package operate_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

var (
	explainedAt = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	explainedID = uuid.MustParse("01b5d7a0-0000-7000-8000-000000000001")
	otherID     = uuid.MustParse("01b5d7a0-0000-7000-8000-000000000002")
	web7        = uuid.MustParse("11111111-0000-4000-8000-000000000007")
)

// before and after are instants around the one of the explanation.
func before(d time.Duration) *time.Time { at := explainedAt.Add(-d); return &at }
func after(d time.Duration) *time.Time  { at := explainedAt.Add(d); return &at }

func text(s string) *string { return &s }

// serving is a worker that has room, and that serves the run.
func serving() store.WorkerInfo {
	return store.WorkerInfo{Name: "web-7", Instance: web7, State: store.Working, SeenAt: *before(9 * time.Second), SeenAgo: store.Duration(9 * time.Second),
		Presence: store.Presence{Version: "v1.4", Queues: []string{"mail"}, Jobs: []string{"invoice"}, Capacity: 30, Executing: 3, Every: store.Duration(20 * time.Second),
			Retention: store.Duration(24 * time.Hour), RetentionDead: store.Duration(7 * 24 * time.Hour)}}
}

// waiting are the facts of a run that is due, and which nothing keeps from starting.
func waiting() store.Facts {
	return store.Facts{At: explainedAt, ID: explainedID, Workers: []store.WorkerInfo{serving()}, Declared: &store.JobInfo{Name: "invoice"},
		Run: &store.Record{ID: explainedID, Job: "invoice", Queue: "mail", MaxAttempts: 3, DueAt: *before(time.Second), CreatedAt: *before(time.Minute)}}
}

// executing are the facts of a run that executes.
func executing() store.Facts {
	f := waiting()
	f.Run.State, f.Run.Attempt, f.Run.Fence, f.Run.StartedAt, f.Run.Worker = store.Running, 1, 7, before(40*time.Second), text("web-7")
	f.Lease = &store.LeaseFacts{Worker: "web-7", Instance: web7, AcquiredAt: *before(40 * time.Second), RenewedAt: *before(5 * time.Second), ExpiresAt: *after(25 * time.Second)}
	return f
}

// over makes the facts of a run that has ended.
func over(state store.State, why string) func() store.Facts {
	return func() store.Facts {
		f := waiting()
		f.Run.State, f.Run.FinishedAt, f.Run.Error = state, before(time.Hour), text(why)
		return f
	}
}

// gone are the facts of a run that is not there, and was made an hour ago.
func gone() store.Facts {
	f := waiting()
	f.Run, f.Declared, f.ID = nil, nil, madeAt(time.Hour)
	return f
}

// madeAt is the id of a run that was made so long ago.
func madeAt(ago time.Duration) (id store.RunID) {
	stamp := before(ago).UnixMilli()
	id = explainedID
	for i := range 6 {
		id[i] = byte(stamp >> (8 * (5 - i)))
	}
	return id
}

// explained are facts by what they show, in the order of the transcript.
func explained() []struct {
	name string
	make func() store.Facts
} {
	change := func(base func() store.Facts, change func(*store.Facts)) func() store.Facts {
		return func() store.Facts { f := base(); change(&f); return f }
	}
	limit := func(state store.LimitState, limitMax, inUse int) store.GateFacts {
		return store.GateFacts{Use: store.LimitUse{Limit: "tenant", Key: "acme"}, GateInfo: store.GateInfo{Key: "acme", InUse: inUse,
			Limit:   store.Limit{Name: "tenant", Kind: store.LimitSemaphore, Max: limitMax, State: state},
			Permits: []store.PermitInfo{{Owner: web7, Places: 2, Runs: []store.RunID{otherID, web7}, Worker: "web-3"}}, Waiting: store.Count{N: 2},
			Waiters: []store.Waiter{{Run: otherID, DueAt: *before(time.Minute)}, {Run: explainedID, DueAt: *before(time.Second)}}}}
	}
	limited := func(g store.GateFacts) func() store.Facts {
		return change(waiting, func(f *store.Facts) { f.Run.Limits, f.Gates = []string{"tenant=acme"}, []store.GateFacts{g} })
	}
	return []struct {
		name string
		make func() store.Facts
	}{
		{"nothing", waiting},
		{"under an earlier name", change(waiting, func(f *store.Facts) { f.Declared.Name = "bill" })},
		{"not due", change(waiting, func(f *store.Facts) { f.Run.DueAt = *after(90 * time.Minute) })},
		{"retry delay", change(waiting, func(f *store.Facts) {
			f.Run.DueAt, f.Run.Fence, f.Run.Attempt = *after(41 * time.Second), 7, 1
			f.Run.Attempts = []store.Attempt{{Number: 1, Outcome: store.Failure, Fence: 7, EndedAt: *before(time.Second), Error: text("smtp 421\nat line 3")}}
		})},
		{"misfit", change(waiting, func(f *store.Facts) {
			f.Run.DueAt, f.Run.Fence = *after(4 * time.Second), 7
			f.Run.Attempts = []store.Attempt{{Number: 1, Outcome: store.Misfit, Worker: "w1", Fence: 7, EndedAt: *before(time.Second), Error: text(`decode args: field "to" holds a number, want string`)}}
		})},
		{"snoozed", change(waiting, func(f *store.Facts) { f.Run.DueAt, f.Run.Fence = *after(41 * time.Second), 7 })},
		{"asleep", change(waiting, func(f *store.Facts) {
			f.Run.DueAt, f.Run.Fence = *after(72 * time.Hour), 7
			f.Waits = []store.StepRecord{{Name: "three days", Kind: store.StepSleep, At: *before(time.Minute), Until: f.Run.DueAt}}
		})},
		{"input with a deadline", change(waiting, func(f *store.Facts) {
			f.Run.DueAt, f.Run.Fence = *after(time.Hour), 7
			f.Waits = []store.StepRecord{{Name: "it's approved", Kind: store.StepInput, At: *before(time.Minute), Until: f.Run.DueAt}}
		})},
		{"input without a deadline", change(waiting, func(f *store.Facts) {
			f.Run.DueAt, f.Run.Fence = *after(store.MaxDelay), 7
			f.Waits = []store.StepRecord{{Name: "approved", Kind: store.StepInput, At: *before(time.Minute)}}
		})},
		{"a sleep beside an input", change(waiting, func(f *store.Facts) {
			f.Run.DueAt, f.Run.Fence = *after(time.Hour), 7
			f.Waits = []store.StepRecord{{Name: "approved", Kind: store.StepInput, At: *before(time.Minute)}, {Name: "pause", Kind: store.StepSleep, At: *before(time.Minute), Until: f.Run.DueAt}}
		})},
		{"retry delay, in spite of a wait", change(waiting, func(f *store.Facts) {
			f.Run.DueAt, f.Run.Fence, f.Run.Attempt = *after(41 * time.Second), 7, 1
			f.Run.Attempts = []store.Attempt{{Number: 1, Outcome: store.Failure, Fence: 7, EndedAt: *before(time.Second), Error: text("smtp 421")}}
			f.Waits = []store.StepRecord{{Name: "approved", Kind: store.StepInput, At: *before(time.Minute)}}
		})},
		{"retry delay, then a paused queue", change(waiting, func(f *store.Facts) {
			f.Run.DueAt = *after(41 * time.Second)
			f.Paused = &store.QueuePause{By: "ada", Since: before(2 * time.Hour)}
		})},
		{"paused, no one knows by whom", change(waiting, func(f *store.Facts) { f.Paused = &store.QueuePause{} })},
		{"no worker: never declared", change(waiting, func(f *store.Facts) { f.Workers, f.Declared = nil, nil })},
		{"no worker: other queues", change(waiting, func(f *store.Facts) { f.Workers[0].Queues = []string{"default", "slow"} })},
		{"no worker: without the job", change(waiting, func(f *store.Facts) { f.Workers[0].Jobs = []string{"fax"} })},
		{"no worker: without the job that was renamed", change(waiting, func(f *store.Facts) { f.Workers[0].Jobs, f.Declared.Name = []string{"fax"}, "bill" })},
		{"no worker: none left, of a job that was renamed", change(waiting, func(f *store.Facts) { f.Workers, f.Declared.Name = nil, "bill" })},
		{"no worker: none left", change(waiting, func(f *store.Facts) { f.Workers, f.Run.Worker = nil, text("web-2") })},
		{"workers silent", change(waiting, func(f *store.Facts) {
			f.Workers[0].State, f.Workers[0].SeenAgo = store.Silent, store.Duration(3*time.Minute)
		})},
		{"workers draining", change(waiting, func(f *store.Facts) { f.Workers[0].State = store.Draining })},
		{"workers full", change(waiting, func(f *store.Facts) { f.Workers[0].Executing = 30 })},
		{"behind others", change(waiting, func(f *store.Facts) {
			f.Lanes = []store.LaneFacts{{Queue: "mail", Job: "invoice", Ahead: store.Count{N: 600}, Ended: 100}, {Queue: "slow", Job: "fax", Ahead: store.Count{N: 5}}}
		})},
		{"behind more than can be counted", change(waiting, func(f *store.Facts) {
			f.Lanes = []store.LaneFacts{{Queue: "mail", Job: "invoice", Ahead: store.Count{N: store.FactsAhead, AtLeast: true}}}
		})},
		{"isolated", change(waiting, func(f *store.Facts) { f.Run.Isolated, f.Run.CrashCount = true, 2 })},
		{"isolated, with an idle worker", change(waiting, func(f *store.Facts) { f.Run.Isolated, f.Run.CrashCount, f.Workers[0].Executing = true, 2, 0 })},
		{"limit", limited(limit(store.LimitActive, 2, 2))},
		{"limit lowered", limited(limit(store.LimitActive, 2, 5))},
		{"limit draining", limited(limit(store.LimitDraining, 2, 2))},
		{"limit off", limited(limit(store.LimitOff, 2, 2))},
		{"limit that is not known", change(limited(limit(store.LimitActive, 2, 0)), func(f *store.Facts) {
			f.Gates[0].Limit.Kind, f.Gates[0].Limit.Fault = 9, "limit kind(9) is unknown"
		})},
		{"limits that cannot be read", change(waiting, func(f *store.Facts) { f.Run.Limits = []string{"api!someday"} })},
		{"limit, a place of its own", change(limited(limit(store.LimitActive, 2, 2)), func(f *store.Facts) { f.Gates[0].Permits[0].Owner = explainedID })},
		{"limit of a rate", change(limited(limit(store.LimitActive, 2, 0)), func(f *store.Facts) {
			f.Gates[0].Limit.Kind, f.Gates[0].NextAt, f.Gates[0].Permits = store.LimitTokenBucket, after(30*time.Second), nil
		})},
		{"limit penalized", change(limited(limit(store.LimitActive, 2, 0)), func(f *store.Facts) { f.Gates[0].NotBefore = after(time.Minute) })},
		{"row held", change(waiting, func(f *store.Facts) {
			f.Held = &store.HeldRow{PID: 4711, Application: "psql", Since: before(3 * time.Minute)}
		})},
		{"polling", change(waiting, func(f *store.Facts) { f.Workers[0].Poll = store.Duration(5 * time.Second) })},
		{"expires before it is due", change(waiting, func(f *store.Facts) { f.Run.ExpiresAt, f.Run.DueAt = after(10*time.Minute), *after(time.Hour) })},
		{"expires", change(waiting, func(f *store.Facts) { f.Run.ExpiresAt = after(10 * time.Minute) })},
		{"has expired", change(waiting, func(f *store.Facts) { f.Run.ExpiresAt = before(10 * time.Minute) })},
		{"executing", executing},
		{"executing under an earlier name", change(executing, func(f *store.Facts) { f.Declared.Name = "bill" })},
		{"cancel asked", change(executing, func(f *store.Facts) {
			f.CancelReason, f.Changes = "wrong customer", []store.Change{{Actor: "ada", Action: "cancel", At: *before(10 * time.Second)}}
		})},
		{"past its timeout, and stuck", change(executing, func(f *store.Facts) {
			f.Run.Timeout, f.Workers[0].Stuck = store.Duration(30*time.Second), 1
		})},
		{"worker silent", change(executing, func(f *store.Facts) { f.Workers[0].SeenAgo = store.Duration(2 * time.Minute) })},
		{"lease expired", change(executing, func(f *store.Facts) {
			f.Lease.ExpiresAt, f.Workers[0].Instance = *before(12 * time.Second), otherID
		})},
		{"lease expired, no one alive", change(executing, func(f *store.Facts) { f.Lease.ExpiresAt, f.Workers = *before(12 * time.Second), nil })},
		{"takeover pause", change(executing, func(f *store.Facts) {
			f.Lease.ExpiresAt, f.Workers[0].Instance, f.Workers[0].Resting = *before(12 * time.Second), otherID, store.Duration(15*time.Second)
		})},
		{"no lease", change(executing, func(f *store.Facts) { f.Lease = nil })},
		{"succeeded", over(store.Succeeded, "")},
		{"dead", over(store.Dead, "smtp 550")},
		{"dead by the crash rule", change(over(store.Dead, "4 crashes"), func(f *store.Facts) {
			f.Run.CrashCount, f.Run.Attempts = 4, []store.Attempt{{Outcome: store.Crash}}
		})},
		{"cancelled, the key is another's", change(over(store.Cancelled, "wrong customer"), func(f *store.Facts) {
			f.KeyHolder, f.Changes = &otherID, []store.Change{{Actor: "ada", Action: "cancel", At: *before(time.Hour)}}
		})},
		{"kept forever by its job", change(over(store.Succeeded, ""), func(f *store.Facts) { f.Declared.Retention = -1 })},
		{"deleted", change(gone, func(f *store.Facts) {
			f.Changes = []store.Change{{Actor: "ada", Action: "delete", At: *before(time.Hour)}}
		})},
		{"aged out", change(gone, func(f *store.Facts) { f.ID = madeAt(72 * time.Hour) })},
		{"unknown", gone},
		{"unknown, perhaps of a bulk change", change(gone, func(f *store.Facts) {
			f.BulkDeletes = []store.Change{{Actor: "ada", Action: "delete", Runs: 300, At: *before(time.Minute)}}
		})},
	}
}

// TestExplainTranscript compares what Explain says with testdata/explain.txt. Write it with
// DURABLE_UPDATE=yes.
func TestExplainTranscript(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, one := range explained() {
		e := operate.Explain(one.make())
		fmt.Fprintf(&b, "# %s\n%s\n", one.name, e.Summary)
		for _, blocker := range e.Blockers {
			fmt.Fprintf(&b, "  %s", blocker.Kind)
			if blocker.Since != nil {
				fmt.Fprintf(&b, ", since %s", blocker.Since.UTC().Format("15:04:05"))
			}
			if blocker.EndsAt != nil {
				fmt.Fprintf(&b, ", to %s", blocker.EndsAt.UTC().Format("15:04:05"))
			}
			if blocker.By != nil {
				fmt.Fprintf(&b, ", by %s", *blocker.By)
			}
			fmt.Fprintln(&b)
		}
		if e.Earliest != nil {
			fmt.Fprintf(&b, "  earliest %s, sure %v\n", e.Earliest.UTC().Format("15:04:05"), e.Sure)
		}
		for _, next := range e.Next {
			fmt.Fprintf(&b, "  → %s (%s) %s\n", next.Action, next.Role, next.Command)
		}
		fmt.Fprintln(&b)
	}
	const path = "testdata/explain.txt"
	if os.Getenv("DURABLE_UPDATE") == "yes" {
		require.NoError(t, os.MkdirAll("testdata", 0o750))
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String())
}
