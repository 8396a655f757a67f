package locktest

import (
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lock"
)

// BenchmarkLocks measures an acquisition and a release of a lock that nobody
// else wants, and reports the median and the 99th percentile of an acquisition.
func BenchmarkLocks(b *testing.B, locks lock.Locks) {
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		r := request("nightly", 1)
		began := time.Now()
		answer, err := locks.Acquire(b.Context(), r)
		took = append(took, time.Since(began))
		if err != nil || !answer.Granted {
			b.Fatalf("%+v, %v", answer, err)
		}
		if _, err := locks.Release(b.Context(), r.Name, r.Claim); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99")
}
