package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

type order struct{ Total int }

var fulfil = durable.NewJob[order]("fulfil", durable.MaxAttempts(3), durable.Retry(durable.Fixed(time.Minute)))

// steps runs a test of one job with a handler, in virtual time.
func steps(t *testing.T, job durable.Job[order], handler func(ctx context.Context, run *durable.Run[order]) error, test func(t *testing.T, kit *durabletest.Kit, id durable.RunID)) {
	t.Helper()
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(func(w *durable.Worker) { durable.Register(w, job, handler) })
		receipt, err := job.Enqueue(t.Context(), kit.Client, order{Total: 7})
		require.NoError(t, err)
		test(t, kit, receipt.ID)
	})
}

func recordOf(t *testing.T, kit *durabletest.Kit, id durable.RunID) durable.Record {
	t.Helper()
	record, err := kit.Store.Run(t.Context(), id)
	require.NoError(t, err)
	return record
}

// counted counts the executions of steps.
type counted struct{ n atomic.Int64 }

func (c *counted) do(value int, err error) func(context.Context) (int, error) {
	return func(context.Context) (int, error) { c.n.Add(1); return value, err }
}

func TestStep_IsExecutedOnceHoweverOftenItsHandlerIs(t *testing.T) {
	var first, second counted
	var values []int
	steps(t, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
		a, err := durable.Step(ctx, run, "charge", first.do(run.Args.Total, nil))
		if err != nil {
			return err
		}
		values = append(values, a)
		if first.n.Load()+int64(len(values)) < 4 {
			return errBoom
		}
		_, err = durable.Step(ctx, run, "ship", second.do(a+1, nil))
		return err
	}, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
		require.Equal(t, durabletest.Tally{Succeeded: 1, Failed: 2}, kit.RunAll())
		require.Equal(t, []int{7, 7, 7}, values)
		require.EqualValues(t, 1, first.n.Load())
		require.EqualValues(t, 1, second.n.Load())
		found, err := store.StepsOf(t.Context(), kit.Store, id)
		require.NoError(t, err)
		require.Len(t, found.Steps, 2)
	})
}

func TestStep_GivesWhatWasStoredInTheFirstExecutionToo(t *testing.T) {
	type hidden struct {
		Seen string
		Not  string `json:"-"`
	}
	steps(t, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
		got, err := durable.Step(ctx, run, "a", func(context.Context) (hidden, error) { return hidden{"yes", "no"}, nil })
		require.NoError(t, err)
		require.Equal(t, hidden{Seen: "yes"}, got)
		return nil
	}, func(t *testing.T, kit *durabletest.Kit, _ durable.RunID) {
		require.Equal(t, 1, kit.RunAll().Succeeded)
	})
}

type codedError struct{}

func (codedError) Error() string { return "no rooms" }
func (codedError) Code() string  { return "ROOMS" }

func TestStep_WithAttemptsFailsForGoodAndIsCompensated(t *testing.T) {
	var hotel, undo counted
	var seen []*durable.StepError
	steps(t, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
		flight, err := durable.Step(ctx, run, "flight", new(counted).do(1, nil))
		if err != nil {
			return err
		}
		_, err = durable.Step(ctx, run, "hotel", hotel.do(0, codedError{}), durable.StepAttempts(4, durable.Fixed(time.Hour)))
		if failed := err; durable.Final(failed) {
			require.NotErrorIs(t, failed, codedError{})
			step, is := errors.AsType[*durable.StepError](failed)
			require.True(t, is)
			seen = append(seen, step)
			if _, err := durable.Step(ctx, run, "cancel flight", undo.do(flight, nil)); err != nil {
				return err
			}
			if len(seen) == 1 {
				return errBoom // crashes before it is said
			}
			return durable.Permanent(failed)
		}
		return err
	}, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
		began := time.Now()
		require.Equal(t, durabletest.Tally{Snoozed: 3, Failed: 1, Dead: 1}, kit.RunAll())
		require.InDelta(t, 3*time.Hour+time.Minute, time.Since(began), float64(10*time.Second))
		require.EqualValues(t, 4, hotel.n.Load())
		require.EqualValues(t, 1, undo.n.Load())
		require.Len(t, seen, 2)
		require.Equal(t, seen[0], seen[1])
		require.Equal(t, &durable.StepError{Name: "hotel", Attempts: 4, Text: "no rooms", Code: "ROOMS"}, seen[0])
		require.Contains(t, *recordOf(t, kit, id).Attempts[1].Error, `step "hotel": no rooms`)
	})
}

func TestStep_ARecordedFailureThatIsNotHandledIsDeadAtOnce(t *testing.T) {
	for name, handler := range map[string]func(ctx context.Context, run *durable.Run[order]) error{
		"a step": func(ctx context.Context, run *durable.Run[order]) error {
			_, err := durable.Step(ctx, run, "hotel", new(counted).do(0, durable.Permanent(errBoom)))
			return fmt.Errorf("trip: %w", err)
		},
		"an input": func(ctx context.Context, run *durable.Run[order]) error {
			_, err := durable.Receive[bool](ctx, run, "approved", time.Hour)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			steps(t, fulfil, handler, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
				require.Equal(t, 1, kit.RunAll().Dead)
				require.Len(t, recordOf(t, kit, id).Attempts, 1)
			})
		})
	}
}

func TestStep_MisuseIsSaidWithNameAndBound(t *testing.T) {
	steps(t, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
		plain := new(counted).do(1, nil)
		_, err := durable.Step(ctx, run, "a", plain)
		require.NoError(t, err)
		_, err = durable.Step(ctx, run, "a", plain)
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.ErrorContains(t, err, `"a" was used before`)
		_, err = durable.Step(ctx, run, "", plain)
		require.ErrorIs(t, err, durable.ErrInvalid)
		_, err = durable.Step(ctx, run, strings.Repeat("x", store.MaxStepName+1), plain)
		require.ErrorContains(t, err, "128")
		_, err = durable.Step(ctx, run, "channel", func(context.Context) (chan int, error) { return nil, nil })
		require.ErrorIs(t, err, durable.ErrInvalid)
		_, err = durable.Step(ctx, run, "large", func(context.Context) (string, error) { return strings.Repeat("x", store.MaxStepSize), nil }, durable.StepAttempts(3))
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.ErrorContains(t, err, `"large"`)
		_, err = durable.Receive[int](ctx, run, "wait", -time.Second)
		require.ErrorIs(t, err, durable.ErrInvalid)
		_, err = durable.Step(ctx, run, "attempts", plain, durable.StepAttempts(-1))
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.NoError(t, run.Sleep(ctx, "below zero", -time.Hour))
		return nil
	}, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
		require.Equal(t, durabletest.Tally{Succeeded: 1}, kit.RunAll())
		found, err := store.StepsOf(t.Context(), kit.Store, id)
		require.NoError(t, err)
		require.Len(t, found.Steps, 1)
	})
}

func TestSleep_TakesNoSlotAndNoAttemptAndKeepsItsInstant(t *testing.T) {
	var executions counted
	var woken []time.Duration
	began := time.Time{}
	steps(t, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
		if executions.n.Add(1) == 1 {
			began = time.Now()
		}
		if err := run.Sleep(ctx, "three days", 72*time.Hour); err != nil {
			return err
		}
		woken = append(woken, time.Since(began))
		if len(woken) < 3 {
			return errBoom
		}
		return run.Sleep(ctx, "again", 1)
	}, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
		kit.RunDue()
		require.Equal(t, durable.Pending, recordOf(t, kit, id).State)
		require.Zero(t, recordOf(t, kit, id).Attempt)
		tally := kit.RunAll()
		require.Equal(t, 1, tally.Succeeded)
		require.Equal(t, 2, tally.Failed)
		require.InDelta(t, 72*time.Hour, woken[0], float64(time.Second))
		require.LessOrEqual(t, executions.n.Load(), int64(5))
	})
}

func TestReceive_GetsTheInputWheneverItIsSent(t *testing.T) {
	for _, early := range []bool{true, false} {
		t.Run(fmt.Sprint("early ", early), func(t *testing.T) {
			var got []string
			steps(t, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
				value, err := durable.Receive[string](ctx, run, "approved", 0)
				if err != nil {
					return err
				}
				got = append(got, value)
				return nil
			}, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
				send := func(value string) error {
					_, err := fulfil.Send(t.Context(), kit.Client, id, "approved", value)
					return err
				}
				if early {
					require.NoError(t, send("eva"))
				}
				kit.RunDue()
				kit.Advance(3 * 24 * time.Hour)
				require.NoError(t, send("eva"))
				require.ErrorIs(t, send("adam"), durable.ErrConflict)
				kit.RunDue()
				require.Equal(t, []string{"eva"}, got)
				require.Equal(t, durable.Succeeded, recordOf(t, kit, id).State)
			})
		})
	}
}

func TestReceive_GivesUpOnceAndForEver(t *testing.T) {
	var outcomes []error
	steps(t, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
		_, err := durable.Receive[string](ctx, run, "approved", 7*24*time.Hour)
		if !durable.Final(err) {
			return err
		}
		if outcomes = append(outcomes, err); len(outcomes) < 3 {
			return errBoom
		}
		return nil
	}, func(t *testing.T, kit *durabletest.Kit, _ durable.RunID) {
		began := time.Now()
		require.Equal(t, durabletest.Tally{Snoozed: 1, Failed: 2, Succeeded: 1}, kit.RunAll())
		require.InDelta(t, 7*24*time.Hour+2*time.Minute, time.Since(began), float64(time.Second))
		for _, err := range outcomes {
			require.ErrorIs(t, err, durable.ErrNoInput)
		}
	})
}

func TestReceive_WaitsNoLongerThanTheRunIsOfUse(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(func(w *durable.Worker) {
			durable.Register(w, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
				_, err := durable.Receive[string](ctx, run, "approved", 0)
				return err
			})
		})
		expiring, err := fulfil.Enqueue(t.Context(), kit.Client, order{}, durable.ExpiresAt(time.Now().Add(time.Hour)))
		require.NoError(t, err)
		waiting, err := fulfil.Enqueue(t.Context(), kit.Client, order{})
		require.NoError(t, err)
		began := time.Now()
		require.Equal(t, durabletest.Tally{Snoozed: 2, Cancelled: 1}, kit.RunAll(), "it does not wait for what has no end")
		require.InDelta(t, time.Hour, time.Since(began), float64(time.Second))
		require.Equal(t, durable.Cancelled, recordOf(t, kit, expiring.ID).State)
		require.Equal(t, durable.Pending, recordOf(t, kit, waiting.ID).State)
	})
}

func TestPark_IsAParkWhateverIsAroundIt(t *testing.T) {
	for name, around := range map[string]func(error) error{
		"nothing": func(err error) error { return err }, "a wrap": func(err error) error { return fmt.Errorf("trip: %w", err) },
		"a join": func(err error) error { return errors.Join(errBoom, err) }, "Permanent": durable.Permanent, "Cancel": durable.Cancel,
		"Snooze": func(err error) error { return errors.Join(durable.Snooze(time.Hour), err) },
	} {
		t.Run(name, func(t *testing.T) {
			steps(t, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
				if err := run.Sleep(ctx, "a day", 24*time.Hour); err != nil {
					return around(err)
				}
				return nil
			}, func(t *testing.T, kit *durabletest.Kit, _ durable.RunID) {
				began := time.Now()
				require.Equal(t, durabletest.Tally{Snoozed: 1, Succeeded: 1}, kit.RunAll())
				require.InDelta(t, 24*time.Hour, time.Since(began), float64(time.Second))
			})
		})
	}
}

func TestPark_NothingHappensAfterIt(t *testing.T) {
	for name, returned := range map[string]error{"nil": nil, "another error": errBoom} {
		t.Run(name, func(t *testing.T) {
			var executed counted
			var parks []error
			steps(t, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
				park := run.Sleep(ctx, "approved", time.Hour) // dropped
				_, err := durable.Step(ctx, run, "refund", executed.do(1, nil))
				parks = append(parks, park, err)
				_, err = durable.Receive[int](ctx, run, "more", time.Hour)
				parks = append(parks, err)
				_, err = run.Enqueue(ctx, fulfil.New(order{}))
				parks = append(parks, err, run.SetResult(1), run.Sleep(ctx, "another", time.Hour))
				return returned
			}, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
				kit.RunDue()
				for _, err := range parks {
					require.Equal(t, parks[0], err)
				}
				require.Zero(t, executed.n.Load())
				found, err := store.StepsOf(t.Context(), kit.Store, id)
				require.NoError(t, err)
				require.Len(t, found.Steps, 1)
				record := recordOf(t, kit, id)
				require.Contains(t, *record.Attempts[0].Error, `handler ignored that it was parked at "approved"`)
				if returned == nil {
					require.Equal(t, durable.Dead, record.State)
				} else {
					require.Equal(t, durable.Pending, record.State)
				}
			})
		})
	}
}

func TestParallel_ParksWhenAllHaveEnded(t *testing.T) {
	var left, right counted
	steps(t, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
		return durable.Parallel(ctx, run,
			func(ctx context.Context) error {
				if err := run.Sleep(ctx, "a day", 24*time.Hour); err != nil {
					return err
				}
				_, err := durable.Step(ctx, run, "left", left.do(1, nil))
				return err
			},
			func(ctx context.Context) error {
				if err := run.Sleep(ctx, "an hour", time.Hour); err != nil {
					return err
				}
				_, err := durable.Step(ctx, run, "right", right.do(1, nil))
				return err
			})
	}, func(t *testing.T, kit *durabletest.Kit, _ durable.RunID) {
		kit.Advance(2 * time.Hour)
		require.EqualValues(t, 0, left.n.Load())
		require.EqualValues(t, 1, right.n.Load(), "one branch waits, the other goes on")
		require.Equal(t, 1, kit.RunAll().Succeeded)
		require.EqualValues(t, 1, left.n.Load())
		require.EqualValues(t, 1, right.n.Load())
	})
}

func TestStep_VersionsAndAliasesLetAHandlerChange(t *testing.T) {
	second := false
	var charged counted
	var version int
	steps(t, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
		if !second {
			if _, err := durable.Step(ctx, run, "charge", charged.do(1, nil)); err != nil {
				return err
			}
			return run.Sleep(ctx, "nap", time.Hour)
		}
		var err error
		if version, err = run.Version(ctx, "shipping", 2, "charge"); err != nil {
			return err
		}
		if _, err := durable.Step(ctx, run, "added before", charged.do(1, nil)); err != nil {
			return err
		}
		_, err = durable.Step(ctx, run, "pay", charged.do(1, nil), durable.StepAlias("charge"))
		return err
	}, func(t *testing.T, kit *durabletest.Kit, _ durable.RunID) {
		kit.RunDue()
		second = true
		require.Equal(t, 1, kit.RunAll().Succeeded)
		require.EqualValues(t, 2, charged.n.Load())
		require.Zero(t, version)
	})
}

func TestStepTx_HappensOnceAlthoughTheReplyToTheCommitIsLost(t *testing.T) {
	var effects, lost counted
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		plain := durabletest.Transacting(kit.Store, 1)
		losing := store.Transacting[int](func(ctx context.Context, work func(tx int, bound store.Tx) error) error {
			if err := plain(ctx, work); err != nil || lost.n.Add(1) > 1 {
				return err
			}
			return errBoom
		})
		kit.Worker(func(w *durable.Worker) {
			durable.Register(w, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
				_, err := durable.StepTx(ctx, run, losing, "pay", func(context.Context, int) (int, error) { effects.n.Add(1); return 7, nil })
				return err
			})
		})
		_, err := fulfil.Enqueue(t.Context(), kit.Client, order{})
		require.NoError(t, err)
		require.Equal(t, durabletest.Tally{Succeeded: 1}, kit.RunAll())
		require.EqualValues(t, 1, effects.n.Load())
		require.EqualValues(t, 2, lost.n.Load())
	})
}

// recordingStore counts writes of steps, and refuses those of one name.
type recordingStore struct {
	durable.Store
	calls  atomic.Int64
	slow   time.Duration
	refuse string
}

func (s *recordingStore) RecordSteps(ctx context.Context, steps []store.NewStep) ([]store.StepVerdict, error) {
	s.calls.Add(1)
	<-time.After(s.slow)
	for i := range steps {
		if steps[i].Name == s.refuse {
			return nil, errBoom
		}
	}
	return s.Store.RecordSteps(ctx, steps)
}

func TestStep_ManyAreWrittenTogetherAndOneThatIsRefusedStopsNoOther(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		db := &recordingStore{Store: s.store, slow: 10 * time.Millisecond, refuse: "bad"}
		began := time.Now()
		w := durable.NewWorker(db, durable.WorkerConfig{Elapsed: func() time.Duration { return time.Since(began) }, MaxConcurrentRuns: 200})
		durable.Register(w, copying, func(ctx context.Context, run *durable.Run[struct{}]) error {
			name := "good"
			if len(run.Tags) > 0 {
				name = "bad"
			}
			for i := range 10 {
				if _, err := durable.Step(ctx, run, fmt.Sprint(name, i%5*i), new(counted).do(1, nil)); err != nil && !errors.Is(err, durable.ErrInvalid) {
					return err
				}
			}
			_, err := durable.Step(ctx, run, name, new(counted).do(1, nil))
			return err
		})
		stop := s.begin(w)
		var ids []durable.RunID
		for range 100 {
			ids = append(ids, s.enqueue(copying.New(struct{}{})))
		}
		bad := s.enqueue(copying.New(struct{}{}, durable.Tags("bad"), durable.MaxAttempts(1)))
		_, err := s.client.Wait(t.Context(), append(ids, bad)...)
		require.NoError(t, err)
		require.NoError(t, stop())
		for _, id := range ids {
			require.Equal(t, durable.Succeeded, s.record(id).State)
			require.Equal(t, 1, s.record(id).Attempt)
		}
		require.Equal(t, durable.Dead, s.record(bad).State)
		require.Contains(t, *s.record(bad).Attempts[0].Error, errBoom.Error())
		require.Less(t, db.calls.Load(), int64(300), "700 steps and more were written alone")
	})
}

// lockedStore answers that the run is locked.
type lockedStore struct {
	durable.Store
	called chan struct{}
}

func (s *lockedStore) RecordSteps(context.Context, []store.NewStep) ([]store.StepVerdict, error) {
	select {
	case s.called <- struct{}{}:
	default:
	}
	return []store.StepVerdict{store.StepLocked}, nil
}

func TestStep_ThatIsLostWhileItsRunWasLockedIsLost(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		db := &lockedStore{Store: s.store, called: make(chan struct{}, 1)}
		began := time.Now()
		w := durable.NewWorker(db, durable.WorkerConfig{Elapsed: func() time.Duration { return time.Since(began) }})
		got := make(chan error, 1)
		durable.Register(w, copying, func(ctx context.Context, run *durable.Run[struct{}]) error {
			go func() {
				_, err := durable.Step(ctx, run, "charge", new(counted).do(1, nil))
				got <- err
			}()
			<-db.called
			return nil
		})
		stop := s.begin(w)
		_, err := s.client.Wait(t.Context(), s.enqueue(copying.New(struct{}{})))
		require.NoError(t, err)
		require.ErrorIs(t, <-got, lease.ErrLost)
		require.NoError(t, stop())
	})
}

// TestStep_IsNotExecutedWhereTheLeaseIsOver: the process is frozen for an hour between the reading of
// what is recorded and the call of the step.
func TestStep_IsNotExecutedWhereTheLeaseIsOver(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		began := time.Now()
		var frozen atomic.Int64
		w := durable.NewWorker(s.store, durable.WorkerConfig{
			Elapsed: func() time.Duration { return time.Since(began) + time.Duration(frozen.Load()) },
			Hooks: observe.Hooks{Step: func(ctx context.Context, _ observe.StepStart) (context.Context, func(observe.StepEnd)) {
				frozen.CompareAndSwap(0, int64(time.Hour))
				return ctx, nil
			}},
		})
		var got []error
		charged := new(counted)
		durable.Register(w, copying, func(ctx context.Context, run *durable.Run[struct{}]) error {
			_, err := durable.Step(ctx, run, "charge", charged.do(1, nil))
			got = append(got, err)
			return err
		})
		stop := s.begin(w)
		_, err := s.client.Wait(t.Context(), s.enqueue(copying.New(struct{}{})))
		require.NoError(t, err)
		require.NoError(t, stop())
		require.ErrorIs(t, got[0], lease.ErrLost)
		require.NoError(t, got[len(got)-1])
		require.EqualValues(t, 1, charged.n.Load())
	})
}

func TestStep_IsLostWithTheRun(t *testing.T) {
	var after []error
	steps(t, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
		go func() {
			<-time.After(time.Minute)
			_, err := durable.Step(ctx, run, "late", new(counted).do(1, nil))
			after = append(after, err, run.Sleep(ctx, "late too", time.Hour))
		}()
		return nil
	}, func(t *testing.T, kit *durabletest.Kit, id durable.RunID) {
		kit.RunAll()
		kit.Advance(time.Hour)
		require.Len(t, after, 2)
		for _, err := range after {
			require.ErrorIs(t, err, lease.ErrLost)
		}
		found, err := store.StepsOf(t.Context(), kit.Store, id)
		require.NoError(t, err)
		require.Empty(t, found.Steps)
	})
}
