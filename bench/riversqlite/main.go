// Command riversqlite drains runs with River on its SQLite driver, and prints what
// that cost. The driver is published for an older River than the one the rest of
// the benchmark uses, so it is a program of its own.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	riverqueue "github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	_ "modernc.org/sqlite"
)

// args are the same bytes as everywhere in the benchmark.
type args struct {
	N int64 `json:"n"`
}

// Kind is River's name of the job.
func (args) Kind() string { return "bench" }

type worker struct {
	riverqueue.WorkerDefaults[args]
	handled *atomic.Int64
}

// Work counts and returns.
func (w *worker) Work(context.Context, *riverqueue.Job[args]) error {
	w.handled.Add(1)
	return nil
}

func main() {
	dir := flag.String("dir", os.TempDir(), "where the database file is made")
	n := flag.Int("n", 20_000, "runs")
	flag.Parse()
	if err := measure(context.Background(), *dir, *n); err != nil {
		log.Fatal(err)
	}
}

// measure prints runs a second, and microseconds of CPU a run.
func measure(ctx context.Context, dir string, n int) error {
	// As River's manual has it: one connection, or writers meet as SQLITE_BUSY.
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "river.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	migrator, err := rivermigrate.New(riversqlite.New(db), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	var handled atomic.Int64
	workers := riverqueue.NewWorkers()
	riverqueue.AddWorker(workers, &worker{handled: &handled})
	client, err := riverqueue.NewClient(riversqlite.New(db), &riverqueue.Config{
		Queues:        map[string]riverqueue.QueueConfig{riverqueue.QueueDefault: {MaxWorkers: 2000}},
		FetchCooldown: time.Millisecond, FetchPollInterval: time.Millisecond, Workers: workers, Logger: quiet,
	})
	if err != nil {
		return err
	}
	if err := insert(ctx, client, n); err != nil {
		return err
	}
	began, before := time.Now(), cpu()
	if err := client.Start(ctx); err != nil {
		return err
	}
	if err := drained(ctx, db, &handled, n); err != nil {
		return err
	}
	took, used := time.Since(began), cpu()-before
	if err := client.Stop(ctx); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"rate": float64(n) / took.Seconds(), "go": float64(used.Nanoseconds()) / 1e3 / float64(n),
	})
}

func insert(ctx context.Context, client *riverqueue.Client[*sql.Tx], n int) error {
	for done := 0; done < n; done += 1000 {
		params := make([]riverqueue.InsertManyParams, min(1000, n-done))
		for i := range params {
			params[i].Args = args{N: int64(10_000_000 + done + i)}
		}
		if _, err := client.InsertMany(ctx, params); err != nil {
			return err
		}
	}
	return nil
}

// drained asks the database only when all handlers have returned.
func drained(ctx context.Context, db *sql.DB, handled *atomic.Int64, n int) error {
	for range time.Tick(time.Millisecond) {
		if handled.Load() < int64(n) {
			continue
		}
		var left bool
		if err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM river_job WHERE state = 'running')").Scan(&left); err != nil {
			return fmt.Errorf("what is left: %w", err)
		}
		if !left {
			break
		}
	}
	return nil
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
