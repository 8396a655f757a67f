package durabletest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
)

type mailArgs struct {
	To string `json:"to"`
}

func mailJob(options ...durable.Option) durable.Job[mailArgs] {
	return durable.NewJob[mailArgs]("mail", options...)
}

// handles registers a handler for mail.
func handles(handler func(ctx context.Context, run *durable.Run[mailArgs]) error, options ...durable.Option) func(*durable.Worker) {
	return func(w *durable.Worker) { durable.Register(w, mailJob(options...), handler) }
}

func enqueue(t *testing.T, kit *durabletest.Kit, options ...durable.Option) durable.RunID {
	t.Helper()
	receipt, err := mailJob().Enqueue(t.Context(), kit.Client, mailArgs{To: "ada"}, options...)
	require.NoError(t, err)
	return receipt.ID
}

var errBusy = errors.New("busy")

func TestRunDue(t *testing.T) {
	t.Run("everything due is executed and nothing that is due later", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			began := time.Now()
			kit.Worker(handles(func(_ context.Context, run *durable.Run[mailArgs]) error {
				if run.Attempt == 1 {
					return errBusy
				}
				return nil
			}))
			now, later := enqueue(t, kit), enqueue(t, kit, durable.After(time.Hour))
			require.Equal(t, durabletest.Tally{Failed: 1}, kit.RunDue())
			durabletest.RequireState(t, kit.Store, now, durable.Pending)
			durabletest.RequireState(t, kit.Store, later, durable.Pending)
			require.Less(t, time.Since(began), 100*time.Millisecond)
		})
	})
	t.Run("a backlog of which each waits for the one before is executed whole", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			kit.Limits.Executions = 100
			declare := func(w *durable.Worker) {
				handles(func(context.Context, *durable.Run[mailArgs]) error { return nil })(w)
				durable.AddSchedule(w, "tick", mailJob(), mailArgs{}, durable.Every(time.Minute), durable.CatchUp(durable.CatchUpAll, 0, 0))
			}
			first := kit.Worker(declare)
			kit.Advance(0)
			first.Kill()
			kit.Advance(time.Hour)
			kit.Worker(declare)
			began := time.Now()
			require.Equal(t, durabletest.Tally{Succeeded: 60}, kit.RunDue())
			require.Less(t, time.Since(began), 10*time.Second)
			require.Zero(t, kit.RunDue())
		})
	})
	t.Run("an occurrence that waits for a run of later is left alone", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			kit.Worker(func(w *durable.Worker) {
				handles(func(context.Context, *durable.Run[mailArgs]) error { return errBusy }, durable.Retry(durable.Fixed(time.Hour)))(w)
				durable.AddSchedule(w, "tick", mailJob(), mailArgs{}, durable.Every(time.Minute), durable.Overlap(durable.OverlapWait))
			})
			require.Equal(t, durabletest.Tally{Failed: 1}, kit.Advance(2*time.Minute))
			require.Zero(t, kit.RunDue())
		})
	})
	t.Run("what was executed before the test came to the call is reported by it", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { return nil }))
			enqueue(t, kit)
			time.Sleep(time.Second) //nolint:forbidigo // virtual time; a machine that stops the test for a moment does the same
			require.Equal(t, durabletest.Tally{Succeeded: 1}, kit.RunDue())
			require.Zero(t, kit.RunDue())
		})
	})
	t.Run("time passes as handlers take it", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			kit.Worker(handles(func(ctx context.Context, run *durable.Run[mailArgs]) error {
				time.Sleep(40 * time.Minute) //nolint:forbidigo // virtual time
				if run.Args.To == "ada" {
					_, err := mailJob().Enqueue(ctx, kit.Client, mailArgs{To: "bob"})
					return err
				}
				return nil
			}))
			began := time.Now()
			enqueue(t, kit)
			require.Equal(t, durabletest.Tally{Succeeded: 2}, kit.RunDue())
			require.InDelta(t, 80*time.Minute, time.Since(began), float64(time.Second))
		})
	})
	t.Run("a schedule that is due is materialized", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			kit.Worker(func(w *durable.Worker) {
				handles(func(context.Context, *durable.Run[mailArgs]) error { return nil })(w)
				durable.AddSchedule(w, "hourly", mailJob(), mailArgs{}, durable.Every(time.Hour))
			})
			kit.Advance(59 * time.Minute)
			require.Empty(t, durabletest.Enqueued(t, kit.Store, mailJob()))
			time.Sleep(time.Minute) //nolint:forbidigo // virtual time
			kit.RunDue()
			require.Equal(t, durable.Succeeded, durabletest.RequireEnqueued(t, kit.Store, mailJob()).Record.State)
		})
	})
}

func TestRunAll(t *testing.T) {
	t.Run("retries and runs that are due later come to their end", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			began := time.Now()
			kit.Worker(handles(func(_ context.Context, run *durable.Run[mailArgs]) error {
				if run.Attempt < 3 {
					return errBusy
				}
				return nil
			}))
			id := enqueue(t, kit, durable.After(72*time.Hour))
			require.Equal(t, durabletest.Tally{Succeeded: 1, Failed: 2}, kit.RunAll())
			durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
			require.InDelta(t, 72*time.Hour+15*time.Second, time.Since(began), float64(time.Second))
		})
	})
	t.Run("the runs of a killed worker are taken over", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			first := kit.Worker(handles(func(ctx context.Context, _ *durable.Run[mailArgs]) error {
				<-ctx.Done()
				return nil // as if it were done: it is not
			}), func(c *durable.WorkerConfig) { c.Name = "first" })
			id := enqueue(t, kit)
			kit.Advance(0)
			first.Kill()
			kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { return nil }))
			require.Equal(t, durabletest.Tally{Succeeded: 1}, kit.RunAll())
			record := durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
			require.Equal(t, 1, record.CrashCount)
			require.Equal(t, "worker-2", *record.Worker)
		})
	})
}

func TestAdvance(t *testing.T) {
	t.Run("five days of an hourly schedule take milliseconds", func(t *testing.T) {
		began := time.Now()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			var executed []time.Time
			kit.Worker(func(w *durable.Worker) {
				handles(func(context.Context, *durable.Run[mailArgs]) error {
					executed = append(executed, time.Now())
					return nil
				})(w)
				durable.AddSchedule(w, "hourly", mailJob(), mailArgs{}, durable.Every(time.Hour))
			})
			start := time.Now()
			require.Equal(t, durabletest.Tally{Succeeded: 120}, kit.Advance(5*24*time.Hour))
			for i, at := range executed {
				require.Equal(t, start.Add(time.Duration(i+1)*time.Hour), at)
			}
		})
		t.Logf("five days, 120 runs: %v of real time", time.Since(began))
	})
	t.Run("an hour of a schedule each second", func(t *testing.T) {
		began := time.Now()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			kit.Worker(func(w *durable.Worker) {
				handles(func(context.Context, *durable.Run[mailArgs]) error { return nil })(w)
				durable.AddSchedule(w, "every-second", mailJob(), mailArgs{}, durable.Every(time.Second))
			})
			require.Equal(t, durabletest.Tally{Succeeded: 3600}, kit.Advance(time.Hour))
		})
		t.Logf("one hour, 3600 runs: %v of real time", time.Since(began))
	})
	t.Run("many small steps are as long as one", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			var executed int
			kit.Worker(func(w *durable.Worker) {
				handles(func(context.Context, *durable.Run[mailArgs]) error { executed++; return nil })(w)
				durable.AddSchedule(w, "every-second", mailJob(), mailArgs{}, durable.Every(time.Second))
			})
			start := time.Now()
			for i := range 600 {
				require.Equal(t, durabletest.Tally{Succeeded: 1}, kit.Advance(time.Second), i)
			}
			require.Equal(t, 600, executed)
			require.Less(t, time.Since(start), 601*time.Second)
		})
	})
	t.Run("the retry is not begun a millisecond early, and settled at its time", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			kit.Worker(handles(func(_ context.Context, run *durable.Run[mailArgs]) error {
				if run.Attempt == 1 {
					return errBusy
				}
				return nil
			}, durable.Retry(durable.Fixed(time.Minute))))
			id := enqueue(t, kit)
			kit.RunDue()
			record := durabletest.RequireState(t, kit.Store, id, durable.Pending)
			kit.AdvanceTo(record.DueAt.Add(-time.Millisecond))
			durabletest.RequireState(t, kit.Store, id, durable.Pending)
			kit.Advance(time.Millisecond)
			durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
		})
	})
	t.Run("a handler that takes longer is still running", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			var beats atomic.Int64
			kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error {
				for range 120 {
					time.Sleep(time.Minute) //nolint:forbidigo // virtual time
					beats.Add(1)
				}
				return nil
			}))
			id := enqueue(t, kit)
			kit.Advance(time.Hour)
			durabletest.RequireState(t, kit.Store, id, durable.Running)
			require.EqualValues(t, 60, beats.Load())
			kit.Advance(time.Hour)
			durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
		})
	})
	t.Run("to an instant, over a change of the clocks", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			berlin, err := time.LoadLocation("Europe/Berlin")
			require.NoError(t, err)
			kit.AdvanceTo(time.Date(2026, 10, 24, 12, 0, 0, 0, berlin))
			var hours []int
			kit.Worker(func(w *durable.Worker) {
				handles(func(_ context.Context, run *durable.Run[mailArgs]) error {
					hours = append(hours, run.DueAt.In(berlin).Hour())
					return nil
				})(w)
				durable.AddSchedule(w, "at-half-past-two", mailJob(), mailArgs{}, durable.Cron("30 2 * * *", "Europe/Berlin"))
			})
			kit.Advance(72 * time.Hour)
			require.Equal(t, []int{2, 2, 2}, hours)
		})
	})
}

func TestSeedRepeats(t *testing.T) {
	t.Parallel()
	begins := func(seed uint64) (at []time.Duration) {
		durabletest.Run(t, func(_ *testing.T, kit *durabletest.Kit) {
			start := time.Now()
			kit.Seed(seed)
			kit.Worker(func(w *durable.Worker) {
				handles(func(context.Context, *durable.Run[mailArgs]) error { at = append(at, time.Since(start)); return nil })(w)
				durable.AddSchedule(w, "hourly", mailJob(), mailArgs{}, durable.Every(time.Hour), durable.Jitter(time.Minute))
			}, func(c *durable.WorkerConfig) { c.PollJitter = 0.2 })
			kit.Advance(12 * time.Hour)
		})
		return at
	}
	require.Equal(t, begins(7), begins(7))
}

func TestKit_OnlySchedules(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{nil, {"hourly"}} {
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			kit.OnlySchedules(names...)
			kit.Worker(func(w *durable.Worker) {
				handles(func(context.Context, *durable.Run[mailArgs]) error { return nil })(w)
				durable.AddSchedule(w, "tick", mailJob(), mailArgs{}, durable.Every(time.Second))
				durable.AddSchedule(w, "hourly", mailJob(), mailArgs{}, durable.Every(time.Hour))
			})
			require.Equal(t, 24*len(names), kit.Advance(24*time.Hour).Succeeded)
		})
	}
}
