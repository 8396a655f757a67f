// Command fence shows a worker that is cut off from its database, does not notice,
// and writes late to another database: the table there refuses it, because a later
// claim of the run was there before.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// accept writes if the fence is not smaller than the stored one.
const accept = `
INSERT INTO exports (id, fence, content) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET fence = excluded.fence, content = excluded.content
WHERE exports.fence <= excluded.fence`

// write is a fenced write into a database that is not the store's. No row means
// that a later claim was there before: this handler has lost its run.
func write(ctx context.Context, db *sql.DB, id string, fence lease.Fence, content string) error {
	result, err := db.ExecContext(ctx, accept, id, int64(fence), content)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); rows == 0 || err != nil {
		return errors.Join(lease.ErrLost, err)
	}
	return nil
}

// cutOff is a store that a worker cannot reach once it has claimed something.
type cutOff struct {
	durable.Store
	begun <-chan struct{} // closed by the handler of what it has claimed
}

var errCut = errors.New("the network is down")

func (c cutOff) Claim(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
	select {
	case <-c.begun:
		return nil, errCut
	default:
		return c.Store.Claim(ctx, request)
	}
}

func (cutOff) Renew(context.Context, []lease.ClaimID, time.Duration) ([]lease.ClaimID, error) {
	return nil, errCut
}

func (cutOff) Reclaim(context.Context, store.ReclaimRequest) (store.ReclaimResult, error) {
	return store.ReclaimResult{}, errCut
}

func main() {
	dir, err := os.MkdirTemp("", "fence-")
	if err == nil {
		err = fence(context.Background(), dir, os.Stdout)
	}
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		log.Fatal(err)
	}
}

func fence(ctx context.Context, dir string, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "durable.db"), sqlite.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "exports.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE exports (id text PRIMARY KEY, fence bigint NOT NULL, content text NOT NULL)"); err != nil {
		return err
	}
	export := durable.NewJob[string]("export")
	if _, err := export.Enqueue(ctx, durable.NewClient(store), "prices"); err != nil {
		return err
	}

	begun, written, ended := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	start := func(store durable.Store, leases time.Duration, handler func(context.Context, *durable.Run[string]) error) {
		w := durable.NewWorker(store, durable.WorkerConfig{Terms: lease.Terms{Duration: leases}, PollInterval: 100 * time.Millisecond})
		durable.Register(w, export, handler)
		go func() { ended <- w.Run(ctx) }()
	}
	start(cutOff{store, begun}, time.Second, func(_ context.Context, run *durable.Run[string]) error {
		close(begun)
		<-written // it ignores that its context has ended
		err := write(context.WithoutCancel(ctx), db, run.Args, run.Fence, "old prices")
		fmt.Fprintln(out, "first worker, fence", run.Fence, "writes late:", err)
		stop()
		return err
	})
	<-begun
	start(store, time.Minute, func(ctx context.Context, run *durable.Run[string]) error {
		err := write(ctx, db, run.Args, run.Fence, "new prices")
		fmt.Fprintln(out, "second worker, fence", run.Fence, "writes:", err)
		close(written)
		return err
	})
	err = errors.Join(<-ended, <-ended)
	var content string
	row := db.QueryRowContext(context.WithoutCancel(ctx), "SELECT content FROM exports").Scan(&content)
	fmt.Fprintln(out, "stored:", content)
	return errors.Join(err, row)
}
