package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// invented stores more of everything that has a name than fits on a page: runs on queues
// that a client invented, jobs, workers, limits and schedules.
func invented(t *testing.T, b *bench, n int) {
	t.Helper()
	var jobs []store.JobInfo
	var limits []store.Limit
	for i := range n {
		jobs = append(jobs, durable.NewJob[string](fmt.Sprintf("job-%05d", i)).Info())
		limits = append(limits, store.Limit{Name: fmt.Sprintf("limit-%05d", i), Kind: store.LimitSemaphore, Max: 1})
	}
	b.declare(jobs...)
	for i := range limits {
		require.NoError(t, b.store.ChangeLimit(t.Context(), store.LimitChange{Command: store.SetLimit, Limit: limits[i], By: "ann"}))
		schedule := store.Schedule{Name: fmt.Sprintf("schedule-%05d", i), Rule: store.Every(time.Hour), Job: "mail", Queue: "default", MaxAttempts: 1, Args: []byte("{}")}
		require.NoError(t, b.store.SaveSchedule(t.Context(), schedule, "ann"))
		_, err := b.store.ReportWorker(t.Context(), store.WorkerReport{Worker: store.WorkerID{Name: "worker", Instance: uuid.New()}, Number: 1,
			Presence: store.Presence{Every: store.Duration(time.Hour), Queues: []string{"default"}, Jobs: []string{"mail"}, Capacity: 1}})
		require.NoError(t, err)
	}
	var runs []store.NewRun
	for i := range 4 * n {
		run := durable.RunOf(store.JobInfo{Name: "mail", Queue: fmt.Sprintf("q-%05d", i), MaxAttempts: 1}, []byte("{}"))
		if runs = append(runs, run); len(runs) == 1000 || i == 4*n-1 {
			_, err := b.store.Enqueue(t.Context(), runs...)
			require.NoError(t, err)
			runs = nil
		}
	}
}

// TestListsHavePages reads each list that has any number of members, to its end.
func TestListsHavePages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const n = 250
	invented(t, b, n)
	for list, want := range map[string]struct {
		least, page int
		name        string
	}{
		"queues": {4 * n, 200, "name"}, "jobs": {5 * n, 200, "job"}, "workers": {n, 200, "instance"},
		"limits": {n, 200, "name"}, "schedules": {n, 50, "name"},
	} {
		for _, limit := range []int{0, 7, 200} {
			page := want.page
			target := "/" + list
			if limit > 0 {
				page, target = limit, fmt.Sprintf("/%s?limit=%d", list, limit)
			}
			seen, cursor := []string{}, ""
			for pages := 0; ; pages++ {
				w := b.send("GET", target+cursor, "")
				require.Equal(t, 200, w.Code, w.Body)
				require.Less(t, w.Body.Len(), 300_000, list)
				var answer map[string]any
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
				items, _ := answer[list].([]any)
				require.LessOrEqual(t, len(items), page)
				for _, one := range items {
					named, _ := one.(map[string]any)
					name, _ := named[want.name].(string)
					if queue, ofJob := named["queue"].(string); ofJob {
						name += " " + queue
					}
					seen = append(seen, name)
				}
				next, more := answer["next"].(string)
				if !more || limit == 7 && pages > 3 { // so small a page is read for a while
					break
				}
				require.Len(t, items, page, "only the last page is short")
				cursor = "?cursor=" + next
				if limit > 0 {
					cursor = "&cursor=" + next
				}
			}
			distinct := slices.Clone(seen)
			slices.Sort(distinct)
			require.Len(t, slices.Compact(distinct), len(seen), "none comes twice")
			if limit != 7 {
				require.GreaterOrEqual(t, len(seen), want.least, "and none is left out")
			}
		}
		require.Equal(t, 400, b.send("GET", "/"+list+"?cursor=eA", "").Code, list)
		require.Equal(t, 400, b.send("GET", "/"+list+"?limit=201", "").Code, list)
		require.Equal(t, 400, b.send("GET", "/"+list+"?limit=0", "").Code, list)
	}
	w := b.send("GET", "/queues?name=q-00007&name=q-00999", "")
	require.Contains(t, w.Body.String(), `"name":"q-00999"`)
	require.Contains(t, w.Body.String(), `"next":null`)
	for _, target := range []string{"/attention", "/findings", "/survey"} {
		w := b.send("GET", target, "")
		require.Equal(t, 200, w.Code)
		require.Less(t, w.Body.Len(), 300_000, target)
	}
}
