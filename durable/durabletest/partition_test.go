package durabletest_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/lease"
)

// diary is what handlers noted, in order.
type diary struct {
	mu    sync.Mutex
	notes []string
}

func (d *diary) note(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes = append(d.notes, text)
}

func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.notes)
}

func TestPause(t *testing.T) {
	t.Run("the run is reclaimed and the late write of a zombie is refused", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			var notes diary
			hold := make(chan struct{})
			first := kit.Worker(handles(func(ctx context.Context, run *durable.Run[mailArgs]) error {
				notes.note("first begins")
				<-hold // a handler that ignores its context
				notes.note("first ends: " + context.Cause(ctx).Error())
				return run.SetResult("first")
			}))
			id := enqueue(t, kit)
			kit.Advance(0)
			first.Pause()
			kit.Worker(handles(func(_ context.Context, run *durable.Run[mailArgs]) error {
				notes.note("second")
				return run.SetResult("second")
			}))
			kit.Advance(durabletest.LeaseDuration / 2)
			require.Equal(t, []string{"first begins"}, notes.read(), "the lease is still valid")
			kit.Advance(durabletest.LeaseDuration)
			require.Equal(t, []string{"first begins", "second"}, notes.read())

			close(hold)
			kit.Advance(time.Minute)
			require.Empty(t, first.Refused(), "nothing of it has reached the store")
			first.Resume()
			kit.Advance(time.Minute)
			require.Equal(t, []durable.RunID{id}, first.Refused())
			require.Equal(t, "first ends: "+lease.ErrLost.Error(), notes.read()[2])
			record := durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
			require.JSONEq(t, `"second"`, string(record.Result))
		})
	})
	t.Run("a handler that obeys its context stops before anybody else begins", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			var stopped, begun time.Time
			first := kit.Worker(handles(func(ctx context.Context, _ *durable.Run[mailArgs]) error {
				<-ctx.Done()
				stopped = time.Now()
				return ctx.Err()
			}))
			id := enqueue(t, kit)
			kit.Advance(0)
			first.Pause()
			kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { begun = time.Now(); return nil }))
			kit.RunAll()
			durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
			require.Less(t, stopped, begun)
		})
	})
	t.Run("a short pause costs nothing", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			w := kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error {
				time.Sleep(time.Minute) //nolint:forbidigo // virtual time
				return nil
			}))
			id := enqueue(t, kit)
			kit.Advance(30 * time.Second)
			w.Pause()
			kit.Advance(2 * time.Minute)
			w.Resume()
			kit.RunDue()
			record := durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
			require.Zero(t, record.CrashCount)
			require.Empty(t, w.Refused())
		})
	})
	t.Run("a run of the shortest lease is taken over soon", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			short := func(c *durable.WorkerConfig) { c.Terms.Duration = lease.MinDuration }
			first := kit.Worker(handles(func(ctx context.Context, _ *durable.Run[mailArgs]) error { <-ctx.Done(); return ctx.Err() }), short)
			id := enqueue(t, kit)
			kit.Advance(0)
			first.Pause()
			kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { return nil }), short)
			kit.Advance(3 * time.Second)
			durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
		})
	})
}

func TestFreeze(t *testing.T) {
	t.Run("the worker takes its lease for valid while another has the run", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			ask, hold := make(chan struct{}), make(chan struct{})
			var valid bool
			var fences []lease.Fence
			first := kit.Worker(handles(func(ctx context.Context, run *durable.Run[mailArgs]) error {
				fences = append(fences, run.Fence)
				<-ask
				valid = run.Valid(ctx)
				<-hold
				return run.SetResult("first")
			}))
			id := enqueue(t, kit)
			kit.Advance(0)
			first.Freeze()
			kit.Worker(handles(func(_ context.Context, run *durable.Run[mailArgs]) error {
				fences = append(fences, run.Fence)
				return run.SetResult("second")
			}))
			kit.Advance(2 * durabletest.LeaseDuration)
			durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
			close(ask)
			kit.Advance(0)
			require.True(t, valid, "which is why an effect outside needs the fence")
			require.Less(t, fences[0], fences[1])

			close(hold)
			first.Resume()
			kit.Advance(time.Minute)
			require.Equal(t, []durable.RunID{id}, first.Refused())
			record := durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
			require.JSONEq(t, `"second"`, string(record.Result))
		})
	})
	t.Run("a worker that comes back loses what it holds and goes on", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			var causes []error
			var held atomic.Bool
			w := kit.Worker(handles(func(ctx context.Context, _ *durable.Run[mailArgs]) error {
				if held.Swap(true) {
					return nil
				}
				<-ctx.Done()
				causes = append(causes, context.Cause(ctx))
				return ctx.Err()
			}))
			id := enqueue(t, kit)
			kit.Advance(0)
			w.Freeze()
			kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { return nil }))
			kit.Advance(2 * durabletest.LeaseDuration)
			require.Empty(t, causes)
			w.Resume()
			kit.Advance(5 * time.Second)
			require.Equal(t, []error{lease.ErrLost}, causes)
			durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
			next := enqueue(t, kit)
			kit.RunDue()
			durabletest.RequireState(t, kit.Store, next, durable.Succeeded)
		})
	})
}

func TestKill(t *testing.T) {
	t.Run("nothing is settled and the lease runs out", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			began := time.Now()
			first := kit.Worker(handles(func(ctx context.Context, _ *durable.Run[mailArgs]) error { <-ctx.Done(); return nil }))
			id := enqueue(t, kit)
			kit.Advance(0)
			first.Kill()
			require.Equal(t, began, time.Now(), "a kill takes no time")
			kit.Advance(time.Minute)
			record := durabletest.RequireState(t, kit.Store, id, durable.Running)
			require.Equal(t, first.Name(), *record.Worker)
			kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { return nil }))
			kit.Advance(2 * durabletest.LeaseDuration)
			durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
			first.Resume() // the dead stay dead
			require.Empty(t, first.Refused())
		})
	})
	t.Run("work that must not begin twice is dead", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			first := kit.Worker(handles(func(ctx context.Context, _ *durable.Run[mailArgs]) error { <-ctx.Done(); return nil }))
			id := enqueue(t, kit, durable.OnCrash(durable.CrashDead))
			kit.Advance(0)
			first.Kill()
			kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { return nil }))
			kit.RunAll()
			durabletest.RequireState(t, kit.Store, id, durable.Dead)
		})
	})
}

func TestStop(t *testing.T) {
	t.Parallel()
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		w := kit.Worker(handles(func(ctx context.Context, _ *durable.Run[mailArgs]) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		id := enqueue(t, kit)
		kit.Advance(0)
		require.NoError(t, w.Stop())
		record := durabletest.RequireState(t, kit.Store, id, durable.Pending)
		require.Zero(t, record.Attempt, "a deploy spends no attempt")
	})
}

// A method that a worker calls and that is missing in wire would reach the
// store of a worker that is cut off.
func TestNothingPassesACutWire(t *testing.T) {
	t.Parallel()
	notCalled := []string{
		"Listen", "ListenFor", // only bring hints, and what is done about them fails
		"CountMatching", "Jobs", "Runs", "Counts", "ListSchedules", "ScheduleHistory", "SaveSchedule", "PutSchedule", "ChangeSchedule", "RunSchedule",
		"EndSession", "Operate", "Rerun", "Reveal", "SetQueue", "Queues", "Changes", "Workers", "Survey", "Series",
		"ListLimits", "ChangeLimit", "Gate", "CheckLimits", "LimitKeys", "Facts", "Problems", "ForgetSteps", "Batch", "Batches", "Members", "CloseBatch", "CancelBatch", "Waiters",
	}
	wire := reflect.ValueOf(durabletest.Wire())
	contract := reflect.TypeFor[durable.Store]()
	for i := range contract.NumMethod() {
		method := contract.Method(i)
		if slices.Contains(notCalled, method.Name) {
			continue
		}
		t.Run(method.Name, func(t *testing.T) {
			args := make([]reflect.Value, 0, method.Type.NumIn())
			for in := range method.Type.NumIn() {
				args = append(args, reflect.Zero(method.Type.In(in)))
			}
			args[0] = reflect.ValueOf(t.Context())
			call := wire.MethodByName(method.Name).Call
			if method.Type.IsVariadic() {
				call = wire.MethodByName(method.Name).CallSlice
			}
			var answer []reflect.Value
			require.NotPanics(t, func() { answer = call(args) }, "%s is missing in wire", method.Name)
			err, _ := answer[len(answer)-1].Interface().(error)
			require.Error(t, err)
			require.False(t, errors.Is(err, context.Canceled))
		})
	}
}
