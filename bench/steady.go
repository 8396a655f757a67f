package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/backend"
)

// steady is a database in which runs are enqueued, executed and deleted at one
// rate, for long.
type steady struct {
	rate      int // runs a second
	retention time.Duration
	window    time.Duration
}

// steadyRow is a thousand runs a second with a short retention, so that as many
// are deleted as are made after the first half minute.
func steadyRow(quick bool) row {
	s := steady{rate: 1000, retention: 30 * time.Second, window: 20 * time.Minute}
	if quick {
		s.window = 2 * time.Minute
	}
	return row{
		name: "retention-steady", long: true,
		title: fmt.Sprintf("%d runs a second enqueued, executed and, %v after their end, deleted, for %v", s.rate, s.retention, s.window),
		figures: []figure{
			{key: "rate", title: "executed", unit: "/s"}, {key: "swept", title: "deleted", unit: "/s"},
			{key: "most", title: "runs kept, at most"}, {key: "kept", title: "at the end"},
			{key: "first", title: "from enqueue to start in the first fifth, p50", unit: "ms", less: true}, {key: "first99", title: "p99", unit: "ms", less: true},
			{key: "last", title: "in the last fifth, p50", unit: "ms", less: true}, {key: "last99", title: "p99", unit: "ms", less: true},
			{key: "early", title: "all tables after a fifth", unit: "MiB", less: true}, {key: "late", title: "at the end", unit: "MiB", less: true},
		},
		sides: []side{{name: ours, measure: s.measure}},
	}
}

// delays are what the handlers see, by fifths of the window.
type delays struct {
	began time.Time
	each  time.Duration

	mu     sync.Mutex
	fifths [5][]float64
	n      int
}

func (d *delays) handled(enqueued int64) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n++
	i := min(int(now.Sub(d.began)/d.each), 4)
	d.fifths[i] = append(d.fifths[i], float64(now.UnixNano()-enqueued)/1e6)
}

func (s steady) measure(ctx context.Context, b *bench, label string) (sample, error) {
	w, err := b.place(ctx, ours, onPostgres)
	if err != nil {
		return nil, err
	}
	defer w.close()
	db, err := backend.Open(ctx, w.target, backend.Config{})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	job, d := durable.NewJob[args](jobName), &delays{began: time.Now(), each: s.window / 5}
	worker := durable.NewWorker(db, durable.WorkerConfig{Retention: s.retention, SweepInterval: time.Second,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	durable.Register(worker, job, func(_ context.Context, run *durable.Run[args]) error { d.handled(run.Args.N); return nil })
	working, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	var failed error
	running.Go(func() { failed = worker.Run(working) })
	found, err := s.enqueue(ctx, b, w, job, durable.NewClient(db), label)
	stop()
	running.Wait()
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	for name, i := range map[string]int{"first": 0, "last": 4} {
		slices.Sort(d.fifths[i])
		found[name], found[name+"99"] = percentile(d.fifths[i], 0.5), percentile(d.fifths[i], 0.99)
	}
	found["rate"], found["swept"] = float64(d.n)/s.window.Seconds(), (float64(d.n)-found["kept"])/(s.window-s.retention).Seconds()
	return found, nil
}

// enqueue keeps the rate, and looks at the database each five seconds.
func (s steady) enqueue(ctx context.Context, b *bench, w *watch, job durable.Job[args], client *durable.Client, label string) (sample, error) {
	const each = 50 * time.Millisecond
	found := sample{}
	ticks := time.NewTicker(each)
	defer ticks.Stop()
	began := time.Now()
	looked := began
	for time.Since(began) < s.window {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticks.C:
		}
		runs := make([]durable.NewRun, s.rate*int(each)/int(time.Second))
		for i := range runs {
			runs[i] = job.New(args{N: time.Now().UnixNano()})
		}
		if _, err := client.Enqueue(ctx, runs...); err != nil {
			return nil, err
		}
		if time.Since(looked) < 5*time.Second {
			continue
		}
		looked = time.Now()
		if err := s.check(ctx, w, found, time.Since(began)); err != nil {
			return nil, err
		}
		fmt.Fprintf(b.progress, "%s %v: %.0f runs kept, %.0f MiB\n", label, time.Since(began).Round(time.Second), found["kept"], found["late"])
	}
	return found, nil
}

func (s steady) check(ctx context.Context, w *watch, found sample, passed time.Duration) error {
	var kept, bytes int64
	err := w.conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM durable.runs), (SELECT sum(pg_total_relation_size(c.oid))::bigint
		FROM pg_class c WHERE c.relnamespace = 'durable'::regnamespace AND c.relkind = 'r')`).Scan(&kept, &bytes)
	if err != nil {
		return err
	}
	found["kept"], found["late"] = float64(kept), float64(bytes)/(1<<20)
	found["most"] = max(found["most"], found["kept"])
	if passed <= s.window/5+5*time.Second {
		found["early"] = found["late"]
	}
	return nil
}
