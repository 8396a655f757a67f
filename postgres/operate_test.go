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
	runs    []durable.RunID
	until   time.Time
	mu      sync.Mutex
	retried map[durable.RunID]int
	did     map[durable.Did]int
}

func (h *hammer) some() []durable.RunID {
	ids := make([]durable.RunID, 1+rand.IntN(20))
	for i := range ids {
		ids[i] = h.runs[rand.IntN(len(h.runs))]
	}
	return ids
}

func (h *hammer) operate(ctx context.Context, store opened, action durable.RunAction) error {
	changed, err := store.Operate(ctx, durable.Order{Action: action, Runs: h.some(), Reason: "hammered", By: "hammer"})
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range changed {
		h.did[c.Did]++
		if action == durable.RetryRuns && c.Did == durable.Done {
			h.retried[c.ID]++
		}
	}
	return err
}

// work claims, and settles what it does not leave to a reclaim.
func (h *hammer) work(ctx context.Context, store opened, w durable.WorkerID) error {
	r, err := request(ctx, store, w, 10, 30*time.Millisecond)
	if err != nil {
		return err
	}
	runs, err := store.Claim(ctx, r)
	if err != nil || rand.IntN(4) == 0 {
		return err
	}
	s := durable.Settlement{Claim: r.Claim, Worker: w, Last: rand.IntN(2) == 0}
	outcomes := []durable.Outcome{{Kind: durable.Failure, Error: "bad"}, {Kind: durable.Death, Error: "dead"},
		{Kind: durable.Snoozed}, {Kind: durable.HandedBack}, {Kind: durable.Cancellation, Error: "own"}}
	for _, run := range runs {
		outcome := outcomes[rand.IntN(len(outcomes))]
		if rand.IntN(200) == 0 { // what has succeeded is out of the game
			outcome = durable.Outcome{Kind: durable.Success}
		}
		s.Runs = append(s.Runs, durable.Settled{ID: run.ID, Outcome: outcome})
	}
	if len(runs) > 0 {
		_, err = store.Settle(ctx, []durable.Settlement{s})
	}
	return err
}

func (h *hammer) swing(i int) {
	store, w := h.stores[i%len(h.stores)], worker(fmt.Sprint("w", i))
	ctx := context.Background()
	for time.Now().Before(h.until) {
		var err error
		switch i % 8 {
		case 0, 1:
			err = h.operate(ctx, store, durable.CancelRuns)
		case 2, 3:
			err = h.operate(ctx, store, durable.RetryRuns)
		case 4:
			_, err = store.Reclaim(ctx, durable.ReclaimRequest{MaxCrashes: 4, Limit: 10})
		default:
			err = h.work(ctx, store, w)
		}
		if err != nil {
			h.t.Errorf("goroutine %d: %v", i, err)
			return
		}
	}
}

func TestOperatorsBesideWorkersNeitherDeadlockNorResurrect(t *testing.T) {
	t.Parallel()
	store := openURL(t, pgtest.Database(t), "durable") // deadlocks are counted by database
	logTransitions(t, store)
	h := &hammer{t: t, until: time.Now().Add(4 * time.Second), retried: map[durable.RunID]int{}, did: map[durable.Did]int{}}
	for range 4 {
		h.stores = append(h.stores, openURL(t, store.url, store.schema))
	}
	runs := newRuns(60, durable.MaxAttempts(5))
	_, err := store.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	for _, run := range runs {
		h.runs = append(h.runs, run.ID)
	}
	conn := connect(t, store.url)
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
	require.Zero(t, h.did[durable.Missing])
	require.NotEmpty(t, h.retried)
	require.Positive(t, h.did[durable.Asked])
	require.Equal(t, before, deadlocks())

	finishAll(t, store)
	requireTransitions(t, store, conn, h)
	requireConsistent(t, store)
	t.Logf("%v; %d runs retried", h.did, len(h.retried))
}

// finishAll executes what is left, with success.
func finishAll(t *testing.T, store opened) {
	t.Helper()
	w := worker("last")
	require.Eventually(t, func() bool {
		store.shift(t, time.Minute)
		_, err := store.Reclaim(t.Context(), durable.ReclaimRequest{MaxCrashes: 100, Limit: 100})
		require.NoError(t, err)
		for {
			r, err := request(t.Context(), store, w, 1, time.Minute)
			require.NoError(t, err)
			claimed, err := store.Claim(t.Context(), r)
			require.NoError(t, err)
			if len(claimed) == 0 {
				break
			}
			_, err = store.Settle(t.Context(), []durable.Settlement{settlement(r, claimed, durable.Outcome{Kind: durable.Success})})
			require.NoError(t, err)
		}
		counts, err := store.Counts(t.Context())
		require.NoError(t, err)
		return counts[durable.Pending].N+counts[durable.Running].N == 0
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
	store := openStore(t, "")
	runs := newRuns(4)
	_, err := store.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	r, claimed := claim(t, store, worker("w"), 1, time.Minute)
	require.Len(t, claimed, 1)
	tx := hold(t, store, "runs", "id = any ($1)", []durable.RunID{runs[0].ID, runs[1].ID})
	order := durable.Order{Action: durable.CancelRuns, By: "ann"}
	for i := range runs {
		order.Runs = append(order.Runs, runs[i].ID)
	}
	changed, err := store.Operate(t.Context(), order) // it looks again for ten seconds
	require.NoError(t, err)
	did := []durable.Did{changed[0].Did, changed[1].Did, changed[2].Did, changed[3].Did}
	require.Equal(t, []durable.Did{durable.Busy, durable.Busy, durable.Done, durable.Done}, did)
	released := make(chan error, 1)
	time.AfterFunc(200*time.Millisecond, func() { released <- tx.Rollback(context.Background()) })
	changed, err = store.Operate(t.Context(), order)
	require.NoError(t, err)
	require.NoError(t, <-released)
	if changed[0].Did == durable.Busy { // the machine was slow to release them
		changed, err = store.Operate(t.Context(), order)
		require.NoError(t, err)
	}
	did = []durable.Did{changed[0].Did, changed[1].Did, changed[2].Did, changed[3].Did}
	require.Equal(t, []durable.Did{durable.Asked, durable.Done, durable.Unchanged, durable.Unchanged}, did)
	_, err = store.Settle(t.Context(), []durable.Settlement{settlement(r, claimed, durable.Outcome{Kind: durable.HandedBack})})
	require.NoError(t, err)
	requireConsistent(t, store)
}

func TestASettleThatHasWaitedForACancelKnowsOfIt(t *testing.T) {
	t.Parallel()
	store := openStore(t, "")
	for _, outcome := range []durable.Outcome{{Kind: durable.HandedBack}, {Kind: durable.Failure, Error: "bad"}, {Kind: durable.Snoozed, After: time.Hour}} {
		_, err := store.Enqueue(t.Context(), newRuns(1)...)
		require.NoError(t, err)
		r, claimed := claim(t, store, worker("w"), 1, time.Minute)
		tx := hold(t, store, "runs", "id = $1", claimed[0].ID)
		_, err = tx.Exec(t.Context(), fmt.Sprintf("UPDATE %s.runs SET cancel = 'not wanted' WHERE id = $1", store.schema), claimed[0].ID)
		require.NoError(t, err)
		committed := make(chan error, 1)
		time.AfterFunc(50*time.Millisecond, func() { committed <- tx.Commit(context.Background()) }) // the settle waits for 200 ms
		verdicts, err := store.Settle(t.Context(), []durable.Settlement{settlement(r, claimed, outcome)})
		require.NoError(t, err)
		require.NoError(t, <-committed)
		if verdicts[0] == durable.Deferred { // the machine was slow
			verdicts, err = store.Settle(t.Context(), []durable.Settlement{settlement(r, claimed, outcome)})
			require.NoError(t, err)
		}
		require.Equal(t, durable.Accepted, verdicts[0])
		record, err := store.Run(t.Context(), claimed[0].ID)
		require.NoError(t, err)
		require.Equal(t, durable.Cancelled, record.State)
		require.Equal(t, "not wanted", *record.Error)
	}
	requireConsistent(t, store)
}

func TestAPauseIsNotMissedByALaneThatIsMade(t *testing.T) {
	t.Parallel()
	store := openStore(t, "")
	conn := connect(t, store.url)
	for _, action := range []durable.QueueAction{durable.PauseQueue, durable.ResumeQueue} {
		require.NoError(t, store.SetQueue(t.Context(), "slow", action, "ann")) // the queue is known
	}
	// Somebody else is making lane b, so that whoever makes a and b has made a
	// and waits.
	blocker, err := connect(t, store.url).Begin(t.Context())
	require.NoError(t, err)
	_, err = blocker.Exec(t.Context(), fmt.Sprintf("INSERT INTO %s.lanes (queue, job, priority) VALUES ('slow', 'b', 0)", store.schema))
	require.NoError(t, err)
	runs := newRuns(2, durable.OnQueue("slow"))
	runs[0].Job, runs[1].Job = "a", "b"
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := store.Enqueue(context.Background(), runs...); err != nil {
			t.Error(err)
		}
	})
	require.Eventually(t, func() bool {
		var waits bool
		err := conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%lanes%')",
			store.schema).Scan(&waits)
		return err == nil && waits
	}, time.Minute, 10*time.Millisecond)
	paused := make(chan struct{})
	both.Go(func() {
		if err := store.SetQueue(context.Background(), "slow", durable.PauseQueue, "ann"); err != nil {
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
	heads, err := store.Heads(t.Context(), durable.Serves{Queues: []string{"slow"}, Jobs: []string{"a", "b"}})
	require.NoError(t, err)
	require.Empty(t, heads, "both lanes are paused")
}

func TestARetryTakesItsUniqueKeyBackUnlessAnotherRunHasIt(t *testing.T) {
	t.Parallel()
	store := openStore(t, "")
	conn := connect(t, store.url)
	runs := newRuns(3)
	_, err := store.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	ids := []durable.RunID{runs[0].ID, runs[1].ID, runs[2].ID}
	_, err = conn.Exec(t.Context(), fmt.Sprintf("UPDATE %s.runs SET key = 'k' WHERE id = ANY ($1)", store.schema), ids[:2])
	require.NoError(t, err)
	order := func(action durable.RunAction, ids ...durable.RunID) (did []durable.Did) {
		changed, err := store.Operate(t.Context(), durable.Order{Action: action, Runs: ids, By: "ann"})
		require.NoError(t, err)
		for _, c := range changed {
			did = append(did, c.Did)
		}
		return did
	}
	holder := func() (id durable.RunID) {
		require.NoError(t, conn.QueryRow(t.Context(), fmt.Sprintf("SELECT run_id FROM %s.unique_keys", store.schema)).Scan(&id))
		return id
	}
	require.Equal(t, []durable.Did{durable.Done, durable.Done, durable.Done}, order(durable.CancelRuns, ids...))
	require.Equal(t, []durable.Did{durable.Done, durable.Conflicting, durable.Done}, order(durable.RetryRuns, ids...))
	require.Equal(t, ids[0], holder())
	order(durable.CancelRuns, ids[0])
	require.Equal(t, []durable.Did{durable.Done}, order(durable.RetryRuns, ids[1]), "a finished run gives its key up")
	require.Equal(t, ids[1], holder())
	require.Equal(t, []durable.Did{durable.Conflicting}, order(durable.RetryRuns, ids[0]))
	require.Equal(t, []durable.Did{durable.Done, durable.Done}, order(durable.DeleteRuns, ids[:2]...))
	var left int
	require.NoError(t, conn.QueryRow(t.Context(), fmt.Sprintf("SELECT count(*) FROM %s.unique_keys", store.schema)).Scan(&left))
	require.Zero(t, left)
	requireConsistent(t, store)
}
