// Command timer refreshes a cache on a beat, once for all hosts: three workers
// share one database, and each tick is executed by one of them.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// RefreshArgs are stored with each run as JSON.
type RefreshArgs struct {
	Cache string `json:"cache"`
}

// refresh is the work of a tick: a run timeout, and retries with a pause when it
// fails.
func refresh() durable.Job[RefreshArgs] {
	return durable.NewJob[RefreshArgs]("refresh", durable.Timeout(30*time.Second), durable.MaxAttempts(3),
		durable.Retry(durable.Fixed(200*time.Millisecond)))
}

func main() {
	path := flag.String("db", "timer.db", "database file")
	length := flag.Duration("for", 5*time.Second, "how long to run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := timer(ctx, *path, *length, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func timer(ctx context.Context, path string, length time.Duration, out io.Writer) error {
	store, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var hosts sync.WaitGroup
	faults := make([]error, 3)
	ticks := printer{out: out}
	for i := range faults {
		hosts.Go(func() { faults[i] = host(ctx, store, fmt.Sprintf("host-%d", i+1), &ticks) })
	}
	hosts.Wait()
	for _, err := range faults {
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d ticks\n", ticks.n)
	return nil
}

// host is one of many identical workers. Each declares the same timer.
func host(ctx context.Context, db durable.Store, name string, ticks *printer) error {
	w := durable.NewWorker(db, durable.WorkerConfig{Name: name})
	job := refresh()
	durable.Register(w, job, func(_ context.Context, run *durable.Run[RefreshArgs]) error {
		ticks.print(run.DueAt, run.Args.Cache)
		return nil
	})
	durable.AddSchedule(w, "refresh-prices", job, RefreshArgs{Cache: "prices"}, durable.Every(time.Second).In("Europe/Berlin"),
		durable.Overlap(durable.OverlapSkip),      // at most one at once over all hosts; the default
		durable.SpreadStart(500*time.Millisecond), // not on the very second on which everybody else begins
		durable.Blackout(durable.Window{From: "2030-12-24", Until: "2030-12-26"}))
	return w.Run(ctx)
}

// printer counts ticks and prints each.
type printer struct {
	mu  sync.Mutex
	out io.Writer
	n   int
}

func (p *printer) print(due time.Time, cache string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	fmt.Fprintf(p.out, "%s refreshed %s\n", due.Format("15:04:05.000"), cache)
}
