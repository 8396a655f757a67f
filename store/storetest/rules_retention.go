package storetest

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

// retentionTable is how many hours an ended run is kept: by the retention of its
// job, zero if it has none, and those of the sweep's request. Less than zero, and
// zero in a request, is forever.
const retentionTable = `
own ended dead  succeeded cancelled dead_is
0   0     0     forever   forever   forever
0   0     3     forever   forever   3
0   2     0     2         2         forever
0   2     3     2         2         3
0   -1    -1    forever   forever   forever
1   0     0     1         1         1
1   0     3     1         1         1
1   2     0     1         1         1
1   2     3     1         1         1
-1  0     0     forever   forever   forever
-1  0     3     forever   forever   forever
-1  2     0     forever   forever   forever
-1  2     3     forever   forever   forever
`

func retentionRule(t *testing.T, f *fixture) {
	var jobs []store.JobInfo
	job := func(own string) string { return "keeps" + own }
	hours := func(word string) time.Duration {
		n, _ := strconv.Atoi(word)
		return time.Duration(n) * time.Hour
	}
	for _, own := range []string{"0", "1", "-1"} {
		jobs = append(jobs, store.JobInfo{Name: job(own), Queue: store.DefaultQueue, MaxAttempts: 3, Retention: store.Duration(hours(own))})
	}
	if err := f.store.Declare(f.ctx, store.Declaration{Worker: newWorker("w1"), Jobs: jobs}); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows(t, retentionTable) {
		request := store.SweepRequest{By: uuid.New(), Retention: hours(row["ended"]), RetentionDead: hours(row["dead"]), Limit: 100}
		kept := map[store.RunID]string{}
		for kind, word := range map[store.OutcomeKind]string{store.Success: "succeeded", store.Cancellation: "cancelled", store.Death: "dead_is"} {
			id := f.end(kind, func(r *store.NewRun) { r.Job = job(row["own"]) })
			kept[id] = row[word]
		}
		f.advance(30 * time.Minute)
		for age := range 4 { // and a half
			f.sweep(request)
			for id, word := range kept {
				_, err := f.store.Run(f.ctx, id)
				if there, want := err == nil, word == "forever" || age < int(hours(word).Hours()); there != want {
					t.Errorf("%v: the run that is kept for %s is there after %d.5 h: %v", row, word, age, there)
				}
			}
			f.advance(time.Hour)
		}
		for id := range kept {
			f.operate(store.DeleteRuns, id)
		}
	}
}
