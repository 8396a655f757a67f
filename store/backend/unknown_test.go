package backend_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// edited is a store whose rows a test changes as a person might, or a newer program.
type edited struct {
	backend.Store

	t  *testing.T
	db *sql.DB
}

// onEdited runs a test on each engine that has rows.
func onEdited(t *testing.T, test func(t *testing.T, s edited)) {
	t.Helper()
	for _, engine := range engines[1:] {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			dsn := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
			if engine == "postgres" {
				dsn = pgtest.Database(t)
			}
			s, err := backend.Open(t.Context(), dsn, backend.Config{})
			require.NoError(t, err)
			t.Cleanup(s.Close)
			_, err = s.Migrate(t.Context())
			require.NoError(t, err)
			one := edited{Store: s, t: t}
			if engine == "postgres" {
				one.db = pgtest.Open(t, dsn)
			} else {
				one.db, err = sql.Open("sqlite", backend.SQLite(s).DSN())
				require.NoError(t, err)
				t.Cleanup(func() { _ = one.db.Close() })
			}
			test(t, one)
		})
	}
}

// edit changes one row of a table; $1 is the key.
func (s edited) edit(statement string, key any) {
	s.t.Helper()
	if backend.Postgres(s.Store) != nil {
		statement = strings.NewReplacer("UPDATE ", "UPDATE durable.").Replace(statement)
	} else if id, is := key.(uuid.UUID); is {
		key = id[:]
	}
	done, err := s.db.ExecContext(s.t.Context(), statement, key)
	require.NoError(s.t, err)
	rows, err := done.RowsAffected()
	require.NoError(s.t, err)
	require.Equal(s.t, int64(1), rows, statement)
}

// began are the args of runs whose handler was called.
type began struct {
	mu   sync.Mutex
	args map[string]int
}

func (b *began) has(args string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.args[args] > 0
}

// work starts a worker of the job "mail".
func (s edited) work(options ...durable.Option) *began {
	s.t.Helper()
	b := &began{args: map[string]int{}}
	w := durable.NewWorker(s.Store, durable.WorkerConfig{PollInterval: 20 * time.Millisecond})
	durable.Register(w, durable.NewJob[string]("mail", options...), func(_ context.Context, run *durable.Run[string]) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.args[run.Args]++
		return nil
	})
	ctx, stop := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		require.NoError(s.t, <-ended)
	})
	return b
}

func (s edited) enqueue(args string, uses ...store.LimitUse) store.RunID {
	s.t.Helper()
	run := store.NewRun{ID: store.NewRunID(), Job: "mail", Queue: "default", Args: []byte(`"` + args + `"`), MaxAttempts: 3, Limits: uses}
	_, err := s.Enqueue(s.t.Context(), run)
	require.NoError(s.t, err)
	return run.ID
}

// TestALimitThatIsNotKnownAdmitsNothing: whatever of a limit's row this program does not know,
// the limit admits nothing and says why, other limits go on, and an operator can turn it off.
func TestALimitThatIsNotKnownAdmitsNothing(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]string{
		"limit kind(9) is unknown":   "kind = 9",
		"limit action(9) is unknown": "action = 9",
		"limit state(9) is unknown":  "state = 9",
		"period 0s":                  "period = 0",
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			onEdited(t, func(t *testing.T, s edited) {
				limit := store.Limit{Kind: store.LimitFixedWindow, Max: 100, Period: time.Hour}
				odd, fine := limit, limit
				odd.Name, fine.Name = "odd", "fine"
				require.NoError(t, s.Declare(t.Context(), store.Declaration{Worker: store.WorkerID{Name: "w", Instance: uuid.UUID{2}}, Limits: []store.Limit{odd, fine}}))
				s.enqueue("odd", store.LimitUse{Limit: "odd"})
				s.enqueue("fine", store.LimitUse{Limit: "fine"})
				s.enqueue("both", store.LimitUse{Limit: "odd"}, store.LimitUse{Limit: "fine"})
				s.edit("UPDATE limits SET "+change+" WHERE name = $1", "odd")
				b := s.work()
				require.Eventually(t, func() bool { return b.has("fine") }, time.Minute, 10*time.Millisecond)
				s.enqueue("later", store.LimitUse{Limit: "fine"})
				require.Eventually(t, func() bool { return b.has("later") }, time.Minute, 10*time.Millisecond)
				require.False(t, b.has("odd") || b.has("both"))
				limits, err := s.ListLimits(t.Context(), store.LimitFilter{Names: []string{"odd"}})
				require.NoError(t, err)
				require.Contains(t, limits[0].Fault, says)
				_, err = s.UseLimit(t.Context(), store.LimitRequest{Limit: "odd", Usage: store.UsageTake})
				require.ErrorIs(t, err, store.ErrInvalid)

				require.NoError(t, s.ChangeLimit(t.Context(), store.LimitChange{Command: store.DisableLimit, Limit: store.Limit{Name: "odd"}, By: "ann"}))
				require.Eventually(t, func() bool { return b.has("odd") && b.has("both") }, time.Minute, 10*time.Millisecond)
			})
		})
	}
}

// TestARunWhoseLimitsCannotBeReadWaits: it does not start without them, and stops no other.
func TestARunWhoseLimitsCannotBeReadWaits(t *testing.T) {
	t.Parallel()
	onEdited(t, func(t *testing.T, s edited) {
		limit := store.Limit{Name: "api", Kind: store.LimitSemaphore, Max: 100}
		require.NoError(t, s.Declare(t.Context(), store.Declaration{Worker: store.WorkerID{Name: "w", Instance: uuid.UUID{2}}, Limits: []store.Limit{limit}}))
		odd := s.enqueue("odd", store.LimitUse{Limit: "api", Weight: 2})
		text := `'["api*2!someday"]'`
		if backend.Postgres(s.Store) != nil {
			text = `'{api*2!someday}'`
		}
		s.edit("UPDATE runs SET limits = "+text+" WHERE id = $1", odd)
		b := s.work()
		for _, args := range []string{"one", "two"} {
			s.enqueue(args, store.LimitUse{Limit: "api"})
			require.Eventually(t, func() bool { return b.has(args) }, time.Minute, 10*time.Millisecond)
		}
		require.False(t, b.has("odd"))
	})
}

// TestARunWhoseCrashPolicyIsNotKnownIsNotBegunTwice: after a crash it is dead.
func TestARunWhoseCrashPolicyIsNotKnownIsNotBegunTwice(t *testing.T) {
	t.Parallel()
	onEdited(t, func(t *testing.T, s edited) {
		odd := s.enqueue("odd")
		heads, err := s.Heads(t.Context(), store.Serves{Queues: []string{"default"}, Jobs: []string{"mail"}})
		require.NoError(t, err)
		got, err := s.Claim(t.Context(), store.ClaimRequest{
			Claim: lease.NewClaimID(), Worker: store.WorkerID{Name: "w", Instance: uuid.UUID{2}}, Duration: time.Second, Limit: 1,
			Steps: []store.Step{{Lane: heads[0].Lane, Take: 1}},
		})
		require.NoError(t, err)
		require.Len(t, got, 1)
		s.edit("UPDATE runs SET on_crash = 7 WHERE id = $1", odd)
		require.Eventually(t, func() bool {
			_, err := s.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 3, Limit: 10})
			require.NoError(t, err)
			r, err := s.Run(t.Context(), odd)
			require.NoError(t, err)
			return r.State == store.Dead
		}, time.Minute, 50*time.Millisecond)
	})
}

// TestAScheduleOfANewerProgramIsNotEvaluated: a member of its rule or plan that this program
// does not know may be what keeps it from firing.
func TestAScheduleOfANewerProgramIsNotEvaluated(t *testing.T) {
	t.Parallel()
	onEdited(t, func(t *testing.T, s edited) {
		for _, name := range []string{"odd", "fine"} {
			one, err := durable.ScheduleOf(durable.NewJob[string]("mail").Info(), name, []byte(`"x"`), durable.Every(time.Second))
			require.NoError(t, err)
			require.NoError(t, s.SaveSchedule(t.Context(), one, "ann"))
		}
		s.edit(`UPDATE schedules SET spec = '{"rule": {"every": "1s"}, "plan": {"holidays": "DE"}}' WHERE name = $1`, "odd")
		s.work()
		require.Eventually(t, func() bool {
			past, err := s.ScheduleHistory(t.Context(), "fine", 10)
			require.NoError(t, err)
			return len(past) > 2
		}, time.Minute, 10*time.Millisecond)
		listed, err := s.ListSchedules(t.Context(), "odd")
		require.NoError(t, err)
		require.Contains(t, *listed[0].Fault, `unknown field "holidays"`)
		require.Equal(t, durable.Every(time.Second), listed[0].Rule, "it shows what it knows")
		past, err := s.ScheduleHistory(t.Context(), "odd", 10)
		require.NoError(t, err)
		require.Len(t, past, 1, "its creation")
	})
}

// TestAJobWhoseLimitsCannotBeReadIsNotEnqueuedWithoutThem, and others are, by those who do
// not have its code.
func TestAJobWhoseLimitsCannotBeReadIsNotEnqueuedWithoutThem(t *testing.T) {
	t.Parallel()
	onEdited(t, func(t *testing.T, s edited) {
		require.NoError(t, s.Declare(t.Context(), store.Declaration{
			Worker: store.WorkerID{Name: "w", Instance: uuid.UUID{2}},
			Jobs:   []store.JobInfo{{Name: "odd", Queue: "default", MaxAttempts: 1}, {Name: "fine", Queue: "default", MaxAttempts: 1}},
		}))
		s.edit(`UPDATE jobs SET limits = '[{"use":"api!someday"}]' WHERE name = $1`, "odd")
		jobs, err := s.Jobs(t.Context())
		require.NoError(t, err)
		require.Len(t, jobs, 2)
		for _, job := range jobs {
			run := durable.RunOf(job, []byte("{}"))
			_, err := s.Enqueue(t.Context(), run)
			if job.Name == "fine" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "unreadable")
			}
		}
	})
}

// TestARunWhoseStateIsNotKnownIsLeftAlone: it is listed, and stops nothing.
func TestARunWhoseStateIsNotKnownIsLeftAlone(t *testing.T) {
	t.Parallel()
	onEdited(t, func(t *testing.T, s edited) {
		odd := s.enqueue("odd")
		s.edit("UPDATE runs SET state = 7 WHERE id = $1", odd)
		b := s.work()
		s.enqueue("fine")
		require.Eventually(t, func() bool { return b.has("fine") }, time.Minute, 10*time.Millisecond)
		require.False(t, b.has("odd"))
		page, err := s.Runs(t.Context(), store.Filter{IDs: []store.RunID{odd}})
		require.NoError(t, err)
		require.Equal(t, "state(7)", page.Runs[0].State.String())
	})
}
