package durable_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// A worker whose intervals are the longest that it accepts calls its store no more often
// than others do, and executes what it is notified of.
func TestTheLongestIntervalsAreNoShortOnes(t *testing.T) {
	long := durable.WorkerConfig{
		PollInterval: store.MaxDelay, PollJitter: 1, SweepInterval: store.MaxDelay, DrainTimeout: store.MaxDelay, CancelGrace: store.MaxDelay,
		Terms: lease.Terms{Duration: lease.MaxDuration}, MaxCrashes: store.MostCrashes,
		Retention: math.MaxInt64, RetentionDead: math.MaxInt64, RetentionAudit: math.MaxInt64, Orphans: math.MaxInt64,
		ClaimBatchSize: math.MaxInt, ClaimBatchBytes: math.MaxInt, Queues: []durable.Queue{{Name: durable.DefaultQueue, Max: math.MaxInt}},
		MaxConcurrentRuns: 100_000,
	}
	for name, config := range map[string]durable.WorkerConfig{"with wake-ups": long, "without": {NoListen: true, PollInterval: store.MaxDelay, PollJitter: -1}} {
		for _, random := range []float64{0.01, 0.5, 1 - 1e-9} {
			t.Run(name, func(t *testing.T) {
				play(t, func(t *testing.T, s *scene) {
					counts := &callCounts{counts: map[string]int{}}
					config := config
					config.Hooks, config.Random = counts.hooks(), func() float64 { return random }
					job := durable.NewJob[letter]("mail", durable.Retention(math.MaxInt64), durable.Timeout(store.MaxDelay))
					w := s.worker(config)
					durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
					durable.AddSchedule(w, "once", job, letter{}, durable.Once(endOfTime))
					durable.AddSchedule(w, "later", job, letter{}, durable.Every(time.Hour), durable.StartAt(endOfTime.Add(-time.Hour)), durable.CatchUp(store.CatchUpAll, math.MaxInt64, 0), durable.Overlap(store.OverlapWait))
					durable.AddSchedule(w, "rarely", job, letter{}, durable.Every(100*365*24*time.Hour))
					stop := s.begin(w)
					s.pass(time.Minute)
					counts.reset()
					s.pass(time.Hour)
					idle := counts.reset()
					id := s.enqueue(job.New(letter{}))
					s.pass(time.Minute)
					require.NoError(t, stop())
					for verb, n := range idle {
						require.LessOrEqual(t, n, 1000, "%s: %v", verb, idle)
					}
					if !config.NoListen {
						require.Equal(t, durable.Succeeded, s.record(id).State)
					}
				})
			})
		}
	}
}

// What is beyond is refused in a sentence that says what is wanted.
func TestIntervalsBeyondTheLongestAreRefused(t *testing.T) {
	for want, config := range map[string]durable.WorkerConfig{
		"poll interval":  {PollInterval: math.MaxInt64},
		"sweep interval": {SweepInterval: math.MaxInt64},
		"drain timeout":  {DrainTimeout: math.MaxInt64},
		"cancel grace":   {CancelGrace: math.MaxInt64},
		"lease duration": {Terms: lease.Terms{Duration: math.MaxInt64}},
	} {
		w := durable.NewWorker(newFaultyStore(), config)
		durable.Register(w, durable.NewJob[letter]("mail"), func(context.Context, *durable.Run[letter]) error { return nil })
		err := w.Run(t.Context())
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "876000h")
	}
}
