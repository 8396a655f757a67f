package metrics_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/observe/metrics"
	"github.com/durable-worker/durable-worker/store"
)

// A program that has its own HTTP server shows its metrics there.
func ExampleServe() {
	tally := observe.NewTally() // also WorkerConfig.Tally, and Tally.Hooks() of clients and lockers
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		metrics.Serve(w, r, metrics.Snapshot{Totals: tally.Totals(), Version: "v1.2.3"})
	})
}

func ExampleText() {
	tally := observe.NewTally()
	mail := tally.Lane("default", "mail")
	mail.Begun(10 * time.Millisecond)
	mail.Ended(20 * time.Millisecond)
	mail.Settled(store.Success, store.Applied)
	for line := range strings.Lines(string(metrics.Text(metrics.Snapshot{Totals: tally.Totals()}, metrics.Prometheus))) {
		if strings.HasPrefix(line, "durable_runs_settled_total{") && strings.Contains(line, "succ") {
			fmt.Print(line)
		}
	}
	// Output: durable_runs_settled_total{job="mail",queue="default",outcome="success"} 1
}
