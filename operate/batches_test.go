package operate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// page is a job that succeeds, or is dead after one attempt.
var page = durable.NewJob[string]("page") //nolint:gochecknoglobals // a job

// batchOf stores a batch: members that succeed, that die, and that are not due.
func batchOf(t *testing.T, db store.Store, batch store.NewBatch, args ...string) []store.RunID {
	t.Helper()
	var runs []store.NewRun
	var ids []store.RunID
	for _, arg := range args {
		var options []durable.Option
		if arg == "later" {
			options = append(options, durable.After(time.Hour))
		}
		run := page.New(arg, options...)
		run.Batch = &batch
		runs, ids = append(runs, run), append(ids, run.ID)
	}
	_, err := db.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	return ids
}

// workUntil executes pages until a batch is as it is wanted.
func workUntil(t *testing.T, db store.Store, id store.BatchID, as func(store.Batch) bool) {
	t.Helper()
	worker := durable.NewWorker(db, durable.WorkerConfig{PollInterval: 20 * time.Millisecond})
	durable.Register(worker, page, func(_ context.Context, run *durable.Run[string]) error {
		if run.Args == "dies" {
			return durable.Permanent(errors.New("smtp 550"))
		}
		return run.SetResult(run.Args)
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	require.Eventually(t, func() bool {
		b, err := db.Batch(t.Context(), id)
		return err == nil && as(b)
	}, time.Minute, 5*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

func newBatch() store.NewBatch { return store.NewBatch{ID: store.NewRunID(), Name: "pages"} }

func TestABatchIsShownWithItsFailuresAndWhatWaitsForIt(t *testing.T) {
	t.Parallel()
	db, batch := memory.New(memory.Config{}), newBatch()
	o := operate.New(db, operate.Config{Now: func() time.Time { return time.Now().Add(10 * time.Second) }})
	ids := batchOf(t, db, batch, "one", "dies", "later", "later", "later")
	waits := page.New("report", durable.After(0))
	waits.DependsOn = []store.Condition{{Want: store.WantSucceeded, Batches: []store.NewBatch{{ID: batch.ID}}}}
	_, err := db.Enqueue(t.Context(), waits)
	require.NoError(t, err)
	_, err = db.Operate(t.Context(), store.RunCommand{Action: store.CancelRuns, Runs: ids[2:3], Reason: "not needed", By: "ann"})
	require.NoError(t, err)
	workUntil(t, db, batch.ID, func(b store.Batch) bool { return b.Counts.Dead == 1 && b.Counts.Succeeded == 1 })

	shown, err := o.Batch(t.Context(), batch.ID)
	require.NoError(t, err)
	require.Equal(t, store.BatchCounts{Members: 5, Succeeded: 1, Dead: 1, Cancelled: 1}, shown.Counts)
	require.Equal(t, []any{"pages", store.BatchRunning, int64(2), true, 60}, []any{shown.Name, shown.State, shown.Unfinished, shown.Closed, shown.Percent()})
	require.NoError(t, shown.Ended())
	require.InDelta(t, 0.3, *shown.Rate, 0.15, "three in ten seconds and a little")
	require.InDelta(t, 2 / *shown.Rate, time.Duration(*shown.TimeLeft).Seconds(), 0.01)
	require.Len(t, shown.Failed, 2)
	require.Equal(t, []any{ids[1], store.Dead, "smtp 550"}, []any{shown.Failed[0].ID, shown.Failed[0].State, *shown.Failed[0].Reason}, "dead ones come first")
	require.Equal(t, []any{ids[2], store.Cancelled}, []any{shown.Failed[1].ID, shown.Failed[1].State})
	require.Equal(t, []operate.BatchWaiter{{Run: waits.ID, Job: "page", State: store.Pending, Want: store.WantSucceeded}}, shown.Waiters)

	hidden, err := o.Hiding(operate.HideTexts|operate.HideArgs).Batch(t.Context(), batch.ID)
	require.NoError(t, err)
	require.Equal(t, operate.Mask, *hidden.Failed[0].Reason)
	_, err = o.Batch(t.Context(), store.NewRunID())
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestMembersOfABatchAreListedByStateInPages(t *testing.T) {
	t.Parallel()
	db, batch := memory.New(memory.Config{}), newBatch()
	o := operate.New(db, operate.Config{})
	batchOf(t, db, batch, "one", "dies", "two", "dies", "later")
	workUntil(t, db, batch.ID, func(b store.Batch) bool { return b.Counts.Unfinished() == 1 })
	listed := func(states ...store.State) (reasons []string, pages int) {
		filter := operate.MemberFilter{Batch: batch.ID, States: states, Limit: 1}
		for {
			list, err := o.Members(t.Context(), filter)
			require.NoError(t, err)
			pages++
			for _, member := range list.Members {
				reasons = append(reasons, member.State.String()+string(member.Result))
			}
			if list.Next == nil {
				return reasons, pages
			}
			require.Len(t, list.Members, 1)
			filter.After = *list.Next
		}
	}
	all, pages := listed()
	require.Equal(t, []string{`succeeded"one"`, "dead", `succeeded"two"`, "dead", "pending"}, all)
	require.Equal(t, 5, pages)
	dead, _ := listed(store.Dead)
	require.Equal(t, []string{"dead", "dead"}, dead)
	hidden, err := o.Hiding(operate.HideArgs).Members(t.Context(), operate.MemberFilter{Batch: batch.ID})
	require.NoError(t, err)
	require.Nil(t, hidden.Members[0].Result)
	require.Equal(t, 5, hidden.Members[0].Size, "its size is shown")
	for _, limit := range []int{-1, store.LargestPage + 1} {
		_, err = o.Members(t.Context(), operate.MemberFilter{Batch: batch.ID, Limit: limit})
		require.ErrorIs(t, err, store.ErrInvalid)
	}
}

func TestBatchesAreListedByStateAndNameInPages(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	o := operate.New(db, operate.Config{})
	var ids []store.BatchID
	for range 3 {
		batch := newBatch()
		ids = append(ids, batch.ID)
		batchOf(t, db, batch, "one")
	}
	workUntil(t, db, ids[2], func(b store.Batch) bool { return b.EndedAt != nil })
	list, err := o.Batches(t.Context(), store.BatchFilter{Limit: 2})
	require.NoError(t, err)
	require.Equal(t, []store.BatchID{ids[2], ids[1]}, []store.BatchID{list.Batches[0].ID, list.Batches[1].ID})
	list, err = o.Batches(t.Context(), store.BatchFilter{Limit: 2, Before: *list.Next})
	require.NoError(t, err)
	require.Len(t, list.Batches, 1)
	require.Nil(t, list.Next)
	list, err = o.Batches(t.Context(), store.BatchFilter{Name: "no such"})
	require.NoError(t, err)
	require.Equal(t, []operate.BatchView{}, list.Batches, "an empty list is no null")
	found, err := o.FindBatch(t.Context(), strings.ToUpper(ids[1].String()[:23]))
	require.NoError(t, err)
	require.Equal(t, ids[1], found)
	_, err = o.FindBatch(t.Context(), "ffffffff")
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = o.FindBatch(t.Context(), "page")
	require.ErrorIs(t, err, store.ErrInvalid)
}

func TestABatchIsClosedAndCancelledOnBehalfOfAPerson(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	var changes []store.Change
	o := operate.New(db, operate.Config{Changed: func(c store.Change) { changes = append(changes, c) }}).As("ann")
	batch := newBatch()
	batch.OpenFor = time.Hour
	batchOf(t, db, batch, "later")
	closed, err := o.CloseBatch(t.Context(), batch.ID)
	require.NoError(t, err)
	require.True(t, closed.Closed)
	_, err = o.CloseBatch(t.Context(), batch.ID)
	require.NoError(t, err, "a repeat does nothing")
	require.Len(t, changes, 1)
	require.Equal(t, []string{"batch", batch.ID.String(), "close", "ann"}, []string{changes[0].Kind, changes[0].Subject, changes[0].Action, changes[0].Actor})

	_, err = o.CancelBatch(t.Context(), batch.ID, strings.Repeat("x", store.MaxBatchReason+1))
	require.ErrorIs(t, err, store.ErrInvalid)
	cancelled, err := o.CancelBatch(t.Context(), batch.ID, "wrong file")
	require.NoError(t, err)
	require.Equal(t, []any{true, "wrong file"}, []any{cancelled.Cancelled, *cancelled.Reason})
	_, err = db.Release(t.Context(), store.ReleaseRequest{Limit: 10})
	require.NoError(t, err)
	ended, err := o.WaitForBatch(t.Context(), batch.ID)
	require.NoError(t, err)
	require.Equal(t, store.BatchCancelled, ended.State)
	require.ErrorContains(t, ended.Ended(), "is cancelled: of 1 members 0 are dead and 1 cancelled: wrong file")
	_, err = o.CancelBatch(t.Context(), batch.ID, "")
	require.ErrorIs(t, err, store.ErrConflict, "it has ended")
	require.Len(t, changes, 2)
	audit, err := o.Changes(t.Context(), store.ChangeFilter{Kind: "batch"})
	require.NoError(t, err)
	require.Equal(t, []string{"cancel", "ann"}, []string{audit.Changes[0].Action, audit.Changes[0].Actor})
	_, err = operate.New(db, operate.Config{}).As("").CloseBatch(t.Context(), batch.ID)
	require.ErrorIs(t, err, store.ErrInvalid, "nobody has asked for it")
	for _, act := range []func(store.BatchID) error{
		func(id store.BatchID) error { _, err := o.CloseBatch(t.Context(), id); return err },
		func(id store.BatchID) error { _, err := o.CancelBatch(t.Context(), id, ""); return err },
		func(id store.BatchID) error { _, err := o.RetryBatch(t.Context(), id, "", nil); return err },
		func(id store.BatchID) error { _, err := o.StartRetryBatch(t.Context(), id, ""); return err },
	} {
		require.ErrorIs(t, act(store.NewRunID()), store.ErrNotFound)
	}
}

// TestTheDeadMembersOfABatchAreRetried: those and no others, with one row in the audit log.
func TestTheDeadMembersOfABatchAreRetried(t *testing.T) {
	t.Parallel()
	db, batch := memory.New(memory.Config{}), newBatch()
	o := operate.New(db, operate.Config{}).As("ann")
	defer o.Close()
	ids := batchOf(t, db, batch, "one", "dies", "dies", "later")
	other := newBatch()
	batchOf(t, db, other, "dies")
	_, err := o.Cancel(t.Context(), "", ids[3])
	require.NoError(t, err)
	workUntil(t, db, other.ID, func(b store.Batch) bool { return b.EndedAt != nil })
	workUntil(t, db, batch.ID, func(b store.Batch) bool { return b.EndedAt != nil })
	steps := 0
	done, err := o.RetryBatch(t.Context(), batch.ID, "the server is back", func(operate.Bulk) { steps++ })
	require.NoError(t, err)
	require.Equal(t, operate.Bulk{Seen: 2, Changed: 2}, done)
	require.Equal(t, 1, steps)
	shown, err := o.BatchSummary(t.Context(), batch.ID)
	require.NoError(t, err)
	require.Equal(t, store.BatchCounts{Members: 4, Succeeded: 1, Cancelled: 1}, shown.Counts)
	audit, err := o.Changes(t.Context(), store.ChangeFilter{Kind: "bulk"})
	require.NoError(t, err)
	require.Len(t, audit.Changes, 1)
	require.Equal(t, int64(2), audit.Changes[0].Runs)
	require.JSONEq(t, `{"reason":"the server is back","batch":"`+batch.ID.String()+`","filter":{"states":["dead"]}}`, string(audit.Changes[0].Detail))

	workUntil(t, db, batch.ID, func(b store.Batch) bool { return b.Counts.Dead == 2 })
	begun, err := o.StartRetryBatch(t.Context(), batch.ID, "again")
	require.NoError(t, err)
	require.Equal(t, batch.ID, *begun.Batch)
	require.Eventually(t, func() bool {
		status, err := o.Bulk(begun.N)
		return err == nil && status.State == operate.BulkDone && status.Progress.Changed == 2
	}, time.Minute, 5*time.Millisecond)
}

func TestExplain_SaysWhatARunWaitsForOfABatch(t *testing.T) {
	t.Parallel()
	db, batch := memory.New(memory.Config{}), newBatch()
	o := operate.New(db, operate.Config{}).As("ann")
	batch.OpenFor = time.Hour
	ids := batchOf(t, db, batch, "dies", "later")
	waits := page.New("report")
	waits.DependsOn = []store.Condition{{Want: store.WantSucceeded, Batches: []store.NewBatch{{ID: batch.ID}}}}
	_, err := db.Enqueue(t.Context(), waits)
	require.NoError(t, err)
	why := func() (kinds []operate.BlockerKind, e operate.Explanation) {
		e, err := o.Explain(t.Context(), waits.ID)
		require.NoError(t, err)
		for _, b := range e.Blockers {
			if b.Kind == operate.BlockerBatch || b.Kind == operate.BlockerBatchOpen {
				kinds = append(kinds, b.Kind)
			}
		}
		return kinds, e
	}
	kinds, e := why()
	require.Equal(t, []operate.BlockerKind{operate.BlockerBatch, operate.BlockerBatchOpen}, kinds)
	require.Contains(t, e.Summary, `it depends on batch "pages" (`+batch.ID.String()+`): 2 of 2 members unfinished`)
	require.Contains(t, e.Summary, `batch "pages" is open until it is closed, and fails in 59 min`)
	require.Subset(t, commandsOf(e), []string{"batches show " + batch.ID.String(), "batches close " + batch.ID.String()})

	workUntil(t, db, batch.ID, func(b store.Batch) bool { return b.Counts.Dead == 1 })
	_, err = o.CloseBatch(t.Context(), batch.ID)
	require.NoError(t, err)
	kinds, e = why()
	require.Equal(t, []operate.BlockerKind{operate.BlockerBatch}, kinds)
	require.Contains(t, e.Summary, "1 of 2 members unfinished, 1 dead, 0 cancelled")
	require.Contains(t, commandsOf(e), "batches retry "+batch.ID.String())
	require.Contains(t, string(e.Blockers[0].Detail), `"counts":{"members":2,"succeeded":0,"dead":1,"cancelled":0}`)

	open := newBatch()
	open.OpenFor = time.Hour
	batchOf(t, db, open, "one")
	workUntil(t, db, open.ID, func(b store.Batch) bool { return b.Counts.Unfinished() == 0 })
	waits = page.New("report")
	waits.DependsOn = []store.Condition{{Want: store.WantEnded, Batches: []store.NewBatch{{ID: open.ID}}}}
	_, err = db.Enqueue(t.Context(), waits)
	require.NoError(t, err)
	kinds, e = why()
	require.Equal(t, []operate.BlockerKind{operate.BlockerBatchOpen}, kinds, "only that is left")
	require.Contains(t, e.Summary, "and none of its members is unfinished")
	require.NotEmpty(t, ids)
}
