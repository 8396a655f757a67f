package operate_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/observe/events"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// changes notes what is passed on.
type changes struct {
	mu   sync.Mutex
	some []store.Change
}

func (c *changes) note(change store.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.some = append(c.some, change)
}

// taken are the changes since the last call, without their instants.
func (c *changes) taken() (some []store.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range c.some {
		change.At = time.Time{}
		some = append(some, change)
	}
	c.some = nil
	return some
}

// TestEachAuditedVerbIsPassedOn: once, with the kind, the subject, the action and the actor
// that the audit log has.
func TestEachAuditedVerbIsPassedOn(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	passed := &changes{}
	operator := operate.New(db, operate.Config{Locks: db.Locks(), Changed: passed.note})
	t.Cleanup(operator.Close)
	o, ctx := operator.As("ann@192.0.2.7 (token)"), t.Context()
	job := durable.NewJob[int]("mail")
	enqueue := func() store.RunID {
		made, err := o.Enqueue(ctx, job.New(1))
		require.NoError(t, err)
		return made.ID
	}
	run, other := enqueue(), enqueue()
	schedule := store.Schedule{Name: "s", Rule: store.Every(3600e9), Job: "mail", Queue: "default", MaxAttempts: 1, Args: []byte("1")}
	locker := lock.NewLocker(db.Locks(), lock.LockerConfig{Owner: "w"})
	_, err := locker.TryAcquire(ctx, "reindex", lock.Terms{Terms: lease.Terms{Duration: time.Hour}})
	require.NoError(t, err)
	limit := store.Limit{Name: "github", Kind: store.LimitSemaphore, Max: 5}
	saved := schedule
	saved.Generation, saved.Args = 1, []byte("2")
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"cancel", func() error { _, err := o.Cancel(ctx, "why", run); return err }},
		{"retry", func() error { _, err := o.Retry(ctx, "", run); return err }},
		{"rerun", func() error { _, err := o.Rerun(ctx, run, nil); return err }},
		{"delete", func() error { _, err := o.Delete(ctx, "", run); return err }},
		{"cancel all", func() error {
			_, err := o.CancelAll(ctx, store.Filter{IDs: []store.RunID{other}}, "", nil)
			return err
		}},
		{"pause a queue", func() error { _, err := o.PauseQueue(ctx, "default"); return err }},
		{"resume a queue", func() error { _, err := o.ResumeQueue(ctx, "default"); return err }},
		{"cap a queue", func() error { _, err := o.CapQueue(ctx, "default", 3); return err }},
		{"uncap a queue", func() error { _, err := o.UncapQueue(ctx, "default"); return err }},
		{"create a schedule", func() error { _, err := o.SaveSchedule(ctx, schedule); return err }},
		{"edit it", func() error { _, err := o.SaveSchedule(ctx, saved); return err }},
		{"pause it", func() error { return o.PauseSchedule(ctx, "s") }},
		{"resume it", func() error { return o.ResumeSchedule(ctx, "s") }},
		{"run it", func() error { _, err := o.RunSchedule(ctx, "s", store.OverlapAllow); return err }},
		{"delete it", func() error { _, err := o.DeleteSchedule(ctx, "s"); return err }},
		{"make a limit", func() error { _, err := o.SetLimit(ctx, limit); return err }},
		{"drain it", func() error { _, err := o.ChangeLimit(ctx, "github", store.DrainLimit); return err }},
		{"resume the limit", func() error { _, err := o.ChangeLimit(ctx, "github", store.ResumeLimit); return err }},
		{"delete the limit", func() error { _, err := o.ChangeLimit(ctx, "github", store.DeleteLimit); return err }},
	} {
		require.NoError(t, step.do(), step.name)
		list, err := o.Changes(ctx, store.ChangeFilter{Limit: 1})
		require.NoError(t, err)
		audited, some := list.Changes[0], passed.taken()
		require.Len(t, some, 1, step.name)
		require.Equal(t, []any{audited.Kind, audited.Subject, audited.Action, audited.Actor, audited.Runs},
			[]any{some[0].Kind, some[0].Subject, some[0].Action, some[0].Actor, some[0].Runs}, step.name)
	}
	_, err = o.ReleaseLock(ctx, "reindex", 0, "its host is gone")
	require.NoError(t, err)
	require.Equal(t, []store.Change{{Actor: o.By(), Kind: "lock", Subject: "reindex, slot 0", Action: "release", Detail: []byte(`{"reason":"its host is gone"}`)}}, passed.taken())

	_, err = o.Cancel(ctx, "", store.NewRunID())
	require.Error(t, err)
	_, err = o.Cancel(ctx, "", other)
	require.NoError(t, err)
	require.Error(t, o.PauseSchedule(ctx, "none"))
	_, err = o.ReleaseLock(ctx, "reindex", 0, "again")
	require.Error(t, err)
	require.Empty(t, passed.taken(), "what was refused, or changed nothing, is no change")
}

// TestDeadRunsThatAreChangedArePassedOn has a group of problems, without the texts of errors.
func TestDeadRunsThatAreChangedArePassedOn(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	stream := events.New(events.SinkFunc(func(context.Context, events.Batch) error { return nil }), events.Config{Kinds: []events.Kind{events.OperatorChanged}})
	passed := &changes{}
	o := operate.New(db, operate.Config{Changed: func(c store.Change) { passed.note(c); stream.Changed(c) }}).As("ann")
	job := durable.NewJob[int]("mail", durable.MaxAttempts(1))
	worker := durable.NewWorker(db, durable.WorkerConfig{})
	durable.Register(worker, job, func(context.Context, *durable.Run[int]) error { return errors.New("canary 7") })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	for range 2 {
		made, err := o.Enqueue(t.Context(), job.New(1))
		require.NoError(t, err)
		_, err = o.Wait(t.Context(), made.ID)
		require.NoError(t, err)
	}
	stop()
	require.NoError(t, <-ended)
	list, err := o.Problems(t.Context(), operate.ProblemFilter{})
	require.NoError(t, err)
	_, err = o.ChangeProblem(t.Context(), store.AcknowledgeRuns, list.Groups[0].ID, "seen", nil)
	require.NoError(t, err)
	some := passed.taken()
	require.Len(t, some, 1)
	require.Equal(t, []any{"bulk", "acknowledge", int64(2), `{"reason":"seen"}`}, []any{some[0].Kind, some[0].Action, some[0].Runs, string(some[0].Detail)})
	require.Equal(t, 1, stream.Totals().Waiting)
}
