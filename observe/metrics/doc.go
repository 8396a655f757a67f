// Package metrics writes what a program's workers, clients and lockers do in the text
// formats of Prometheus and OpenMetrics. docs/operations.md says what each metric means
// and what to do when it moves.
//
//	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
//		metrics.Serve(w, r, metrics.Snapshot{Totals: tally.Totals()})
//	})
//
// The labels are bounded: jobs and queues as observe.Tally bounds them, and never an
// id, a key, the name of a worker or a text of yours. Begin reading at snapshot.go.
package metrics
