package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// beats are schedules of one second while workers die and operators interfere.
type beats struct {
	t       *testing.T
	store   backend.Store
	dsn     string
	changes map[string][]change // by name, ascending
	deleted map[string]bool
}

// change is a call that has given a schedule an interval; none: paused it.
type change struct {
	began, ended time.Time
	every        time.Duration
}

const beatSchedules = 500

// TestSchedules_NothingMissedNothingTwice runs 500 schedules of one second on
// eight workers that are killed, terminated and started at random, while
// schedules are edited, paused, resumed and deleted. What became runs and what is
// recorded as skipped is the calendar, each instant once. DURABLE_CHAOS_FOR makes it longer.
func TestSchedules_NothingMissedNothingTwice(t *testing.T) {
	t.Parallel()
	lasts := 12 * time.Second
	if text := os.Getenv("DURABLE_CHAOS_FOR"); text != "" {
		var err error
		lasts, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	dsn := pgtest.Database(t)
	b := &beats{t: t, store: openStore(t, dsn), dsn: dsn, changes: map[string][]change{}, deleted: map[string]bool{}}
	for n := range beatSchedules {
		b.save(fmt.Sprintf("beat-%03d", n), 0, time.Second)
	}
	kills := b.disturb(lasts)
	for name := range b.changes {
		if changes := b.changes[name]; !b.deleted[name] {
			if changes[len(changes)-1].every > 0 { // on a busy machine the workers may not have come to it yet
				require.Eventually(t, func() bool { return b.planned(name) != nil }, 3*time.Minute, 50*time.Millisecond, name)
			}
			b.change(name, 0, func() error { return b.store.ChangeSchedule(t.Context(), name, store.PauseSchedule, "ann") })
		}
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	b.ended(conn)
	b.compare(conn)
	t.Logf("%v, %d workers taken out", lasts, kills)
}

// save stores a schedule of an interval, new or instead of a generation.
func (b *beats) save(name string, generation int64, every time.Duration) {
	b.t.Helper()
	args, err := json.Marshal(napArgs{For: store.Duration(5 * time.Millisecond)})
	require.NoError(b.t, err)
	info := nap.Info()
	b.change(name, every, func() error {
		return b.store.SaveSchedule(b.t.Context(), store.Schedule{Name: name, Generation: generation, Rule: durable.Every(every),
			Job: info.Name, Queue: info.Queue, MaxAttempts: info.MaxAttempts, Args: args}, "ann")
	})
}

// change notes a call that changes a schedule.
func (b *beats) change(name string, every time.Duration, call func() error) {
	b.t.Helper()
	began := time.Now()
	require.NoError(b.t, call())
	b.changes[name] = append(b.changes[name], change{began, time.Now(), every})
}

// disturb takes workers out and starts others, edits and deletes, for a while.
func (b *beats) disturb(lasts time.Duration) (kills int) {
	started := 0
	start := func() *worker {
		started++
		return startWorker(b.t, b.dsn, fmt.Sprintf("w%d", started), "DURABLE_MAX_CONCURRENT_RUNS=50", "DURABLE_DATABASE_MAX_CONNS=4")
	}
	var workers []*worker
	for range 8 {
		workers = append(workers, start())
	}
	takeOut := func() {
		victim := rand.IntN(len(workers))
		signal := syscall.SIGKILL
		if rand.IntN(3) == 0 {
			signal = syscall.SIGTERM
		}
		workers[victim].signal(signal)
		workers[victim] = start()
		kills++
	}
	for until := time.Now().Add(lasts); time.Now().Before(until); {
		<-time.After(time.Duration(100+rand.IntN(400)) * time.Millisecond)
		takeOut()
		instant := time.Now().Truncate(time.Second).Add(time.Second) // changes fall about when the schedules are due
		<-time.After(time.Until(instant) + time.Duration(rand.IntN(12)-6)*time.Millisecond)
		b.interfere()
		takeOut()
	}
	return kills
}

// interfere edits some schedules, pauses or resumes one and deletes one.
func (b *beats) interfere() {
	b.t.Helper()
	for range 3 {
		name := fmt.Sprintf("beat-%03d", rand.IntN(beatSchedules))
		if b.deleted[name] {
			continue
		}
		if found := b.planned(name); found != nil {
			b.save(name, found.Generation, time.Duration(1+rand.IntN(3))*time.Second)
		}
	}
	b.pauseOrResume(fmt.Sprintf("beat-%03d", rand.IntN(20)))
	name := fmt.Sprintf("beat-%03d", rand.IntN(beatSchedules))
	err := b.store.ChangeSchedule(b.t.Context(), name, store.DeleteSchedule, "ann")
	if !errors.Is(err, durable.ErrNotFound) {
		require.NoError(b.t, err)
	}
	b.deleted[name] = true
}

// planned finds a schedule that is not paused and that a worker has planned. What
// comes due of another until its next change is not recorded.
func (b *beats) planned(name string) *store.ScheduleRecord {
	b.t.Helper()
	found, err := b.store.ListSchedules(b.t.Context(), name)
	require.NoError(b.t, err)
	if found[0].Paused || found[0].NextAt == nil {
		return nil
	}
	return &found[0]
}

// pauseOrResume does the one or the other.
func (b *beats) pauseOrResume(name string) {
	b.t.Helper()
	if b.deleted[name] {
		return
	}
	action, every := store.PauseSchedule, time.Duration(0)
	if changes := b.changes[name]; changes[len(changes)-1].every == 0 {
		action, every = store.ResumeSchedule, changes[len(changes)-2].every
	} else if b.planned(name) == nil {
		return
	}
	b.change(name, every, func() error { return b.store.ChangeSchedule(b.t.Context(), name, action, "ann") })
}

// ended waits until every run has ended.
func (b *beats) ended(conn *pgx.Conn) {
	b.t.Helper()
	open := 0
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		require.NoError(b.t, conn.QueryRow(b.t.Context(), "select count(*) from durable.runs where state < 2").Scan(&open))
		if open == 0 {
			return
		}
	}
	b.t.Fatalf("%d runs have not ended", open)
}

// compare holds what became of each schedule's instants against its intervals.
func (b *beats) compare(conn *pgx.Conn) {
	b.t.Helper()
	occurrences, skipped := 0, 0
	for name, changes := range b.changes {
		if b.deleted[name] {
			continue
		}
		made, skips := b.made(conn, name), b.skips(conn, name)
		occurrences += len(made)
		for i, c := range changes[:len(changes)-1] {
			if c.every == 0 {
				continue
			}
			for at := c.ended.Truncate(c.every).Add(c.every); at.Before(changes[i+1].began); at = at.Add(c.every) {
				left := slices.ContainsFunc(skips, func(s store.Skip) bool { return !at.Before(s.First) && !at.After(s.Last) })
				require.True(b.t, made[at.UnixMicro()] || left, "%s: %v of an interval of %v from %v to %v; skips %v",
					name, at, c.every, c.ended, changes[i+1].began, skips)
				if left {
					skipped++
				}
			}
		}
	}
	var failed int
	require.NoError(b.t, conn.QueryRow(b.t.Context(), `select count(*) from durable.runs where state <> 2`).Scan(&failed))
	require.Zero(b.t, failed)
	require.Greater(b.t, occurrences, beatSchedules, "instants became runs; how many depends on the machine")
	b.t.Logf("%d occurrences, %d instants skipped and recorded, none missed, none twice", occurrences, skipped)
}

// made are the instants of a schedule that became runs, each one once whatever
// its generation, and an instant of one of its intervals.
func (b *beats) made(conn *pgx.Conn, name string) map[int64]bool {
	b.t.Helper()
	rows, err := conn.Query(b.t.Context(), `select generation, occurrence::timestamptz from durable.runs
		where schedule = (select id from durable.schedules where name = $1) and occurrence is not null order by 2, 1`, name)
	require.NoError(b.t, err)
	made := map[int64]bool{}
	var generation int64
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&generation, &at}, func() error {
		require.False(b.t, made[at.UnixMicro()], "%s: %v twice, the second time of generation %d", name, at, generation)
		made[at.UnixMicro()] = true
		require.True(b.t, b.meant(name, at), "%s: %v of generation %d, which is no one's instant", name, at, generation)
		return nil
	})
	require.NoError(b.t, err)
	return made
}

// meant tells whether an instant is one of an interval that may have been in
// force then.
func (b *beats) meant(name string, at time.Time) bool {
	changes := b.changes[name]
	for i, c := range changes {
		over := i+1 < len(changes) && at.After(changes[i+1].ended)
		if c.every > 0 && at.Equal(at.Truncate(c.every)) && !at.Before(c.began) && !over {
			return true
		}
	}
	return false
}

func (b *beats) skips(conn *pgx.Conn, name string) []store.Skip {
	b.t.Helper()
	rows, err := conn.Query(b.t.Context(), `select first_at, last_at, reason from durable.skips
		where schedule = (select id from durable.schedules where name = $1) order by id`, name)
	require.NoError(b.t, err)
	skips, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s store.Skip, err error) {
		err = row.Scan(&s.First, &s.Last, &s.Reason)
		return s, err
	})
	require.NoError(b.t, err)
	return skips
}
