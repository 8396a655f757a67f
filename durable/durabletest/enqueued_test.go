package durabletest_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store/memory"
	"github.com/durable-worker/durable-worker/store/postgres"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// recorder is a test whose failures are noted.
type recorder struct {
	testing.TB
	said   []string
	failed bool
}

func (r *recorder) Errorf(format string, args ...any) {
	r.said, r.failed = append(r.said, fmt.Sprintf(format, args...)), true
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// fails executes what is to fail, and returns what it said.
func fails(t *testing.T, what func(tb testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { defer close(done); what(r) }()
	<-done
	require.True(t, r.failed, "it did not fail")
	return strings.Join(r.said, "\n")
}

func toBob(args mailArgs, _ durable.Record) bool { return args.To == "bob" }

func urgent(_ mailArgs, record durable.Record) bool { return record.Priority > 0 }

// engines opens a store of each engine.
func engines() map[string]func(t *testing.T) durable.Store {
	return map[string]func(t *testing.T) durable.Store{
		"memory": func(*testing.T) durable.Store { return memory.New(memory.Config{}) },
		"SQLite": func(t *testing.T) durable.Store {
			store, err := sqlite.Open(t.Context(), t.TempDir()+"/durable.db", sqlite.Config{})
			require.NoError(t, err)
			t.Cleanup(store.Close)
			_, err = store.Migrate(t.Context())
			require.NoError(t, err)
			return store
		},
		"PostgreSQL": func(t *testing.T) durable.Store {
			store, err := postgres.Open(t.Context(), pgtest.Database(t), postgres.Config{MaxConns: 4})
			require.NoError(t, err)
			t.Cleanup(store.Close)
			_, err = store.Migrate(t.Context())
			require.NoError(t, err)
			return store
		},
	}
}

func TestAssertions(t *testing.T) {
	other := durable.NewJob[int]("count")
	for engine, open := range engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			store := open(t)
			require.Contains(t, fails(t, func(tb testing.TB) { durabletest.RequireEnqueued(tb, store, mailJob()) }),
				`no run of job "mail" is enqueued; nothing is`)
			durabletest.RequireNotEnqueued(t, store, mailJob())

			runs := []durable.NewRun{mailJob().New(mailArgs{To: "ada"}), mailJob().New(mailArgs{To: "bob"}, durable.Priority(2)), other.New(3)}
			_, err := store.Enqueue(t.Context(), runs...)
			require.NoError(t, err)

			found := durabletest.RequireEnqueued(t, store, mailJob(), toBob)
			require.Equal(t, runs[1].ID, found.Record.ID)
			require.Equal(t, mailArgs{To: "bob"}, found.Args)
			require.Equal(t, 3, durabletest.RequireEnqueued(t, store, other).Args)
			durabletest.RequireEnqueued(t, store, mailJob(), toBob, urgent)
			all := durabletest.Enqueued(t, store, mailJob())
			require.Len(t, all, 2)
			require.Equal(t, "ada", all[0].Args.To, "in the order in which they were enqueued")

			said := fails(t, func(tb testing.TB) {
				durabletest.RequireEnqueued(tb, store, mailJob(), func(args mailArgs, _ durable.Record) bool { return args.To == "eve" })
			})
			require.Contains(t, said, `no run of job "mail" that matches is enqueued; enqueued last are, newest first:`)
			require.Contains(t, said, `args={"to":"ada"}`)
			require.Contains(t, said, "job=count")
			said = fails(t, func(tb testing.TB) { durabletest.RequireEnqueued(tb, store, mailJob()) })
			require.Contains(t, said, `2 runs of job "mail" are enqueued, want one`)
			said = fails(t, func(tb testing.TB) { durabletest.RequireNotEnqueued(tb, store, mailJob(), urgent) })
			require.Contains(t, said, runs[1].ID.String())
			require.NotContains(t, said, runs[0].ID.String())
			durabletest.RequireNotEnqueued(t, store, durable.NewJob[int]("nothing"))

			durabletest.RequireState(t, store, runs[0].ID, durable.Pending)
			said = fails(t, func(tb testing.TB) { durabletest.RequireState(tb, store, runs[0].ID, durable.Dead) })
			require.Contains(t, said, "a run is pending, want dead:\n  "+runs[0].ID.String())
			said = fails(t, func(tb testing.TB) { durabletest.RequireState(tb, store, durable.NewRunID(), durable.Dead) })
			require.Contains(t, said, "there is no run")
			said = fails(t, func(tb testing.TB) { durabletest.Enqueued(tb, store, durable.NewJob[string]("mail")) })
			require.Contains(t, said, `are not those of job "mail"`)
		})
	}
}

func TestEnqueuedReadsEveryPage(t *testing.T) {
	t.Parallel()
	store, runs := memory.New(memory.Config{}), []durable.NewRun(nil)
	job := durable.NewJob[int]("count")
	for i := range 450 {
		runs = append(runs, job.New(i))
	}
	_, err := store.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	found := durabletest.Enqueued(t, store, job)
	require.Len(t, found, 450)
	for i := range found {
		require.Equal(t, i, found[i].Args)
		durabletest.RequireState(t, store, runs[i].ID, durable.Pending)
	}
}

// play runs a kit whose failures are expected.
func play(t *testing.T, script func(tb testing.TB, kit *durabletest.Kit)) (said string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		said = fails(t, func(tb testing.TB) {
			kit, end := durabletest.NewKit(tb)
			defer end()
			script(tb, kit)
		})
	})
	return said
}

func TestKitFails(t *testing.T) {
	add := func(tb testing.TB, kit *durabletest.Kit, options ...durable.Option) {
		if _, err := mailJob().Enqueue(tb.Context(), kit.Client, mailArgs{To: "ada"}, options...); err != nil {
			tb.Error(err)
		}
	}
	t.Run("a run that is retried forever", func(t *testing.T) {
		t.Parallel()
		said := play(t, func(tb testing.TB, kit *durabletest.Kit) {
			kit.Limits.Executions = 1000
			kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { return errBusy }))
			add(tb, kit, durable.MaxAttempts(10_000))
			kit.RunAll()
		})
		require.Contains(t, said, "runs are still waiting or running after")
		require.Regexp(t, `1000 executions \(\{Succeeded:0 Failed:(999|1000) `, said) // the last one may still be settling
		require.Contains(t, said, "job=mail")
		require.Contains(t, said, `error="busy"`)
	})
	t.Run("a run that begins again immediately", func(t *testing.T) {
		t.Parallel()
		for _, call := range []func(kit *durabletest.Kit){
			func(kit *durabletest.Kit) { kit.RunDue() },
			func(kit *durabletest.Kit) { kit.Advance(time.Hour) },
		} {
			said := play(t, func(tb testing.TB, kit *durabletest.Kit) {
				kit.Limits.Executions = 1000
				kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { return durable.Snooze(0) }))
				add(tb, kit)
				call(kit)
			})
			require.Contains(t, said, "runs are still due or running after")
			require.Contains(t, said, "1000 executions")
		}
	})
	t.Run("a handler that waits for something that does not come", func(t *testing.T) {
		t.Parallel()
		said := play(t, func(tb testing.TB, kit *durabletest.Kit) {
			kit.Limits.Time = time.Hour
			kit.Worker(handles(func(ctx context.Context, _ *durable.Run[mailArgs]) error { <-ctx.Done(); return nil }))
			add(tb, kit)
			kit.RunDue()
		})
		require.Contains(t, said, "after 1h0m0s and 1 executions")
		require.Contains(t, said, "running attempt=1/3")
	})
	t.Run("a handler that ignores its end", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			hold := make(chan struct{})
			said := fails(t, func(tb testing.TB) {
				kit, end := durabletest.NewKit(tb)
				defer end()
				kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { waitFor(hold); return nil }))
				add(tb, kit)
				kit.Advance(0)
			})
			require.Contains(t, said, "worker-1 could not be stopped")
			require.Contains(t, said, "durabletest_test.waitFor", "its stack is shown")
			close(hold) // else the bubble cannot end
		})
	})
	t.Run("no one to execute anything", func(t *testing.T) {
		t.Parallel()
		said := play(t, func(_ testing.TB, kit *durabletest.Kit) { kit.RunDue() })
		require.Contains(t, said, "RunDue without a worker")
	})
	t.Run("a worker with faults", func(t *testing.T) {
		t.Parallel()
		said := play(t, func(_ testing.TB, kit *durabletest.Kit) {
			kit.Worker(func(*durable.Worker) {}, func(c *durable.WorkerConfig) { c.MaxCrashes = 1 })
		})
		require.Contains(t, said, "no job is registered")
		require.Contains(t, said, "max crashes 1")
	})
	t.Run("time does not go back", func(t *testing.T) {
		t.Parallel()
		said := play(t, func(_ testing.TB, kit *durabletest.Kit) { kit.AdvanceTo(time.Now().Add(-time.Second)) })
		require.Contains(t, said, "time does not go back")
	})
}

func waitFor(hold chan struct{}) { <-hold }

func TestAssertions_IgnoreAMatchThatIsNil(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	_, err := mailJob().Enqueue(t.Context(), durable.NewClient(store), mailArgs{To: "ann"})
	require.NoError(t, err)
	require.Equal(t, "ann", durabletest.RequireEnqueued(t, store, mailJob(), nil).Args.To)
}
