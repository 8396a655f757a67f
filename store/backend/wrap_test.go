package backend_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// doors are the calls of users and operators.
func doors(ctx context.Context, db backend.Store) map[string]func() error {
	client, operator := durable.NewClient(db), operate.New(db, operate.Config{}).As("ann")
	job := durable.NewJob[string]("mail")
	run := job.New("x")
	schedule := store.Schedule{Name: "one", Rule: store.Every(time.Hour), Job: "mail", Queue: "default", MaxAttempts: 1, Args: []byte(`{}`)}
	holder := store.Holder{Run: run.ID, Claim: lease.NewClaimID()}
	return map[string]func() error{
		"enqueue":         func() error { _, err := job.Enqueue(ctx, client, "x"); return err },
		"enqueue badly":   func() error { _, err := durable.NewJob[string]("a b").Enqueue(ctx, client, "x"); return err },
		"enqueue no args": func() error { _, err := durable.NewJob[chan int]("a").Enqueue(ctx, client, nil); return err },
		"enqueue many":    func() error { _, err := client.Enqueue(ctx, run, durable.NewJob[string]("").New("x")); return err },
		"under":           func() error { _, err := db.EnqueueUnder(ctx, holder, run); return err },
		"wait":            func() error { _, err := client.Wait(ctx, store.NewRunID()); return err },
		"cancel":          func() error { _, err := operator.Cancel(ctx, "", run.ID); return err },
		"cancel badly":    func() error { _, err := operator.Cancel(ctx, "\xff", run.ID); return err },
		"retry":           func() error { _, err := operator.Retry(ctx, "", run.ID); return err },
		"delete all":      func() error { _, err := operator.DeleteAll(ctx, store.Filter{}, "", nil); return err },
		"delete badly":    func() error { _, err := operator.DeleteAll(ctx, store.Filter{Tag: "\xff"}, "", nil); return err },
		"rerun":           func() error { _, err := operator.Rerun(ctx, run.ID, nil); return err },
		"rerun directly":  func() error { _, err := db.Rerun(ctx, run.ID, run, "ann"); return err },
		"pause":           func() error { _, err := operator.PauseQueue(ctx, "default"); return err },
		"pause badly":     func() error { _, err := operator.PauseQueue(ctx, "a b"); return err },
		"queues":          func() error { _, err := operator.Queues(ctx, operate.Part{}); return err },
		"report":          func() error { return db.Report(ctx, holder, store.Report{Checkpoint: []byte(`1`)}) },
		"checkpoint":      func() error { _, err := db.Checkpoint(ctx, run.ID); return err },
		"schedules":       func() error { _, err := db.ListSchedules(ctx, "one"); return err },
		"past":            func() error { _, err := db.ScheduleHistory(ctx, "one", 1); return err },
		"save":            func() error { return db.SaveSchedule(ctx, schedule, "ann") },
		"save badly":      func() error { return db.SaveSchedule(ctx, store.Schedule{Name: "a b", Job: "a b"}, "") },
		"change":          func() error { return db.ChangeSchedule(ctx, "one", store.PauseSchedule, "ann") },
		"change badly":    func() error { return db.ChangeSchedule(ctx, "\x00", "jump", "") },
		"run schedule":    func() error { return db.RunSchedule(ctx, "one", store.NewRunID(), "", "ann") },
		"changes":         func() error { _, err := db.Changes(ctx, store.ChangeFilter{Limit: -1}); return err },
		"list badly":      func() error { _, err := db.Runs(ctx, store.Filter{Limit: -1}); return err },
		"lock": func() error {
			_, err := lock.NewLocker(db.Locks(), lock.LockerConfig{}).Acquire(ctx, "x", lock.Terms{Terms: lease.Terms{Duration: time.Minute}, Policy: lock.Fail})
			return err
		},
		"lock badly": func() error {
			_, err := lock.NewLocker(db.Locks(), lock.LockerConfig{}).Acquire(ctx, "\x00", lock.Terms{Policy: lock.Fail})
			return err
		},
		"locks":  func() error { _, err := db.Locks().ListLocks(ctx, "\xff", 1); return err },
		"forced": func() error { _, err := db.Locks().ForceRelease(ctx, lock.Force{}); return err },
		"schema": func() error {
			_, err := durable.ScheduleOf(store.JobInfo{Name: "a b"}, "c d", json.RawMessage(`{`), store.Cron("* *", "Nowhere"))
			return err
		},
	}
}

// An error says once what was being done: a call that hands on an error which
// names the call does not name it again.
func TestErrorsAreWrappedOnce(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]string{
		"postgres": pgtest.Database(t), "sqlite": "sqlite:" + filepath.Join(t.TempDir(), "x.db"), "memory": "memory:",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := backend.Open(t.Context(), dsn, backend.Config{})
			require.NoError(t, err)
			t.Cleanup(store.Close)
			if name != "memory" {
				saidOnce(t, "not migrated", doors(t.Context(), store))
			}
			_, err = store.Migrate(t.Context())
			require.NoError(t, err)
			saidOnce(t, "empty", doors(t.Context(), store))
			cancelled, cancel := context.WithCancel(t.Context())
			cancel()
			saidOnce(t, "cancelled", doors(cancelled, store))
		})
	}
}

func saidOnce(t *testing.T, when string, doors map[string]func() error) {
	t.Helper()
	for name, call := range doors {
		if name == "wait" && when == "not migrated" {
			continue // it asks for about a minute
		}
		err := call()
		if err == nil || errors.Is(err, store.ErrNotFound) && strings.Count(err.Error(), ":") < 2 {
			continue
		}
		for line := range strings.Lines(err.Error()) {
			seen := map[string]bool{}
			for _, part := range strings.Split(strings.TrimSpace(line), ": ") {
				part, _, _ = strings.Cut(part, " \"")
				require.False(t, seen[part], "%s, %s: %q occurs twice in %q", when, name, part, line)
				seen[part] = true
			}
		}
	}
}
