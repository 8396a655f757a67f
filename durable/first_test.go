package durable_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
)

const day = 24 * time.Hour

// decide waits for an approval, a child and an instant, and continues with what comes first.
func decide(f *family, firsts *[]string, then func(ctx context.Context, run *durable.Run[order], first string) error) {
	f.do = func(ctx context.Context, run *durable.Run[order]) error {
		first, err := durable.First(ctx, run, "decision",
			durable.WaitInput("approved", 0), ship.WaitCall("ship", parcel{1}), durable.WaitSleep("deadline", 3*day))
		if err != nil {
			return err
		}
		if *firsts = append(*firsts, first); len(*firsts) == 1 {
			return errBoom // what was first is recorded: the next execution gets it again
		}
		return then(ctx, run, first)
	}
}

// never has a child take until the test is over.
func never(int64, parcel) (string, error) { return "", durable.Snooze(30 * day) }

func TestFirst_OfAnInputAChildAndAnInstant(t *testing.T) {
	for _, one := range []struct {
		name, want string
		ships      func(int64, parcel) (string, error)
		come       func(t *testing.T, kit *durabletest.Kit, id durable.RunID)
		then       func(ctx context.Context, run *durable.Run[order]) error
		parents    int64
	}{
		{"the input comes first", "approved", never, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
			_, err := trip.Send(t.Context(), kit.Client, id, "approved", "eva")
			require.NoError(t, err)
		}, func(ctx context.Context, run *durable.Run[order]) error {
			by, err := durable.Receive[string](ctx, run, "approved", 0)
			require.Equal(t, "eva", by)
			return err
		}, 3},
		{"the child ends first", "ship", nil, func(*testing.T, *durabletest.Kit, durable.RunID) {}, func(ctx context.Context, run *durable.Run[order]) error {
			number, err := ship.Call(ctx, run, "ship", parcel{1})
			require.Equal(t, "number 1", number)
			return err
		}, 3},
		{"the child fails first", "ship", func(int64, parcel) (string, error) { return "", durable.Permanent(errBoom) }, func(*testing.T, *durabletest.Kit, durable.RunID) {}, func(ctx context.Context, run *durable.Run[order]) error {
			_, err := ship.Call(ctx, run, "ship", parcel{1})
			require.True(t, durable.Final(err))
			return nil
		}, 3},
		{"the instant comes first", "deadline", never, func(_ *testing.T, kit *durabletest.Kit, _ durable.RunID) { kit.Advance(3 * day) }, func(ctx context.Context, run *durable.Run[order]) error {
			return run.Sleep(ctx, "deadline", 3*day)
		}, 3},
	} {
		t.Run(one.name, func(t *testing.T) {
			f := family{ships: one.ships}
			var firsts []string
			decide(&f, &firsts, func(ctx context.Context, run *durable.Run[order], _ string) error { return one.then(ctx, run) })
			f.run(t, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
				kit.RunDue()
				one.come(t, kit, id)
				kit.RunDue()
				kit.Advance(time.Minute) // the retry
				kit.RunDue()
				require.Equal(t, []string{one.want, one.want}, firsts)
				require.Equal(t, durable.Succeeded, recordOf(t, kit, id).State)
				require.Equal(t, one.parents, f.parent.Load(), "it is executed when it is parked, when one wait is over, and for its retry")
				require.NotEqual(t, durable.Cancelled, recordOf(t, kit, durable.IDFrom(id, "ship")).State, "a child that was not first goes on")
			})
		})
	}
}

func TestFirst_OfSeveralThatAreOverTheEarliestCounts(t *testing.T) {
	for _, one := range []struct {
		want            string
		sent, ends, due time.Duration
	}{
		{"approved", 1 * day, 2 * day, 3 * day},
		{"ship", 2 * day, 1 * day, 3 * day},
		{"deadline", 4 * day, 5 * day, 3 * day},
	} {
		t.Run(one.want, func(t *testing.T) {
			f := family{ships: func(n int64, _ parcel) (string, error) {
				if n == 1 {
					return "", durable.Snooze(one.ends)
				}
				return "sent", nil
			}}
			var firsts []string
			decide(&f, &firsts, func(context.Context, *durable.Run[order], string) error { return nil })
			durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
				parents := kit.Worker(func(w *durable.Worker) {
					durable.Register(w, trip, func(ctx context.Context, run *durable.Run[order]) error { return f.do(ctx, run) })
				})
				kit.Worker(func(w *durable.Worker) {
					durable.RegisterReturning(w, ship, func(_ context.Context, run *durable.Run[parcel]) (string, error) {
						return f.ships(f.child.Add(1), run.Args)
					})
				})
				receipt, err := trip.Enqueue(t.Context(), kit.Client, order{})
				require.NoError(t, err)
				kit.RunDue()
				require.NoError(t, parents.Stop())
				for passed := time.Duration(0); passed < 6*day; passed += day {
					if one.sent == passed {
						_, err := trip.Send(t.Context(), kit.Client, receipt.ID, "approved", true)
						require.NoError(t, err)
					}
					kit.Advance(day)
					kit.RunDue()
				}
				require.Equal(t, durable.Succeeded, recordOf(t, kit, durable.IDFrom(receipt.ID, "ship")).State)
				kit.Worker(func(w *durable.Worker) {
					durable.Register(w, trip, func(ctx context.Context, run *durable.Run[order]) error { return f.do(ctx, run) })
				})
				kit.RunAll()
				require.Equal(t, []string{one.want, one.want}, firsts)
			})
		})
	}
}

func TestFirst_RemindsEachDayUntilTheInputsOwnTimeoutHasPassed(t *testing.T) {
	var reminded counted
	var end error
	steps(t, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
		for i := 1; ; i++ {
			first, err := durable.First(ctx, run, fmt.Sprint("wait ", i), durable.WaitInput("approved", 7*day), durable.WaitSleep(fmt.Sprint("day ", i), day))
			if err != nil {
				return err
			}
			if first == "approved" {
				break
			}
			if _, err := durable.Step(ctx, run, fmt.Sprint("remind ", i), reminded.do(i, nil)); err != nil {
				return err
			}
		}
		_, end = durable.Receive[string](ctx, run, "approved", 7*day)
		if durable.Final(end) {
			return nil
		}
		return end
	}, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
		kit.RunDue()
		wait := durabletest.RequireWaiting(t, kit.Store, id, "approved")
		require.WithinDuration(t, time.Now().Add(7*day), wait.Until, time.Minute)
		durabletest.RequireWaiting(t, kit.Store, id, "day 1")
		began := time.Now()
		require.Equal(t, 1, kit.RunAll().Succeeded)
		require.WithinDuration(t, began.Add(7*day), time.Now(), time.Minute)
		require.ErrorIs(t, end, durable.ErrNoInput)
		require.InDelta(t, 6.5, reminded.n.Load(), 0.5)
	})
}

func TestFirst_LeavesAChildThatWakesItsParentOnceAtMost(t *testing.T) {
	f := family{ships: func(n int64, _ parcel) (string, error) {
		if n == 1 {
			return "", durable.Snooze(2 * day)
		}
		return "sent", nil
	}}
	f.do = func(ctx context.Context, run *durable.Run[order]) error {
		if _, err := durable.First(ctx, run, "decision", ship.WaitCall("ship", parcel{1}), durable.WaitSleep("a day", day)); err != nil {
			return err
		}
		_, err := durable.Receive[string](ctx, run, "approved", 30*day)
		return err
	}
	f.run(t, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
		kit.RunDue()
		kit.Advance(day)
		kit.RunDue()
		before := f.parent.Load()
		for range 20 {
			kit.Advance(day)
			kit.RunDue()
		}
		require.Equal(t, durable.Succeeded, recordOf(t, kit, durable.IDFrom(id, "ship")).State)
		require.LessOrEqual(t, f.parent.Load()-before, int64(1))
		require.Equal(t, durable.Pending, recordOf(t, kit, id).State)
	})
}

func TestFirst_InABranchLetsTheOthersContinue(t *testing.T) {
	var other counted
	var first string
	steps(t, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
		return durable.Parallel(ctx, run, func(ctx context.Context) (err error) {
			first, err = durable.First(ctx, run, "decision", durable.WaitInput("approved", 0), durable.WaitUntil("noon", run.CreatedAt.Add(day)))
			return err
		}, func(ctx context.Context) error {
			_, err := durable.Step(ctx, run, "other", other.do(1, nil))
			return err
		})
	}, func(t *testing.T, kit *durabletest.Kit, _ durable.RunID) {
		kit.RunDue()
		require.EqualValues(t, 1, other.n.Load())
		require.Equal(t, 1, kit.RunAll().Succeeded)
		require.Equal(t, "noon", first)
	})
}

func TestFirst_RefusesMisuse(t *testing.T) {
	for said, waits := range map[string][]durable.Wait{
		"want at least one wait":           nil,
		`the name "a" is used twice`:       {durable.WaitSleep("a", day), durable.WaitInput("a", 0)},
		`the name "first" is used twice`:   {durable.WaitSleep("first", day)},
		"timeout -1s":                      {durable.WaitInput("b", -time.Second)},
		"want 1 to 128 bytes":              {durable.WaitInput("", time.Second)},
		`stored as "done", not as "sleep"`: {durable.WaitSleep("done", day)},
		`stored as "done", not as "input"`: {durable.WaitInput("done", 0)},
		`stored as a sleep, not as a call`: {ship.WaitCall("night", parcel{})},
	} {
		steps(t, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
			if _, err := durable.Step(ctx, run, "done", new(counted).do(1, nil)); err != nil {
				return err
			}
			if err := run.Sleep(ctx, "night", time.Hour); err != nil {
				return err
			}
			_, err := durable.First(ctx, run, "first", waits...)
			require.ErrorIs(t, err, durable.ErrInvalid)
			require.ErrorContains(t, err, said)
			return nil
		}, func(t *testing.T, kit *durabletest.Kit, _ durable.RunID) {
			require.Equal(t, 1, kit.RunAll().Succeeded)
		})
	}
}
