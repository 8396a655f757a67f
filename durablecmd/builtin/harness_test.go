package builtin_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd/builtin"
	"github.com/durable-worker/durable-worker/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// station is a worker with the built-in jobs on a store in memory.
type station struct {
	t     *testing.T
	store *memory.Store
	stop  func() error // drains, and returns what Run returned
}

func begin(t *testing.T, config builtin.Config) *station {
	t.Helper()
	s := &station{t: t, store: memory.New(memory.Config{})}
	worker := durable.NewWorker(s.store, durable.WorkerConfig{
		PollInterval: 10 * time.Millisecond, DrainTimeout: -1, CancelGrace: 5 * time.Second, Retry: durable.Exponential(time.Hour, time.Hour),
	})
	jobs := builtin.New(config)
	jobs.Register(worker)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	var result error
	stopped := false
	s.stop = func() error {
		if !stopped {
			stopped = true
			cancel()
			result = <-ended
			jobs.Close()
		}
		return result
	}
	t.Cleanup(func() { _ = s.stop() })
	return s
}

// attempt enqueues a run and waits until it has ended, or an attempt of it has.
func (s *station) attempt(run durable.NewRun) durable.Record {
	s.t.Helper()
	_, err := s.store.Enqueue(s.t.Context(), run)
	require.NoError(s.t, err)
	return s.until(run.ID, func(r durable.Record) bool {
		return r.State != durable.Running && (r.FinishedAt != nil || len(r.Attempts) > 0)
	})
}

// until waits for a state of a run.
func (s *station) until(id durable.RunID, done func(durable.Record) bool) (record durable.Record) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		var err error
		record, err = s.store.Run(s.t.Context(), id)
		require.NoError(s.t, err)
		return done(record)
	}, time.Minute, 5*time.Millisecond)
	return record
}

// reason is the error of the last attempt.
func reason(r durable.Record) string {
	if n := len(r.Attempts); n > 0 && r.Attempts[n-1].Error != nil {
		return *r.Attempts[n-1].Error
	}
	return ""
}

// after is how long after its last attempt a run is due again.
func after(r durable.Record) time.Duration {
	return r.DueAt.Sub(r.Attempts[len(r.Attempts)-1].EndedAt).Round(time.Second)
}

func origins(t *testing.T, text string) builtin.Origins {
	t.Helper()
	o, err := builtin.ParseOrigins(text)
	require.NoError(t, err)
	return o
}

func posting(url string, options ...durable.Option) durable.NewRun {
	return builtin.HTTP().New(builtin.HTTPArgs{URL: url, Body: json.RawMessage(`{"n":1}`)}, options...)
}
