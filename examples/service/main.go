// Command service is a small web service with a table of its own. It takes orders,
// each in one transaction with the run that ships it, and ships them, in the same
// process or in another one.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe/logs"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

func main() {
	path := flag.String("db", "service.db", "database file")
	addr := flag.String("addr", "127.0.0.1:8090", "where to take orders; empty: only work")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a reader of the log that has gone ends nothing
	if err := service(ctx, *path, *addr); err != nil {
		log.Fatal(err)
	}
}

// open opens the store, and the same file for the service's own table.
func open(ctx context.Context, path string) (*orders, error) {
	store, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		return nil, err
	}
	_, err = store.Migrate(ctx)
	db, fault := sql.Open("sqlite", store.DSN())
	if err := errors.Join(err, fault); err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, table)
	return &orders{db: db, store: store}, err
}

func (o *orders) close() {
	_ = o.db.Close()
	o.store.Close()
}

// service serves and works until ctx ends. It returns when the requests and the
// handlers under way have ended; what is interrupted is handed back.
func service(ctx context.Context, path, addr string) error {
	o, err := open(ctx, path)
	if err != nil {
		return err
	}
	defer o.close()
	lines := logs.New(os.Stderr, logs.Config{}) // the worker does not wait for the reader of its log
	defer finish(lines)
	worker := durable.NewWorker(o.store, durable.WorkerConfig{Logger: slog.New(slog.NewTextHandler(lines, nil))})
	durable.Register(worker, ship(), o.perform)

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var both sync.WaitGroup
	var worked, served error
	both.Go(func() {
		defer stop()
		worked = worker.Run(ctx)
	})
	if addr != "" {
		both.Go(func() {
			defer stop()
			served = serve(ctx, &http.Server{Addr: addr, Handler: o, ReadHeaderTimeout: 5 * time.Second})
		})
	}
	both.Wait()
	return errors.Join(worked, served)
}

// finish waits until the log has been written, if it is read.
func finish(lines *logs.Writer) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = lines.Flush(ctx) // there is no other place to report it
}

// serve serves until ctx ends, and returns when the requests under way have ended.
func serve(ctx context.Context, server *http.Server) error {
	down := make(chan error, 1)
	context.AfterFunc(ctx, func() { down <- server.Shutdown(context.WithoutCancel(ctx)) })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-down
}
