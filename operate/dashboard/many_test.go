package dashboard_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

var nextOf = regexp.MustCompile(`href="([^"]*)">Next page<`)

// TestPagesOfManyNames opens each page of a store with more queues, jobs, schedules, limits
// and workers than a page shows.
func TestPagesOfManyNames(t *testing.T) {
	db := engines["memory"](t)
	const n = 450
	var jobs []store.JobInfo
	var runs []store.NewRun
	for i := range n {
		jobs = append(jobs, durable.NewJob[string](fmt.Sprintf("job-%03d", i)).Info())
		for range 1 + i%2 {
			runs = append(runs, durable.RunOf(store.JobInfo{Name: "mail", Queue: fmt.Sprintf("q-%03d", i), MaxAttempts: 1}, []byte("{}")))
		}
		limit := store.Limit{Name: fmt.Sprintf("limit-%03d", i), Kind: store.LimitSemaphore, Max: 1}
		require.NoError(t, db.ChangeLimit(t.Context(), store.LimitChange{Command: store.SetLimit, Limit: limit, By: "ann"}))
		schedule := store.Schedule{Name: fmt.Sprintf("schedule-%03d", i), Rule: store.Every(time.Hour), Job: "mail", Queue: "default", MaxAttempts: 1, Args: []byte("{}")}
		require.NoError(t, db.SaveSchedule(t.Context(), schedule, "ann"))
		_, err := db.ReportWorker(t.Context(), store.WorkerReport{Worker: store.WorkerID{Name: "worker", Instance: uuid.New()}, Number: 1,
			Presence: store.Presence{Every: store.Duration(time.Hour), Queues: []string{"default"}, Jobs: []string{"mail"}, Capacity: 1}})
		require.NoError(t, err)
	}
	require.NoError(t, db.Declare(t.Context(), store.Declaration{Worker: store.WorkerID{Name: "w"}, Jobs: jobs}))
	_, err := db.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	s := newSite(t, db)
	for path, rows := range map[string]int{"queues": n, "jobs": 2 * n, "jobs?name=mail": n, "limits": n, "schedules": n, "workers": n} {
		seen := 0
		for at := path; at != ""; {
			body := s.get(at)
			require.Less(t, len(body), 250_000, at)
			table := body[strings.Index(body, "<tbody>"):strings.LastIndex(body, "</tbody>")]
			here := strings.Count(table, "<tr id=")
			require.LessOrEqual(t, here, 100, at)
			seen += here
			if at != path {
				has(t, body, ">First page<")
			}
			found := nextOf.FindStringSubmatch(body)
			if at = ""; found != nil {
				at = strings.TrimPrefix(strings.ReplaceAll(found[1], "&amp;", "&"), "./")
			}
		}
		require.Equal(t, rows, seen, path)
		require.Equal(t, 400, s.do("GET", path+map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")]+"cursor=x", nil).status, path)
	}
	overview := s.get("")
	require.Less(t, len(overview), 250_000)
	queues := overview[strings.Index(overview, `<section id="queues"`):]
	queues = queues[:strings.Index(queues, "</section>")]
	require.Equal(t, 20, strings.Count(queues, "<tr id="), "the busiest")
	has(t, queues, ">q-001<", ">q-039<")
	lacks(t, queues, ">q-000<")
	for _, path := range []string{"runs", "runs?queue=q-007&job=mail", "schedules/new", "health", "problems"} {
		body := s.get(path)
		require.Less(t, len(body), 250_000, path)
		require.Less(t, strings.Count(body, "<option"), 250, path)
	}
	has(t, s.get("runs?queue=q-007&job=mail"), `<input name="queue" value="q-007"`, `<input name="job" value="mail"`)
	has(t, s.get("schedules/new?job=mail"), `<input name="job" value="mail"`)
}
