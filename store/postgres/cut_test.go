package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// cutConn is a connection that ends in the middle of what is read from it, or
// of what is written to it.
type cutConn struct {
	net.Conn
	armed            atomic.Bool
	replies, request atomic.Int64 // bytes until the cut; negative: none
	read, written    exchange     // since it was armed
}

// exchange is what has passed in one direction.
type exchange struct {
	mu    sync.Mutex
	bytes []byte
}

func (e *exchange) add(p []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bytes = append(e.bytes, p...)
}

// cuts are numbers of bytes after which the exchange is cut: within each of its messages, since
// it makes no difference where, and after the last one; with DURABLE_TEST_LONG at every byte.
func (e *exchange) cuts() (all []int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	from, at := bytes.NewReader(e.bytes), int64(0)
	for message, err := reply(from); err == nil; message, err = reply(from) {
		for within := range int64(len(message)) {
			if long() || within == int64(len(message))/2 {
				all = append(all, at+within)
			}
		}
		at += int64(len(message))
	}
	return append(all, at, at+1)
}

var errCut = errors.New("cut")

// Read cuts only when there is more to read: the server has answered by then.
func (c *cutConn) Read(p []byte) (int, error) {
	if !c.armed.Load() || c.replies.Load() < 0 {
		n, err := c.Conn.Read(p)
		c.note(&c.read, p[:n])
		return n, err
	}
	if left := c.replies.Load(); left > 0 {
		n, err := c.Conn.Read(p[:min(int64(len(p)), left)])
		c.replies.Add(int64(-n))
		return n, err
	}
	_, _ = c.Conn.Read(make([]byte, 1))
	return 0, errors.Join(errCut, c.Close())
}

func (c *cutConn) Write(p []byte) (int, error) {
	if !c.armed.Load() || c.request.Load() < 0 {
		n, err := c.Conn.Write(p)
		c.note(&c.written, p[:n])
		return n, err
	}
	n, err := c.Conn.Write(p[:min(int64(len(p)), c.request.Load())])
	if c.request.Add(int64(-n)); n < len(p) {
		err = errors.Join(errCut, err, c.Close())
	}
	return n, err
}

func (c *cutConn) note(in *exchange, p []byte) {
	if c.armed.Load() {
		in.add(p)
	}
}

// cut says where an exchange is cut: after so many bytes of the replies, or of
// the requests.
type cut struct {
	Replies, Request int64
	Hidden           bool // the handler hides the error
}

// long is DURABLE_TEST_LONG: exchanges are cut at every byte.
func long() bool { return os.Getenv("DURABLE_TEST_LONG") != "" }

// dialCut opens a connection of a user that is cut once it is armed.
func dialCut(ctx context.Context, at string, where cut) (*pgx.Conn, *cutConn, error) {
	config, err := pgx.ParseConfig(at)
	if err != nil {
		return nil, nil, err
	}
	var cutting *cutConn
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		cutting = &cutConn{Conn: conn}
		cutting.replies.Store(where.Replies)
		cutting.request.Store(where.Request)
		return cutting, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	return conn, cutting, err
}

// The connection of a handler is cut in every message of its whole transaction,
// commit included, in either direction. The commit has landed or it has not;
// the run succeeds in either case, and its effect is there once.
func TestCompleteIn_CutInEveryMessage(t *testing.T) {
	t.Parallel()
	s := openShop(t, openStore(t, ""))
	job := durable.NewJob[cut]("order", durable.Retry(durable.Fixed(time.Millisecond)))
	transact := func(ctx context.Context, run *durable.Run[cut], conn *pgx.Conn) (completing bool, err error) {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return false, err
		}
		bound := s.store.WithTx(tx)
		if err := run.Guard(ctx, bound); err != nil {
			return false, err
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("insert into %s.effects values ($1, $2)", s.store.schema), run.ID, run.Fence); err != nil {
			return false, err
		}
		if _, err := bound.Enqueue(ctx, newRun()); err != nil {
			return false, err
		}
		if err := run.CompleteIn(ctx, bound); err != nil {
			return true, err
		}
		return true, tx.Commit(ctx)
	}
	var mu sync.Mutex
	errs, whole := map[store.RunID]error{}, (*cutConn)(nil)
	w := durable.NewWorker(s.store, durable.WorkerConfig{MaxConcurrentRuns: 8, PollInterval: 50 * time.Millisecond})
	durable.Register(w, job, func(ctx context.Context, run *durable.Run[cut]) error {
		where := run.Args
		if run.Attempt > 1 {
			where = cut{Replies: -1, Request: -1}
		}
		conn, cutting, err := dialCut(ctx, plainURL(t, s.store), where)
		if err != nil {
			return err
		}
		cutting.armed.Store(true)
		completing, err := transact(ctx, run, conn)
		mu.Lock()
		if run.Attempt == 1 {
			errs[run.ID] = err
		}
		if err == nil {
			whole = cutting
		}
		mu.Unlock()
		_ = conn.Close(context.WithoutCancel(ctx))
		if completing && run.Args.Hidden {
			return nil
		}
		return err
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()

	receipt, err := job.Enqueue(t.Context(), s.store, cut{Replies: -1, Request: -1})
	require.NoError(t, err)
	require.Equal(t, 1, s.ended(receipt.ID).Attempt)
	require.Eventually(t, func() bool { // the commit is seen here before the handler has noted it
		mu.Lock()
		defer mu.Unlock()
		return whole != nil
	}, time.Minute, time.Millisecond)
	mu.Lock()
	var runs []store.NewRun
	for _, n := range whole.read.cuts() {
		runs = append(runs, job.New(cut{Replies: n, Request: -1}), job.New(cut{Replies: n, Request: -1, Hidden: true}))
	}
	for _, n := range whole.written.cuts() {
		runs = append(runs, job.New(cut{Replies: -1, Request: n}))
	}
	mu.Unlock()
	_, err = s.store.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	var landed, repeated int
	for _, run := range runs {
		record := s.ended(run.ID)
		require.Equal(t, store.Succeeded, record.State)
		require.Equal(t, 1, s.effects(run.ID), "%+v", record)
		mu.Lock()
		if errs[run.ID] != nil && record.Attempt == 1 {
			landed++
		}
		mu.Unlock()
		if record.Attempt > 1 {
			repeated++
		}
	}
	stop()
	require.NoError(t, <-ended)
	t.Logf("of %d transactions that were cut %d had landed and %d were repeated", len(runs), landed, repeated)
	require.Positive(t, landed)
	require.Positive(t, repeated)
	counts, err := s.store.Counts(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, len(runs)+1, counts[store.Pending].N, "each enqueued one more, once")
	requireConsistent(t, s.store)
}

func TestEnqueue_CutInEveryMessage(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	cutOff, c := openCut(t, db)
	client, want := durable.NewClient(cutOff), 0
	c.sweep(t, func(n int64) {
		receipts, err := client.Enqueue(t.Context(), newRuns(2)...)
		require.NoError(t, err, "cut at %d", n)
		require.Len(t, receipts, 2)
		want += 2
	})
	counts, err := db.Counts(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, want, counts[store.Pending].N)
	requireConsistent(t, db)
}

func TestEnqueueUnder_CutInEveryMessage(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	cutOff, c := openCut(t, db)
	_, holder := held(t, db)
	want := 0
	c.sweep(t, func(n int64) {
		run := newRun()
		want++
		for try := 0; ; try++ {
			receipts, err := cutOff.EnqueueUnder(t.Context(), holder, run)
			if err == nil {
				require.Equal(t, run.ID, receipts[0].ID)
				return
			}
			require.NotErrorIs(t, err, lease.ErrLost)
			require.Less(t, try, 100, "cut at %d: %v", n, err) // until the server has seen that the connection is gone
		}
	})
	counts, err := db.Counts(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, want, counts[store.Pending].N)
	requireConsistent(t, db)
}

func TestCall_CutInEveryMessage(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	cutOff, c := openCut(t, db)
	_, holder := held(t, db)
	want := 0
	c.sweep(t, func(n int64) {
		call := store.Call{Holder: holder, Name: fmt.Sprint("call ", want), Children: []store.NewRun{newRun(), newRun()}}
		want++
		for try := 0; ; try++ {
			err := cutOff.Call(t.Context(), []store.Call{call})
			if err == nil {
				return
			}
			require.NotErrorIs(t, err, lease.ErrLost)
			require.Less(t, try, 100, "cut at %d: %v", n, err)
		}
	})
	counts, err := db.Counts(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2*want, counts[store.Pending].N)
	found, err := store.StepsOf(t.Context(), db, holder.Run)
	require.NoError(t, err)
	require.Len(t, found.Steps, want)
	requireConsistent(t, db)
}

// TestCall_WaitsForNoLock: a transaction of the handler's own keeps one of the runs that call.
func TestCall_WaitsForNoLock(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	_, locked := held(t, db)
	_, free := held(t, db)
	tx, err := connect(t, db.url).Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	require.NoError(t, db.WithTx(tx).Guard(t.Context(), locked))
	calls := []store.Call{{Holder: locked, Name: "a", Children: newRuns(1)}, {Holder: free, Name: "a", Children: newRuns(1)}}
	began := time.Now()
	require.ErrorIs(t, db.Call(t.Context(), calls), store.ErrConflict)
	require.Less(t, time.Since(began), 10*time.Second)
	for i := range calls {
		_, err := db.Run(t.Context(), calls[i].Children[0].ID)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	require.NoError(t, db.Call(t.Context(), calls[1:]))
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, db.Call(t.Context(), calls[:1]))
}

func TestSettle_CutInEveryMessage(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	cutOff, c := openCut(t, db)
	outcomes := []store.Outcome{
		{Kind: store.Success}, {Kind: store.Success, Result: []byte(`1`)}, {Kind: store.Death, Error: "dead"},
		{Kind: store.Failure, After: time.Hour, Error: "failed"},
	}
	landed := 0
	c.sweep(t, func(n int64) {
		_, err := db.Enqueue(t.Context(), newRuns(len(outcomes))...)
		require.NoError(t, err)
		r, runs := claim(t, db, worker("w"), len(outcomes), time.Minute)
		require.Len(t, runs, len(outcomes))
		s := settlement(r, runs, store.Outcome{})
		for i := range s.Runs {
			s.Runs[i].Outcome = outcomes[i]
		}
		var verdicts []store.Verdict
		for try := 0; ; try++ {
			verdicts, err = cutOff.Settle(t.Context(), []store.Settlement{s})
			if err == nil && !slices.Contains(verdicts, store.Deferred) {
				break
			}
			require.Less(t, try, 100, "cut at %d: %v", n, err) // until the server has seen that the connection is gone
		}
		for i, verdict := range verdicts {
			require.Equal(t, verdicts[0], verdict, "all of them or none")
			record, err := db.Run(t.Context(), runs[i].ID)
			require.NoError(t, err)
			require.Equal(t, outcomes[i].Kind.State(), record.State)
			require.Len(t, record.Attempts, 1)
		}
		require.Contains(t, []store.Verdict{store.Applied, store.AlreadyApplied}, verdicts[0])
		if verdicts[0] == store.AlreadyApplied {
			landed++
		}
	})
	require.Positive(t, landed)
	requireConsistent(t, db)
	requireNoLease(t, db)
}
