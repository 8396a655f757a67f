package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// logTransitions has the database write down every change of a run's state,
// and whether it left a terminal one for anything but pending by a retry.
func logTransitions(t *testing.T, store opened) {
	t.Helper()
	conn := connect(t, store.url)
	_, err := conn.Exec(t.Context(), fmt.Sprintf(`
		CREATE TABLE %[1]s.transitions (at timestamptz DEFAULT clock_timestamp(), run_id uuid, old smallint, new smallint, refreshed boolean);
		CREATE FUNCTION %[1]s.log_transition() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO %[1]s.transitions (run_id, old, new, refreshed)
			VALUES (new.id, old.state, new.state, new.claim_id IS NULL AND new.attempt = 0 AND new.crash_count = 0 AND new.cancel IS NULL);
			RETURN new; END $$;
		CREATE TRIGGER transitions AFTER UPDATE ON %[1]s.runs FOR EACH ROW WHEN (old.state <> new.state) EXECUTE FUNCTION %[1]s.log_transition();`, store.schema))
	require.NoError(t, err)
}

// hammer is some goroutines that do everything to the same runs.
type hammer struct {
	t       *testing.T
	stores  []opened
	runs    []store.RunID
	until   time.Time
	mu      sync.Mutex
	retried map[store.RunID]int
	did     map[store.ChangeResult]int
}

func (h *hammer) some() []store.RunID {
	ids := make([]store.RunID, 1+rand.IntN(20))
	for i := range ids {
		ids[i] = h.runs[rand.IntN(len(h.runs))]
	}
	return ids
}

func (h *hammer) operate(ctx context.Context, db opened, action store.RunAction) error {
	changed, err := db.Operate(ctx, store.RunCommand{Action: action, Runs: h.some(), Reason: "hammered", By: "hammer"})
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range changed {
		h.did[c.Result]++
		if action == store.RetryRuns && c.Result == store.RunChanged {
			h.retried[c.ID]++
		}
	}
	return err
}

// work claims, and settles what it does not leave to a reclaim.
func (h *hammer) work(ctx context.Context, db opened, w store.WorkerID) error {
	r, err := request(ctx, db, w, 10, 30*time.Millisecond)
	if err != nil {
		return err
	}
	runs, err := db.Claim(ctx, r)
	if err != nil || rand.IntN(4) == 0 {
		return err
	}
	s := store.Settlement{Claim: r.Claim, Worker: w, Last: rand.IntN(2) == 0}
	outcomes := []store.Outcome{{Kind: store.Failure, Error: "bad"}, {Kind: store.Death, Error: "dead"},
		{Kind: store.Snoozed}, {Kind: store.HandedBack}, {Kind: store.Cancellation, Error: "own"}}
	for _, run := range runs {
		outcome := outcomes[rand.IntN(len(outcomes))]
		if rand.IntN(200) == 0 { // what has succeeded is out of the game
			outcome = store.Outcome{Kind: store.Success}
		}
		s.Runs = append(s.Runs, store.Settled{ID: run.ID, Outcome: outcome})
	}
	if len(runs) > 0 {
		_, err = db.Settle(ctx, []store.Settlement{s})
	}
	return err
}

func (h *hammer) swing(i int) {
	db, w := h.stores[i%len(h.stores)], worker(fmt.Sprint("w", i))
	ctx := context.Background()
	for time.Now().Before(h.until) {
		var err error
		switch i % 8 {
		case 0, 1:
			err = h.operate(ctx, db, store.CancelRuns)
		case 2, 3:
			err = h.operate(ctx, db, store.RetryRuns)
		case 4:
			_, err = db.Reclaim(ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
		default:
			err = h.work(ctx, db, w)
		}
		if err != nil {
			h.t.Errorf("goroutine %d: %v", i, err)
			return
		}
	}
}

func TestOperatorsBesideWorkersNeitherDeadlockNorResurrect(t *testing.T) {
	t.Parallel()
	db := openURL(t, pgtest.Database(t), "durable") // deadlocks are counted by database
	logTransitions(t, db)
	h := &hammer{t: t, until: time.Now().Add(4 * time.Second), retried: map[store.RunID]int{}, did: map[store.ChangeResult]int{}}
	for range 4 {
		h.stores = append(h.stores, openURL(t, db.url, db.schema))
	}
	runs := newRuns(60, durable.MaxAttempts(5))
	_, err := db.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	for _, run := range runs {
		h.runs = append(h.runs, run.ID)
	}
	conn := connect(t, db.url)
	deadlocks := func() (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&n))
		return n
	}
	before := deadlocks()
	var swinging sync.WaitGroup
	for i := range 64 {
		swinging.Go(func() { h.swing(i) })
	}
	swinging.Wait()
	require.Zero(t, h.did[store.RunNotFound])
	require.NotEmpty(t, h.retried)
	require.Positive(t, h.did[store.CancelRequested])
	require.Equal(t, before, deadlocks())

	finishAll(t, db)
	requireTransitions(t, db, conn, h)
	requireConsistent(t, db)
	t.Logf("%v; %d runs retried", h.did, len(h.retried))
}

// finishAll executes what is left, with success.
func finishAll(t *testing.T, db opened) {
	t.Helper()
	w := worker("last")
	require.Eventually(t, func() bool {
		db.shift(t, time.Minute)
		_, err := db.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 100, Limit: 100})
		require.NoError(t, err)
		for {
			r, err := request(t.Context(), db, w, 1, time.Minute)
			require.NoError(t, err)
			claimed, err := db.Claim(t.Context(), r)
			require.NoError(t, err)
			if len(claimed) == 0 {
				break
			}
			_, err = db.Settle(t.Context(), []store.Settlement{settlement(r, claimed, store.Outcome{Kind: store.Success})})
			require.NoError(t, err)
		}
		counts, err := db.Counts(t.Context())
		require.NoError(t, err)
		return counts[store.Pending].N+counts[store.Running].N == 0
	}, 2*time.Minute, 10*time.Millisecond)
}

// requireTransitions checks that terminal runs were changed by retries only,
// as many as were answered, and that each was written down.
func requireTransitions(t *testing.T, store opened, conn *pgx.Conn, h *hammer) {
	t.Helper()
	var wrong int
	require.NoError(t, conn.QueryRow(t.Context(), fmt.Sprintf(
		"SELECT count(*) FROM %s.transitions WHERE old >= 2 AND NOT (old IN (4, 5) AND new = 0 AND refreshed)", store.schema)).Scan(&wrong))
	require.Zero(t, wrong, "a terminal run has changed")
	for id, times := range h.retried {
		var made, audited int
		require.NoError(t, conn.QueryRow(t.Context(), fmt.Sprintf(
			"SELECT (SELECT count(*) FROM %[1]s.transitions WHERE run_id = $1 AND old >= 2), "+
				"(SELECT count(*) FROM %[1]s.audit WHERE subject = $1::uuid::text AND action = 'retry')", store.schema), id).Scan(&made, &audited))
		require.Equal(t, made, audited)
		require.GreaterOrEqual(t, times, made, "one that is named twice in an order is changed once and answered twice")
		record, err := store.Run(t.Context(), id)
		require.NoError(t, err)
		require.True(t, record.State.Terminal(), "a retried run ends again")
	}
}

func TestOperateIsBusyWhereATransactionHoldsARun(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	runs := newRuns(4)
	_, err := db.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	r, claimed := claim(t, db, worker("w"), 1, time.Minute)
	require.Len(t, claimed, 1)
	tx := hold(t, db, "runs", "id = any ($1)", []store.RunID{runs[0].ID, runs[1].ID})
	order := store.RunCommand{Action: store.CancelRuns, By: "ann"}
	for i := range runs {
		order.Runs = append(order.Runs, runs[i].ID)
	}
	changed, err := db.Operate(t.Context(), order) // it looks again for ten seconds
	require.NoError(t, err)
	did := []store.ChangeResult{changed[0].Result, changed[1].Result, changed[2].Result, changed[3].Result}
	require.Equal(t, []store.ChangeResult{store.RunLocked, store.RunLocked, store.RunChanged, store.RunChanged}, did)
	released := make(chan error, 1)
	time.AfterFunc(200*time.Millisecond, func() { released <- tx.Rollback(context.Background()) })
	changed, err = db.Operate(t.Context(), order)
	require.NoError(t, err)
	require.NoError(t, <-released)
	if changed[0].Result == store.RunLocked { // the machine was slow to release them
		changed, err = db.Operate(t.Context(), order)
		require.NoError(t, err)
	}
	did = []store.ChangeResult{changed[0].Result, changed[1].Result, changed[2].Result, changed[3].Result}
	require.Equal(t, []store.ChangeResult{store.CancelRequested, store.RunChanged, store.RunUnchanged, store.RunUnchanged}, did)
	_, err = db.Settle(t.Context(), []store.Settlement{settlement(r, claimed, store.Outcome{Kind: store.HandedBack})})
	require.NoError(t, err)
	requireConsistent(t, db)
}

func TestASettleThatHasWaitedForACancelKnowsOfIt(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	for _, outcome := range []store.Outcome{{Kind: store.HandedBack}, {Kind: store.Failure, Error: "bad"}, {Kind: store.Snoozed, After: time.Hour}} {
		_, err := db.Enqueue(t.Context(), newRuns(1)...)
		require.NoError(t, err)
		r, claimed := claim(t, db, worker("w"), 1, time.Minute)
		tx := hold(t, db, "runs", "id = $1", claimed[0].ID)
		_, err = tx.Exec(t.Context(), fmt.Sprintf("UPDATE %s.runs SET cancel = 'not wanted' WHERE id = $1", db.schema), claimed[0].ID)
		require.NoError(t, err)
		committed := make(chan error, 1)
		time.AfterFunc(50*time.Millisecond, func() { committed <- tx.Commit(context.Background()) }) // the settle waits for 200 ms
		verdicts, err := db.Settle(t.Context(), []store.Settlement{settlement(r, claimed, outcome)})
		require.NoError(t, err)
		require.NoError(t, <-committed)
		if verdicts[0] == store.Deferred { // the machine was slow
			verdicts, err = db.Settle(t.Context(), []store.Settlement{settlement(r, claimed, outcome)})
			require.NoError(t, err)
		}
		require.Equal(t, store.Applied, verdicts[0])
		record, err := db.Run(t.Context(), claimed[0].ID)
		require.NoError(t, err)
		require.Equal(t, store.Cancelled, record.State)
		require.Equal(t, "not wanted", *record.Error)
	}
	requireConsistent(t, db)
}

func TestAPauseIsNotMissedByALaneThatIsMade(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	for _, action := range []store.QueueAction{store.PauseQueue, store.ResumeQueue} {
		require.NoError(t, db.SetQueue(t.Context(), "slow", action, "ann")) // the queue is known
	}
	// Another transaction is making lane b, so that the one that makes a and b has made a
	// and waits.
	blocker, err := connect(t, db.url).Begin(t.Context())
	require.NoError(t, err)
	_, err = blocker.Exec(t.Context(), fmt.Sprintf("INSERT INTO %s.lanes (queue, job, priority) VALUES ('slow', 'b', 0)", db.schema))
	require.NoError(t, err)
	runs := newRuns(2, durable.OnQueue("slow"))
	runs[0].Job, runs[1].Job = "a", "b"
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := db.Enqueue(context.Background(), runs...); err != nil {
			t.Error(err)
		}
	})
	require.Eventually(t, func() bool {
		var waits bool
		err := conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%lanes%')",
			db.schema).Scan(&waits)
		return err == nil && waits
	}, time.Minute, 10*time.Millisecond)
	paused := make(chan struct{})
	both.Go(func() {
		if err := db.SetQueue(context.Background(), "slow", store.PauseQueue, "ann"); err != nil {
			t.Error(err)
		}
		close(paused)
	})
	select {
	case <-paused:
		t.Error("the pause did not wait for the lanes under way")
	case <-time.After(500 * time.Millisecond):
	}
	require.NoError(t, blocker.Rollback(t.Context()))
	both.Wait()
	heads, err := db.Heads(t.Context(), store.Serves{Queues: []string{"slow"}, Jobs: []string{"a", "b"}})
	require.NoError(t, err)
	require.Empty(t, heads, "both lanes are paused")
}

func TestARetryTakesItsUniqueKeyBackUnlessAnotherRunHasIt(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	runs := newRuns(3)
	_, err := db.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	ids := []store.RunID{runs[0].ID, runs[1].ID, runs[2].ID}
	_, err = conn.Exec(t.Context(), fmt.Sprintf("UPDATE %s.runs SET key = 'k' WHERE id = ANY ($1)", db.schema), ids[:2])
	require.NoError(t, err)
	order := func(action store.RunAction, ids ...store.RunID) (did []store.ChangeResult) {
		changed, err := db.Operate(t.Context(), store.RunCommand{Action: action, Runs: ids, By: "ann"})
		require.NoError(t, err)
		for _, c := range changed {
			did = append(did, c.Result)
		}
		return did
	}
	holder := func() (id store.RunID) {
		require.NoError(t, conn.QueryRow(t.Context(), fmt.Sprintf("SELECT run_id FROM %s.unique_keys", db.schema)).Scan(&id))
		return id
	}
	require.Equal(t, []store.ChangeResult{store.RunChanged, store.RunChanged, store.RunChanged}, order(store.CancelRuns, ids...))
	require.Equal(t, []store.ChangeResult{store.RunChanged, store.RunConflict, store.RunChanged}, order(store.RetryRuns, ids...))
	require.Equal(t, ids[0], holder())
	order(store.CancelRuns, ids[0])
	require.Equal(t, []store.ChangeResult{store.RunChanged}, order(store.RetryRuns, ids[1]), "a finished run gives its key up")
	require.Equal(t, ids[1], holder())
	require.Equal(t, []store.ChangeResult{store.RunConflict}, order(store.RetryRuns, ids[0]))
	require.Equal(t, []store.ChangeResult{store.RunChanged, store.RunChanged}, order(store.DeleteRuns, ids[:2]...))
	var left int
	require.NoError(t, conn.QueryRow(t.Context(), fmt.Sprintf("SELECT count(*) FROM %s.unique_keys", db.schema)).Scan(&left))
	require.Zero(t, left)
	requireConsistent(t, db)
}
