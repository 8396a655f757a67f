package durabletest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
)

// drip is a handler with every kind of step, and its effects.
type drip struct {
	kit   *durabletest.Kit
	wrong string
	count int // in memory
}

func (d *drip) handle(ctx context.Context, run *durable.Run[mailArgs]) error {
	d.count++
	if _, err := durable.Step(ctx, run, "welcome", func(ctx context.Context) (int, error) { d.kit.Effect(ctx, "welcome"); return 1, nil }); err != nil {
		return err
	}
	if d.wrong == "outside" {
		d.kit.Effect(ctx, "charge")
	}
	if err := run.Sleep(ctx, "a day", 24*time.Hour); err != nil {
		return err
	}
	name := "book"
	if d.wrong == "names" {
		name = fmt.Sprint("book ", d.count)
	}
	_, err := durable.StepTx(ctx, run, durabletest.Transacting(d.kit.Store, 0), name, func(ctx context.Context, _ int) (int, error) {
		d.kit.Effect(ctx, "book")
		return 2, nil
	})
	if err != nil {
		return err
	}
	_, err = durable.Receive[string](ctx, run, "approved", time.Hour)
	if errors.Is(err, durable.ErrNoInput) {
		_, err = durable.Step(ctx, run, "nudge", func(ctx context.Context) (int, error) { d.kit.Effect(ctx, "nudge"); return 3, nil })
	}
	if err != nil {
		return err
	}
	if d.wrong == "memory" {
		return run.SetResult(d.count)
	}
	return run.SetResult("done")
}

func (d *drip) play(t *testing.T, kit *durabletest.Kit) {
	t.Helper()
	d.kit = kit
	kit.Worker(handles(d.handle))
	id := enqueue(t, kit)
	kit.RunDue()
	durabletest.RequireWaiting(t, kit.Store, id, "a day")
	require.Equal(t, durabletest.Tally{Snoozed: 1}, kit.Advance(24*time.Hour))
	require.Equal(t, durabletest.Tally{Succeeded: 1}, kit.RunAll())
}

func TestCrashAfterEachStep_OfAHandlerThatSurvives(t *testing.T) {
	t.Parallel()
	crashes := 0
	durabletest.CrashAfterEachStep(t, func(t *testing.T, kit *durabletest.Kit) {
		(&drip{}).play(t, kit)
		require.Equal(t, []string{"welcome", "book", "nudge"}, kit.Effects())
		record := durabletest.Enqueued(t, kit.Store, mailJob())[0].Record
		if *record.Worker == "worker-2" {
			crashes++
		}
	})
	require.Equal(t, 6, crashes, "after the welcome, the sleep, the booking, the wait, its end and the nudge")
}

func TestCrashAfter(t *testing.T) {
	t.Parallel()
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		executions := 0
		began := time.Now()
		var late []error
		kit.Worker(handles(func(ctx context.Context, run *durable.Run[mailArgs]) error {
			executions++
			for i := range 3 {
				_, err := durable.Step(ctx, run, fmt.Sprint("step ", i), func(ctx context.Context) (int, error) {
					kit.Effect(ctx, fmt.Sprint("step ", i))
					return i, nil
				})
				if err != nil {
					late = append(late, err)
					return err
				}
			}
			return nil
		}))
		kit.CrashAfter(2)
		id := enqueue(t, kit)
		require.Equal(t, durabletest.Tally{Succeeded: 1}, kit.RunDue())
		require.Equal(t, 2, executions)
		require.Equal(t, []string{"step 0", "step 1", "step 2"}, kit.Effects())
		require.Empty(t, late, "the handler that crashed does not continue")
		require.Less(t, time.Since(began), time.Second, "nothing waits for the lease")
		record, err := kit.Store.Run(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, 1, record.CrashCount)
		require.Equal(t, "worker-2", *record.Worker)
		enqueue(t, kit)
		require.Equal(t, durabletest.Tally{Succeeded: 1}, kit.RunDue(), "one crash")
	})
}

func TestEffect_OfADeadProcessIsNotNoted(t *testing.T) {
	t.Parallel()
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		w := kit.Worker(handles(func(ctx context.Context, _ *durable.Run[mailArgs]) error {
			kit.Effect(ctx, "before")
			<-ctx.Done()
			kit.Effect(ctx, "after")
			return ctx.Err()
		}))
		enqueue(t, kit)
		kit.Advance(0)
		w.Kill()
		require.Equal(t, []string{"before"}, kit.Effects())
	})
}

// The next worker begins with a run that is due, so it may put that back before it listens.
func TestCrashAfter_TheNextWorkerWakesWhenTheRunIsDueAgain(t *testing.T) {
	t.Parallel()
	for range 300 {
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			began, tries := time.Now(), 0
			kit.Worker(handles(func(ctx context.Context, run *durable.Run[mailArgs]) error {
				if _, err := durable.Step(ctx, run, "a", (&parcel{}).do("a", 1, nil)); err != nil {
					return err
				}
				_, err := durable.Step(ctx, run, "b", func(context.Context) (int, error) {
					if tries++; tries == 1 {
						return 0, errBusy
					}
					return 1, nil
				}, durable.StepAttempts(3, durable.Fixed(time.Second)))
				return err
			}))
			kit.CrashAfter(1)
			enqueue(t, kit)
			require.Equal(t, durabletest.Tally{Snoozed: 1, Succeeded: 1}, kit.RunAll())
			require.Less(t, time.Since(began), time.Minute)
		})
	}
}

// TestCrashChild is executed by itself in a process of its own, and does nothing elsewhere.
func TestCrashChild(t *testing.T) {
	if part := os.Getenv(child); part == "none" {
		durabletest.CrashAfterEachStep(t, func(t *testing.T, kit *durabletest.Kit) {
			kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { return nil }))
			enqueue(t, kit)
			kit.RunDue()
		})
	} else if part != "" {
		d := &drip{wrong: part}
		durabletest.CrashAfterEachStep(t, func(t *testing.T, kit *durabletest.Kit) { d.count = 0; d.play(t, kit) })
	}
}

func TestCrashAfterEachStep_Finds(t *testing.T) {
	for sentence, c := range map[string]struct {
		part string
		says []string
	}{
		"an effect outside of steps": {"outside", []string{
			`a crash after the step "a day" was stored makes a difference:`, "effect charge: 4 instead of 3"}},
		"what a handler keeps in memory": {"memory", []string{
			`run job=mail args={"to":"ada"} succeeded result=3: 0 instead of 1`, "result=4: 1 instead of 0"}},
		"a name that changes":   {"names", []string{`a crash after the step "book 2" was stored makes a difference:`, "effect book: 3 instead of 2"}},
		"that there is no step": {"none", []string{"no step was stored, so there is nothing to crash after"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			said := inChild(t, "^TestCrashChild$", c.part)
			for _, says := range c.says {
				require.Contains(t, said, says)
			}
			require.NotContains(t, said, "the worker is killed", "what the dead process logs is none of the test's business")
		})
	}
}
