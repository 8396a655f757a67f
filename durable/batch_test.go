package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/store"
)

func TestBatch_CallsBackOnceWhenAllHaveEnded(t *testing.T) {
	var f family
	f.ships = func(_ int64, args parcel) (string, error) {
		if args.Order == 3 {
			return "", durable.Permanent(errBoom)
		}
		return "sent", nil
	}
	f.do = func(context.Context, *durable.Run[order]) error { return nil }
	f.run(t, func(t *testing.T, kit *durabletest.Kit, _ durable.RunID) {
		batch := durable.NewBatch("parcels")
		var runs []durable.NewRun
		for i := range 5 {
			runs = append(runs, ship.New(parcel{i}, durable.InBatch(batch)))
		}
		done := notify.New(parcel{}, durable.DependsOn(batch.OnSuccess()))
		bad := notify.New(parcel{}, durable.DependsOn(batch.OnFailure()))
		_, err := kit.Client.Enqueue(t.Context(), append(runs, done, bad)...)
		require.NoError(t, err)
		kit.RunAll()
		got, err := kit.Client.Batch(t.Context(), batch.ID())
		require.NoError(t, err)
		require.Equal(t, store.BatchFailed, got.State)
		require.Equal(t, store.BatchCounts{Members: 5, Succeeded: 4, Dead: 1}, got.Counts)
		require.EqualValues(t, 1, f.letters.Load(), "the failure is known, the success is not")
		require.Equal(t, durable.Pending, recordOf(t, kit, done.ID).State, "a dead member holds it")

		f.ships = nil
		_, err = kit.Store.Operate(t.Context(), store.RunCommand{Action: store.RetryRuns, Runs: []store.RunID{runs[3].ID}, By: "ann"})
		require.NoError(t, err)
		kit.RunAll()
		require.Equal(t, durable.Succeeded, recordOf(t, kit, done.ID).State)
		require.EqualValues(t, 2, f.letters.Load())
	})
}

func TestFanOut_AddsOnceAndWaitsForAll(t *testing.T) {
	const pages = 2500
	var f family
	executions := 0
	var results []string
	var counts store.BatchCounts
	f.do = func(ctx context.Context, run *durable.Run[order]) error {
		executions++
		batch := run.NewBatch("pages")
		if err := ship.FanOut(ctx, run, batch, pages, func(i int) parcel { return parcel{i} }); err != nil {
			return err
		}
		if executions == 1 {
			return errBoom // what was added stays
		}
		var err error
		if counts, err = batch.Wait(ctx); err != nil {
			return err
		}
		results = nil
		for result, err := range ship.Results(ctx, run, batch) {
			if err != nil {
				return err
			}
			results = append(results, result)
		}
		return nil
	}
	f.run(t, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
		kit.RunAll()
		require.Equal(t, durable.Succeeded, recordOf(t, kit, id).State)
		require.Equal(t, store.BatchCounts{Members: pages, Succeeded: pages}, counts)
		require.EqualValues(t, pages, f.child.Load())
		require.Len(t, results, pages)
		require.Equal(t, "number 0", results[0])
		require.Equal(t, fmt.Sprint("number ", pages-1), results[pages-1])
		require.Equal(t, 3, executions, "one that fails, one that parks, one that succeeds")
	})
}

func TestFanOut_KilledAtEachStepAddsOnce(t *testing.T) {
	for n := range 4 {
		t.Run(fmt.Sprint("after ", n, " steps"), func(t *testing.T) {
			var f family
			f.do = func(ctx context.Context, run *durable.Run[order]) error {
				batch := run.NewBatch("pages")
				if err := ship.FanOut(ctx, run, batch, 7, func(i int) parcel { return parcel{i} }); err != nil {
					return err
				}
				if err := notify.FanOut(ctx, run, batch, 3, func(i int) parcel { return parcel{i} }); err != nil {
					return err
				}
				counts, err := batch.Wait(ctx)
				if err != nil {
					return err
				}
				return run.SetResult(counts)
			}
			f.run(t, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
				if n > 0 {
					kit.CrashAfter(n)
				}
				kit.RunAll()
				record := recordOf(t, kit, id)
				require.Equal(t, durable.Succeeded, record.State)
				require.JSONEq(t, `{"members":10,"succeeded":10,"dead":0,"cancelled":0}`, string(record.Result))
				require.EqualValues(t, 7, f.child.Load())
				require.EqualValues(t, 3, f.letters.Load())
			})
		})
	}
}

func TestOwnBatch_WaitCountsWhatFailed(t *testing.T) {
	var f family
	f.ships = func(_ int64, args parcel) (string, error) {
		if args.Order%2 == 1 {
			return "", durable.Permanent(errBoom)
		}
		return "sent", nil
	}
	var failed []int
	f.do = func(ctx context.Context, run *durable.Run[order]) error {
		batch := run.NewBatch("pages")
		if err := ship.FanOut(ctx, run, batch, 4, func(i int) parcel { return parcel{i} }); err != nil {
			return err
		}
		if _, err := batch.Wait(ctx); err != nil {
			return err
		}
		failed = nil
		i := 0
		for _, err := range ship.Results(ctx, run, batch) {
			if ended, is := errors.AsType[*durable.EndedError](err); is && ended.State == durable.Dead {
				failed = append(failed, i)
			}
			i++
		}
		return nil
	}
	f.run(t, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
		kit.RunAll()
		require.Equal(t, durable.Succeeded, recordOf(t, kit, id).State)
		require.Equal(t, []int{1, 3}, failed)
	})
}

func TestOwnBatch_MisuseIsRefused(t *testing.T) {
	for what, do := range map[string]func(ctx context.Context, run *durable.Run[order]) error{
		"keys in a fan-out": func(ctx context.Context, run *durable.Run[order]) error {
			return ship.FanOut(ctx, run, run.NewBatch("a"), 1, func(int) parcel { return parcel{} }, durable.Unique("x"))
		},
		"a batch without a name": func(ctx context.Context, run *durable.Run[order]) error {
			return ship.FanOut(ctx, run, run.NewBatch(""), 1, func(int) parcel { return parcel{} })
		},
		"a negative number": func(ctx context.Context, run *durable.Run[order]) error {
			return ship.FanOut(ctx, run, run.NewBatch("a"), -1, func(int) parcel { return parcel{} })
		},
		"another number": func(ctx context.Context, run *durable.Run[order]) error {
			err := ship.FanOut(ctx, run, run.NewBatch("a"), run.Attempt, func(int) parcel { return parcel{} })
			if err == nil && run.Attempt == 1 {
				return errBoom
			}
			return err
		},
		"an open batch of a handler": func(ctx context.Context, run *durable.Run[order]) error {
			return ship.FanOut(ctx, run, run.NewBatch("a", durable.Open(time.Hour)), 1, func(int) parcel { return parcel{} })
		},
		"results before the runs": func(ctx context.Context, run *durable.Run[order]) error {
			for _, err := range ship.Results(ctx, run, run.NewBatch("a")) {
				return err
			}
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			var f family
			var got error
			f.do = func(ctx context.Context, run *durable.Run[order]) error {
				got = do(ctx, run)
				return got
			}
			f.run(t, func(t *testing.T, kit *durabletest.Kit, _ durable.RunID) {
				kit.RunAll()
				require.ErrorIs(t, got, durable.ErrInvalid)
			})
		})
	}
}

func TestBatch_MembersAddMembers(t *testing.T) {
	var f family
	f.do = func(ctx context.Context, run *durable.Run[order]) error {
		if run.Args.Total == 0 {
			return nil
		}
		_, err := trip.Enqueue(ctx, run, order{Total: run.Args.Total - 1}, durable.InBatch(run.Batch()))
		return err
	}
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(f.register)
		batch := durable.NewBatch("walk")
		done := notify.New(parcel{}, durable.DependsOn(batch.OnSuccess()))
		_, err := kit.Client.Enqueue(t.Context(), trip.New(order{Total: 5}, durable.InBatch(batch)), done)
		require.NoError(t, err)
		kit.RunAll()
		got, err := kit.Client.WaitBatch(t.Context(), batch.ID())
		require.NoError(t, err)
		require.Equal(t, store.BatchCounts{Members: 6, Succeeded: 6}, got.Counts)
		require.EqualValues(t, 1, f.letters.Load())
	})
}

func TestBatch_OpenClosedAndCancelled(t *testing.T) {
	var f family
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(f.register)
		batch := durable.NewBatch("mails", durable.Open(time.Hour), durable.FailFast(), durable.EndsWithin(48*time.Hour))
		for i := range 3 {
			_, err := ship.Enqueue(t.Context(), kit.Client, parcel{i}, durable.InBatch(batch), durable.After(24*time.Hour))
			require.NoError(t, err)
		}
		require.NoError(t, kit.Client.CloseBatch(t.Context(), batch.ID()))
		_, err := ship.Enqueue(t.Context(), kit.Client, parcel{4}, durable.InBatch(batch))
		require.ErrorIs(t, err, durable.ErrConflict)
		require.NoError(t, kit.Client.CancelBatch(t.Context(), batch.ID(), "wrong text"))
		kit.RunDue()
		got, err := kit.Client.Batch(t.Context(), durable.BatchByID(batch.ID()).ID())
		require.NoError(t, err)
		require.Equal(t, store.BatchCancelled, got.State)
		require.Equal(t, "wrong text", got.Reason)
		require.Zero(t, f.child.Load())
		_, err = notify.Enqueue(t.Context(), kit.Client, parcel{}, durable.DependsOn(durable.BatchByID(store.NewRunID()).OnEnd()))
		require.ErrorIs(t, err, durable.ErrNotFound)
		page, err := kit.Store.Members(t.Context(), batch.ID(), store.RunID{}, 10)
		require.NoError(t, err)
		require.True(t, slices.IndexFunc(page.Members, func(m store.RunOutcome) bool { return m.State != durable.Cancelled || m.Reason != "wrong text" }) < 0, page)
	})
}
