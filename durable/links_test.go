package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/store"
)

type parcel struct{ Order int }

var (
	trip   = durable.NewJob[order]("trip", durable.MaxAttempts(3), durable.Retry(durable.Fixed(time.Minute)))
	ship   = durable.Returning[string](durable.NewJob[parcel]("ship", durable.MaxAttempts(2), durable.Retry(durable.Fixed(time.Minute))))
	notify = durable.NewJob[parcel]("notify")
)

// family is what the handlers of a test do, and how often they were executed.
type family struct {
	parent, child, letters atomic.Int64

	do    func(ctx context.Context, run *durable.Run[order]) error
	ships func(n int64, args parcel) (string, error)
}

func (f *family) register(w *durable.Worker) {
	durable.Register(w, trip, func(ctx context.Context, run *durable.Run[order]) error {
		f.parent.Add(1)
		return f.do(ctx, run)
	})
	durable.RegisterReturning(w, ship, func(_ context.Context, run *durable.Run[parcel]) (string, error) {
		n := f.child.Add(1)
		if f.ships == nil {
			return fmt.Sprint("number ", run.Args.Order), nil
		}
		return f.ships(n, run.Args)
	})
	durable.Register(w, notify, func(context.Context, *durable.Run[parcel]) error { f.letters.Add(1); return nil })
}

// run executes a test of a family in virtual time, with the parent enqueued.
func (f *family) run(t *testing.T, test func(t *testing.T, kit *durabletest.Kit, id durable.RunID)) {
	t.Helper()
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(f.register)
		receipt, err := trip.Enqueue(t.Context(), kit.Client, order{Total: 7})
		require.NoError(t, err)
		test(t, kit, receipt.ID)
	})
}

func TestCall_GivesTheResultOfTheChildAndIsExecutedOnce(t *testing.T) {
	var f family
	var got []string
	f.do = func(ctx context.Context, run *durable.Run[order]) error {
		first, err := ship.Call(ctx, run, "first", parcel{run.Args.Total})
		if err != nil {
			return err
		}
		second, err := ship.Call(ctx, run, "second", parcel{8})
		if err != nil {
			return err
		}
		if got = append(got, first+", "+second); len(got) < 2 {
			return errBoom
		}
		return notify.Start(ctx, run, "receipt", parcel{run.Args.Total})
	}
	f.run(t, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
		kit.RunAll()
		require.Equal(t, []string{"number 7, number 8", "number 7, number 8"}, got)
		require.EqualValues(t, 4, f.parent.Load(), "one execution for each wait, one that fails, one that succeeds")
		require.EqualValues(t, 2, f.child.Load())
		require.EqualValues(t, 1, f.letters.Load())
		require.Equal(t, durable.Succeeded, recordOf(t, kit, id).State)
		require.Equal(t, durable.Succeeded, recordOf(t, kit, durable.IDFrom(id, "first")).State)
	})
}

func TestCall_OfADeadChildIsFinalUntilBothAreRetried(t *testing.T) {
	var f family
	f.ships = func(n int64, _ parcel) (string, error) {
		if n == 1 {
			return "", durable.Permanent(errBoom)
		}
		return "sent", nil
	}
	var failed []error
	f.do = func(ctx context.Context, run *durable.Run[order]) error {
		_, err := ship.Call(ctx, run, "ship", parcel{1})
		if durable.Final(err) {
			failed = append(failed, err)
		}
		return err
	}
	f.run(t, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
		kit.RunAll()
		require.Len(t, failed, 1)
		ended, is := errors.AsType[*durable.EndedError](failed[0])
		require.True(t, is)
		require.Equal(t, durable.IDFrom(id, "ship"), ended.ID)
		require.Equal(t, durable.Dead, ended.State)
		require.Contains(t, failed[0].Error(), "boom")
		require.Equal(t, durable.Dead, recordOf(t, kit, id).State, "what was not handled is dead")

		_, err := kit.Store.Operate(t.Context(), store.RunCommand{Action: store.RetryRuns, Runs: []store.RunID{ended.ID, id}, By: "ann"})
		require.NoError(t, err)
		kit.RunAll()
		require.Equal(t, durable.Succeeded, recordOf(t, kit, id).State)
		require.EqualValues(t, 2, f.child.Load())
	})
}

func TestCallAll_GivesTheResultsOfThoseThatSucceeded(t *testing.T) {
	var f family
	f.ships = func(_ int64, args parcel) (string, error) {
		if args.Order == 1 {
			return "", durable.Permanent(errBoom)
		}
		return fmt.Sprint(args.Order), nil
	}
	f.do = func(ctx context.Context, run *durable.Run[order]) error {
		results, err := ship.CallAll(ctx, run, "parcels", []parcel{{0}, {1}, {2}})
		failed, is := errors.AsType[*durable.CallError](err)
		if !is {
			return err
		}
		require.Equal(t, []string{"0", "", "2"}, results)
		require.Len(t, failed.Failed, 1)
		require.Equal(t, 1, failed.Failed[0].Index)
		return nil
	}
	f.run(t, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
		kit.RunAll()
		require.Equal(t, durable.Succeeded, recordOf(t, kit, id).State)
		require.EqualValues(t, 2, f.parent.Load(), "woken once, by the last")
		require.EqualValues(t, 3, f.child.Load())
	})
}

func TestCall_InParallelBranchesWaitsForAll(t *testing.T) {
	var f family
	var sum [2]string
	f.do = func(ctx context.Context, run *durable.Run[order]) error {
		branch := func(i int) func(ctx context.Context) error {
			return func(ctx context.Context) (err error) {
				sum[i], err = ship.Call(ctx, run, fmt.Sprint("branch ", i), parcel{i})
				return err
			}
		}
		return durable.Parallel(ctx, run, branch(0), branch(1))
	}
	f.run(t, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
		kit.RunAll()
		require.Equal(t, durable.Succeeded, recordOf(t, kit, id).State)
		require.Equal(t, [2]string{"number 0", "number 1"}, sum)
		require.LessOrEqual(t, f.parent.Load(), int64(3))
	})
}

func TestCall_IsCancelledWithItsParent(t *testing.T) {
	var f family
	f.do = func(ctx context.Context, run *durable.Run[order]) error {
		_, err := ship.Call(ctx, run, "ship", parcel{1}, durable.After(time.Hour))
		return err
	}
	f.run(t, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
		kit.RunDue()
		child := durable.IDFrom(id, "ship")
		require.Equal(t, durable.Pending, recordOf(t, kit, child).State)
		_, err := kit.Store.Operate(t.Context(), store.RunCommand{Action: store.CancelRuns, Runs: []store.RunID{id}, By: "ann", Reason: "no"})
		require.NoError(t, err)
		kit.RunAll()
		record := recordOf(t, kit, child)
		require.Equal(t, durable.Cancelled, record.State)
		require.Equal(t, "its parent was cancelled", *record.Error)
		require.Zero(t, f.child.Load())
	})
}

func TestCall_RefusesWhatItCannotKeep(t *testing.T) {
	var f family
	var errs []error
	more := 0
	f.do = func(ctx context.Context, run *durable.Run[order]) error {
		_, tooMany := ship.CallAll(ctx, run, "many", make([]parcel, store.MaxSources+1))
		_, keyed := ship.Call(ctx, run, "keyed", parcel{1}, durable.Unique("7"))
		_, depends := ship.Call(ctx, run, "depends", parcel{1}, durable.DependsOn(durable.OnEnd(run.ID)))
		errs = []error{tooMany, keyed, depends}
		if none, err := ship.CallAll(ctx, run, "none", nil); err != nil || len(none) != 0 {
			return fmt.Errorf("a call of no children: %v, %w", none, err)
		}
		_, err := ship.CallAll(ctx, run, "changed", make([]parcel, 2+more))
		more = 1
		if errors.Is(err, durable.ErrInvalid) {
			errs = append(errs, err)
			return nil
		}
		return err
	}
	f.run(t, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
		kit.RunAll()
		require.Equal(t, durable.Succeeded, recordOf(t, kit, id).State)
		require.Len(t, errs, 4)
		for _, err := range errs {
			require.ErrorIs(t, err, durable.ErrInvalid)
		}
		require.ErrorContains(t, errs[3], "made for 2 children, and now for 3")
	})
}

type following struct{ Source durable.RunID }

var report = durable.NewJob[following]("report")

func TestDependsOn_IsExecutedAfterItsSourcesWithTheirResults(t *testing.T) {
	var said []string
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(func(w *durable.Worker) {
			durable.RegisterReturning(w, ship, func(context.Context, *durable.Run[parcel]) (string, error) {
				said = append(said, "ship")
				return "number 7", nil
			})
			durable.Register(w, report, func(ctx context.Context, run *durable.Run[following]) error {
				number, err := ship.ResultOf(ctx, run, run.Args.Source)
				said = append(said, "report "+number)
				return err
			})
		})
		first := ship.New(parcel{7}, durable.After(time.Hour))
		then := report.New(following{first.ID}, durable.DependsOn(durable.OnSuccess(first.ID)))
		failed := report.New(following{first.ID}, durable.DependsOn(durable.OnFailure(first.ID)))
		last := report.New(following{first.ID}, durable.DependsOn(durable.OnEnd(then.ID)))
		_, err := kit.Client.Enqueue(t.Context(), last, failed, then, first)
		require.NoError(t, err)
		kit.RunAll()
		require.Equal(t, []string{"ship", "report number 7", "report number 7"}, said)
		require.Equal(t, durable.Cancelled, recordOf(t, kit, failed.ID).State)
		require.Contains(t, *recordOf(t, kit, failed.ID).Error, "has succeeded")
	})
}
