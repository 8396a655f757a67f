package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/backend"
	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
)

// beats are schedules of one second while workers die and operators interfere.
type beats struct {
	t       *testing.T
	store   backend.Store
	dsn     string
	every   map[string]map[int64]time.Duration // by name and generation
	deleted map[string]bool
}

const beatSchedules = 500

// TestSchedules_NothingMissedNothingTwice runs 500 schedules of one second on
// eight workers that are killed, terminated and started at random, while
// schedules are edited and deleted. What became runs and what is recorded as
// skipped is the calendar, each instant once. DURABLE_CHAOS_FOR makes it longer.
func TestSchedules_NothingMissedNothingTwice(t *testing.T) {
	t.Parallel()
	lasts := 12 * time.Second
	if text := os.Getenv("DURABLE_CHAOS_FOR"); text != "" {
		var err error
		lasts, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	dsn := pgtest.Database(t)
	b := &beats{t: t, store: openStore(t, dsn), dsn: dsn, every: map[string]map[int64]time.Duration{}, deleted: map[string]bool{}}
	for n := range beatSchedules {
		b.save(fmt.Sprintf("beat-%03d", n), 0, time.Second)
	}
	kills := b.disturb(lasts)
	for name := range b.every {
		if !b.deleted[name] {
			require.NoError(t, b.store.ChangeSchedule(t.Context(), name, durable.PauseSchedule, "ann"))
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
	args, err := json.Marshal(napArgs{For: durable.Duration(5 * time.Millisecond)})
	require.NoError(b.t, err)
	info := nap.Info()
	err = b.store.SaveSchedule(b.t.Context(), durable.Schedule{Name: name, Generation: generation, Rule: durable.Every(every),
		Job: info.Name, Queue: info.Queue, MaxAttempts: info.MaxAttempts, Args: args}, "ann")
	require.NoError(b.t, err)
	if b.every[name] == nil {
		b.every[name] = map[int64]time.Duration{}
	}
	b.every[name][generation+1] = every
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
	for until := time.Now().Add(lasts); time.Now().Before(until); {
		<-time.After(time.Duration(300+rand.IntN(700)) * time.Millisecond)
		victim := rand.IntN(len(workers))
		signal := syscall.SIGKILL
		if rand.IntN(3) == 0 {
			signal = syscall.SIGTERM
		}
		workers[victim].signal(signal)
		workers[victim] = start()
		kills++
		b.interfere()
	}
	return kills
}

// interfere edits some schedules and deletes one.
func (b *beats) interfere() {
	b.t.Helper()
	for range 3 {
		name := fmt.Sprintf("beat-%03d", rand.IntN(beatSchedules))
		if b.deleted[name] {
			continue
		}
		found, err := b.store.ListSchedules(b.t.Context(), name)
		require.NoError(b.t, err)
		b.save(name, found[0].Generation, time.Duration(1+rand.IntN(3))*time.Second)
	}
	name := fmt.Sprintf("beat-%03d", rand.IntN(beatSchedules))
	err := b.store.ChangeSchedule(b.t.Context(), name, durable.DeleteSchedule, "ann")
	if !errors.Is(err, durable.ErrNotFound) {
		require.NoError(b.t, err)
	}
	b.deleted[name] = true
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

// compare holds what became of each schedule's instants against its interval.
func (b *beats) compare(conn *pgx.Conn) {
	b.t.Helper()
	occurrences, skipped := 0, 0
	for name, generations := range b.every {
		if b.deleted[name] {
			continue
		}
		told, of := b.told(conn, name)
		occurrences, skipped = occurrences+of.occurrences, skipped+of.skipped
		for generation, instants := range told {
			every := generations[generation]
			require.NotZero(b.t, every, "%s: a run of generation %d, which nobody made", name, generation)
			for i := 1; i < len(instants); i++ {
				require.Equal(b.t, every, instants[i].Sub(instants[i-1]), "%s, generation %d: between %v and %v of %v", name, generation,
					instants[i-1], instants[i], instants)
			}
		}
	}
	var twice, failed int
	require.NoError(b.t, conn.QueryRow(b.t.Context(), `select count(*) from (select from durable.runs where schedule is not null
		group by schedule, generation, occurrence having count(*) > 1) d`).Scan(&twice))
	require.NoError(b.t, conn.QueryRow(b.t.Context(), `select count(*) from durable.runs where state <> 2`).Scan(&failed))
	require.Zero(b.t, twice)
	require.Zero(b.t, failed)
	require.Greater(b.t, occurrences, beatSchedules, "instants became runs; how many depends on the machine")
	b.t.Logf("%d occurrences, %d instants skipped and recorded, none missed, none twice", occurrences, skipped)
}

type tally struct{ occurrences, skipped int }

// told are the instants that became runs or are recorded as skipped, by
// generation, ascending. A skip does not say its generation: it is that of the
// instants before it if it goes on from them, otherwise that of the next run.
func (b *beats) told(conn *pgx.Conn, name string) (map[int64][]time.Time, tally) {
	b.t.Helper()
	rows, err := conn.Query(b.t.Context(), `
		with one as (select id from durable.schedules where name = $1),
		made as (select generation, occurrence::timestamptz as first_at, occurrence::timestamptz as last_at from durable.runs where schedule = (select id from one)
		         and occurrence is not null),
		left_out as (select null::bigint, first_at, last_at from durable.skips where schedule = (select id from one))
		select * from made union all select * from left_out order by first_at, generation nulls last`, name)
	require.NoError(b.t, err)
	all := map[int64][]time.Time{}
	var of tally
	add := func(generation int64, first, last time.Time) {
		step := max(b.every[name][generation], time.Second) // compare says which nobody made
		for at := first; !at.After(last); at = at.Add(step) {
			all[generation] = append(all[generation], at)
		}
	}
	var current int64
	var early [][2]time.Time
	for rows.Next() {
		var generation *int64
		var first, last time.Time
		require.NoError(b.t, rows.Scan(&generation, &first, &last))
		before := all[current]
		switch {
		case generation != nil:
			current = *generation
			for _, skip := range early {
				add(current, skip[0], skip[1])
			}
			early = nil
			add(current, first, last)
			of.occurrences++
		case len(early) == 0 && len(before) > 0 && first.Sub(before[len(before)-1]) == b.every[name][current]:
			add(current, first, last)
			of.skipped++
		default:
			early = append(early, [2]time.Time{first, last})
			of.skipped++
		}
	}
	require.NoError(b.t, rows.Err())
	for _, skip := range early {
		add(slices.Max(slices.Collect(maps.Keys(b.every[name]))), skip[0], skip[1])
	}
	return all, of
}
