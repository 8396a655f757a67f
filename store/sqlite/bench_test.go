package sqlite_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// BenchmarkEnqueue stores runs in batches, synchronous=FULL.
func BenchmarkEnqueue(b *testing.B) {
	for _, batch := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			s := openBench(b)
			rest := b.N
			b.ResetTimer()
			for rest > 0 {
				n := min(batch, rest)
				_, err := s.Enqueue(b.Context(), newRuns(n)...)
				require.NoError(b, err)
				rest -= n
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
		})
	}
}

// BenchmarkEnqueueParallel stores single runs from 32 goroutines.
func BenchmarkEnqueueParallel(b *testing.B) {
	s := openBench(b)
	b.SetParallelism(16) // times GOMAXPROCS
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Enqueue(b.Context(), newRuns(1)...); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
}

// BenchmarkDrain claims and settles runs in batches, synchronous=FULL.
func BenchmarkDrain(b *testing.B) {
	for _, batch := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			s := openBench(b)
			for rest := b.N; rest > 0; rest -= 5000 {
				_, err := s.Enqueue(b.Context(), newRuns(min(rest, 5000))...)
				require.NoError(b, err)
			}
			b.ResetTimer()
			for done := 0; done < b.N; {
				runs, err := drainOnce(b, s, batch)
				require.NoError(b, err)
				require.NotZero(b, runs)
				done += runs
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
		})
	}
}

func drainOnce(tb testing.TB, s *sqlite.Store, batch int) (int, error) {
	request := store.ClaimRequest{
		Claim: lease.NewClaimID(), Worker: worker(), Duration: time.Minute, Limit: batch,
		Steps: []store.Step{{Lane: 1, Take: batch}},
	}
	runs, err := s.Claim(tb.Context(), request)
	if err != nil || len(runs) == 0 {
		return 0, err
	}
	_, err = s.Settle(tb.Context(), succeed(request.Claim, runs))
	return len(runs), err
}

// BenchmarkHeads looks for the first waiting run of 60 lanes, 100,000 waiting.
func BenchmarkHeads(b *testing.B) {
	s := openBench(b)
	var jobs []string
	for i := range 60 {
		jobs = append(jobs, fmt.Sprintf("job%d", i))
		runs := newRuns(1700)
		for k := range runs {
			runs[k].Job = jobs[i]
		}
		_, err := s.Enqueue(b.Context(), runs...)
		require.NoError(b, err)
	}
	b.ResetTimer()
	for b.Loop() {
		heads, err := s.Heads(b.Context(), store.Serves{Queues: []string{"default"}, Jobs: jobs})
		require.NoError(b, err)
		require.Len(b, heads, 60)
	}
}

func openBench(b *testing.B) *sqlite.Store {
	b.Helper()
	s, err := sqlite.Open(b.Context(), b.TempDir()+"/runs.db", sqlite.Config{})
	require.NoError(b, err)
	b.Cleanup(s.Close)
	_, err = s.Migrate(b.Context())
	require.NoError(b, err)
	return s
}
