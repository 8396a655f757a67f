package postgres_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// Wherever the answers to an enqueue are cut, the client's repeat makes it one
// run, executed once, also when a worker has been quicker than the repeat.
func TestKeysWhenTheAnswerIsCutAnywhere(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]func(string) durable.Option{
		"unique":   durable.Unique,
		"replace":  durable.Replace,
		"debounce": func(key string) durable.Option { return durable.Debounce(key, time.Millisecond, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := openURL(t, pgtest.Database(t), "durable")
			cutOff, c := openCut(t, direct)
			client := durable.NewClient(cutOff)
			keys, executed := 0, 0
			for again := true; again; again = c.fired.Swap(false) {
				key := fmt.Sprint("key ", keys)
				if name != "unique" { // there is a run to replace, which is due once it is replaced
					_, err := direct.Enqueue(t.Context(), newRun(durable.Replace(key), durable.After(time.Hour), durable.Tags("first")))
					require.NoError(t, err)
				}
				c.next.Store(int64(keys))
				stop := make(chan struct{})
				var worker sync.WaitGroup
				worker.Go(func() {
					for over := false; !over; {
						select {
						case <-stop:
							over = true
						default:
						}
						executed += drain(t, direct)[key]
					}
				})
				run := newRun(option(key), durable.Tags("second"))
				receipts, err := client.Enqueue(t.Context(), run)
				close(stop)
				worker.Wait()
				require.NoError(t, err)
				c.next.Store(-1)
				record, err := direct.Run(t.Context(), receipts[0].ID)
				require.NoError(t, err)
				require.Equal(t, []string{"second"}, record.Tags)
				keys++
			}
			t.Logf("%d cuts, %d executed", keys-1, executed)
			require.Greater(t, keys, 4)
			var counts map[store.State]store.Count
			require.Eventually(t, func() bool { // the last one is due a millisecond after it was stored
				drain(t, direct)
				var err error
				counts, err = direct.Counts(t.Context())
				return err == nil && counts[store.Pending].N == 0
			}, time.Minute, 5*time.Millisecond)
			require.EqualValues(t, keys, counts[store.Succeeded].N, "%v: one for each key", counts)
			requireOnce(t, direct)
			requireConsistent(t, direct)
		})
	}
}

// drain executes what is due and returns how much of each key.
func drain(t *testing.T, db opened) map[string]int {
	done := map[string]int{}
	r, err := request(t.Context(), db, worker("w"), 10, time.Minute)
	if err != nil || len(r.Steps) == 0 {
		return done
	}
	runs, err := db.Claim(t.Context(), r)
	if err != nil || len(runs) == 0 {
		return done
	}
	if _, err := db.Settle(t.Context(), []store.Settlement{settlement(r, runs, store.Outcome{Kind: store.Success})}); err != nil {
		t.Error(err)
	}
	for _, run := range runs {
		record, err := db.Run(t.Context(), run.ID)
		if err != nil || record.Key == nil {
			t.Errorf("run %s: %v", run.ID, err)
			continue
		}
		done[*record.Key]++
	}
	return done
}

// requireOnce wants each key's second enqueue to be one run.
func requireOnce(t *testing.T, store opened) {
	t.Helper()
	rows, err := connect(t, store.url).Query(t.Context(), "select key from "+store.schema+".runs where tags = '{second}' group by key having count(*) <> 1")
	require.NoError(t, err)
	defer rows.Close()
	require.False(t, rows.Next(), "a key whose second enqueue is more than one run")
	require.NoError(t, rows.Err())
}
