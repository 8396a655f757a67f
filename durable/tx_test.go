package durable_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

func (s *scene) transaction() *memory.Tx { return s.store.Store.(*memory.Store).Begin() }

func TestCompleteIn_WorkerAsksTheStoreWhatBecameOfTheRun(t *testing.T) {
	for name, story := range map[string]struct {
		end      func(tx *memory.Tx) error // of the first attempt
		attempts int
		said     string // in the log
	}{
		"committed":                   {func(tx *memory.Tx) error { return tx.Commit() }, 1, "in=\"the handler's transaction\""},
		"rolled back":                 {func(tx *memory.Tx) error { tx.Rollback(); return nil }, 2, "attempt failed, will be retried"},
		"never ended":                 {func(*memory.Tx) error { return nil }, 2, "not committed"},
		"committed and failed":        {func(tx *memory.Tx) error { return errors.Join(tx.Commit(), errBoom) }, 1, "failed after CompleteIn"},
		"rolled back and failed":      {func(tx *memory.Tx) error { tx.Rollback(); return errBoom }, 2, "boom"},
		"committed and asked to wait": {func(tx *memory.Tx) error { return errors.Join(tx.Commit(), durable.Snooze(time.Hour)) }, 1, "run ended"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				job := durable.NewJob[letter]("mail", durable.Retry(durable.Fixed(time.Second)))
				w := s.worker(durable.WorkerConfig{})
				durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
					require.NoError(t, run.SetResult(run.Attempt))
					tx := s.transaction()
					require.NoError(t, run.Guard(ctx, tx))
					require.NoError(t, run.CompleteIn(ctx, tx))
					if run.Attempt == 1 {
						return story.end(tx)
					}
					return tx.Commit()
				})
				stop := s.begin(w)
				id := s.enqueue(job.New(letter{}))
				s.pass(10 * time.Second)
				r := s.record(id)
				require.Equal(t, durable.Succeeded, r.State)
				require.Equal(t, story.attempts, r.Attempt)
				require.Contains(t, s.log.String(), story.said)
				if story.attempts == 1 {
					require.NotContains(t, s.log.String(), "will be retried")
				}
				require.NoError(t, stop())
			})
		})
	}
}

// What is said before CompleteIn is kept with the attempt, in the transaction's
// own statement; what comes after it is not, and is not lost without a word.
func TestCompleteIn_KeepsWhatWasSaidBeforeIt(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.Retry(durable.Fixed(time.Second)))
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
			run.Log().Info("before", "attempt", run.Attempt)
			require.NoError(t, run.SetResult("first"))
			for range 2 { // a handler that begins its transaction again
				tx := s.transaction()
				require.NoError(t, run.CompleteIn(ctx, tx))
				tx.Rollback()
				require.NoError(t, run.SetResult("again"))
			}
			tx := s.transaction()
			require.NoError(t, run.CompleteIn(ctx, tx))
			require.NoError(t, tx.Commit())
			run.Log().Info("after")
			if run.Args.To == "late" {
				return run.SetResult("late")
			}
			return nil
		})
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		require.NotContains(t, s.log.String(), "is not stored")
		late := s.enqueue(job.New(letter{To: "late"}))
		s.pass(time.Second)
		require.Contains(t, s.log.String(), "the result set after CompleteIn is not stored")
		for _, r := range []durable.Record{s.record(id), s.record(late)} {
			require.Equal(t, `"again"`, string(r.Result))
			require.Len(t, r.Attempts, 1)
			require.Equal(t, store.Success, r.Attempts[0].Outcome)
			require.Contains(t, *r.Attempts[0].Log, "msg=before attempt=1")
			require.NotContains(t, *r.Attempts[0].Log, "after")
			require.Equal(t, *r.Worker, r.Attempts[0].Worker)
		}
		require.NoError(t, stop())
	})
}

// A run that is completed in a transaction is a success to hooks, and a waiter
// is woken when the worker has seen that it has landed.
func TestCompleteIn_IsASuccessToHooks(t *testing.T) {
	for name, story := range map[string]struct {
		commit  bool
		noticed string
		settled observe.RunVerdict
	}{
		"committed":   {true, "executed mail: success ", observe.RunVerdict{Outcome: store.Success, Verdict: store.AlreadyApplied}},
		"rolled back": {false, "executed mail: success ", observe.RunVerdict{Outcome: store.Death, Verdict: store.Applied}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				book := &diary{}
				job := durable.NewJob[letter]("mail", durable.MaxAttempts(1))
				w := s.worker(durable.WorkerConfig{Hooks: book.hooks()})
				durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
					time.Sleep(time.Second) //nolint:forbidigo // virtual time: the waiter waits
					tx := s.transaction()
					require.NoError(t, run.CompleteIn(ctx, tx))
					if !story.commit {
						tx.Rollback()
						return nil
					}
					return tx.Commit()
				})
				stop := s.begin(w)
				began := time.Now()
				id := s.enqueue(job.New(letter{}))
				_, err := durable.NewClient(s.store).Wait(t.Context(), id)
				require.NoError(t, err)
				require.Less(t, time.Since(began), 1100*time.Millisecond, "woken")
				require.NoError(t, stop())
				require.Contains(t, book.text(), story.noticed)
				require.Len(t, book.settled, 1)
				require.Equal(t, story.settled.Outcome, book.settled[0].Outcome)
				require.Equal(t, story.settled.Verdict, book.settled[0].Verdict)
			})
		})
	}
}

func TestRun_EnqueuesUnderItsClaim(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job, child := durable.NewJob[letter]("mail"), durable.NewJob[letter]("child")
		w := s.worker(durable.WorkerConfig{})
		var late error
		returned := make(chan struct{})
		durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
			if run.CrashCount > 0 {
				return nil
			}
			defer close(returned)
			receipt, err := child.Enqueue(ctx, run, letter{To: "eve"})
			require.NoError(t, err)
			require.False(t, receipt.Existing)
			_, err = child.Enqueue(ctx, run, letter{}, durable.Priority(99))
			require.ErrorIs(t, err, durable.ErrInvalid)
			s.store.cutBefore("Renew", -1)
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), lease.ErrLost)
			time.Sleep(time.Minute) //nolint:forbidigo // virtual time: until the other worker has reclaimed the run
			_, err = s.store.Reclaim(context.WithoutCancel(ctx), store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
			require.NoError(t, err)
			_, late = child.Enqueue(context.WithoutCancel(ctx), run, letter{To: "adam"})
			return ctx.Err()
		})
		stop := s.begin(w)
		s.enqueue(job.New(letter{}))
		s.pass(2 * time.Minute)
		<-returned
		require.ErrorIs(t, late, lease.ErrLost)
		page, err := s.store.Runs(t.Context(), durable.Filter{Jobs: []string{"child"}})
		require.NoError(t, err)
		require.Len(t, page.Runs, 1)
		require.NoError(t, stop())
	})
}

// The memory store's transaction finds out at its commit that it came too late.
func TestMemoryTx_CommitIsRefusedWhenTheRunIsLost(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		db := s.store.Store.(*memory.Store)
		run := durable.NewJob[letter]("mail").New(letter{})
		_, err := db.Enqueue(t.Context(), run)
		require.NoError(t, err)
		claim := lease.NewClaimID()
		_, err = db.Claim(t.Context(), store.ClaimRequest{Claim: claim, Duration: time.Second, Limit: 1, Steps: []store.Step{{Lane: 1, Take: 1}}})
		require.NoError(t, err)
		tx, other := db.Begin(), durable.NewJob[letter]("mail").New(letter{})
		_, err = tx.Enqueue(t.Context(), other)
		require.NoError(t, err)
		require.NoError(t, tx.Complete(t.Context(), store.Holder{Run: run.ID, Claim: claim}, store.Completion{}))
		s.pass(time.Minute)
		_, err = db.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 1})
		require.NoError(t, err)
		require.ErrorIs(t, tx.Commit(), lease.ErrLost)
		require.Equal(t, durable.Pending, s.record(run.ID).State)
		_, err = db.Run(t.Context(), other.ID)
		require.ErrorIs(t, err, durable.ErrNotFound)
	})
}
