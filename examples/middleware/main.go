// Command middleware wraps every handler of a worker in three ways: a log line
// per attempt, a deadline for jobs that have none, and the tenant, which is in the
// metadata of each run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// Invoice is what the job's runs are about.
type Invoice struct {
	Number int `json:"number"`
}

// logged writes a line about each attempt.
func logged(logger *slog.Logger) durable.Middleware {
	return func(ctx context.Context, run durable.RunInfo, next func(context.Context) error) error {
		err := next(ctx)
		logger.Info("attempt", "job", run.Job, "tenant", run.Metadata["tenant"], "attempt", run.Attempt, "error", err)
		return err
	}
}

// deadline bounds the attempts of jobs that have no timeout of their own. Unlike
// a timeout it is only an offer: a handler that ignores its context continues.
func deadline(d time.Duration) durable.Middleware {
	return func(ctx context.Context, run durable.RunInfo, next func(context.Context) error) error {
		if run.Timeout > 0 {
			return next(ctx)
		}
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return next(ctx)
	}
}

type tenantKey struct{}

// tenants puts the tenant of a run into the handler's context. A run of an
// unknown tenant is not executed: no retry can help.
func tenants(known ...string) durable.Middleware {
	return func(ctx context.Context, run durable.RunInfo, next func(context.Context) error) error {
		name := run.Metadata["tenant"]
		for _, tenant := range known {
			if tenant == name {
				return next(context.WithValue(ctx, tenantKey{}, tenant))
			}
		}
		return durable.Permanent(fmt.Errorf("no tenant %q", name))
	}
}

// tenant notes whose run it is.
func tenant(name string) durable.Option {
	return durable.Metadata(map[string]string{"tenant": name})
}

func main() {
	path := flag.String("db", "middleware.db", "database file")
	flag.Parse()
	if err := run(context.Background(), *path, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path string, out io.Writer) error {
	store, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	job := durable.NewJob[Invoice]("invoice", durable.MaxAttempts(2), durable.Retry(durable.Fixed(10*time.Millisecond)))
	_, err = durable.NewClient(store).Enqueue(ctx,
		job.New(Invoice{Number: 1}, tenant("acme"), durable.Priority(4)),
		job.New(Invoice{Number: 2}, tenant("unknown"), durable.Priority(3)),
		job.New(Invoice{Number: 3}, tenant("slow"), durable.Priority(2)))
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{} // for a short line
		}
		return a
	}}))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w := durable.NewWorker(store, durable.WorkerConfig{
		MaxConcurrentRuns: 1,
		Middleware:        []durable.Middleware{logged(logger), deadline(100 * time.Millisecond), tenants("acme", "slow")},
	})
	durable.Register(w, job, func(ctx context.Context, run *durable.Run[Invoice]) error {
		if run.Metadata["tenant"] == "slow" {
			if run.Attempt == 2 {
				defer stop() // the last one of this example
			}
			<-ctx.Done()
			return errors.New("too slow")
		}
		fmt.Fprintf(out, "invoice %d of %v is sent\n", run.Args.Number, ctx.Value(tenantKey{}))
		return nil
	})
	return w.Run(ctx)
}
