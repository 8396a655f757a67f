package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

var errKilled = errors.New("this worker was killed")

// mortal is the store of a worker that can be killed: from then on nothing that the worker
// does arrives.
type mortal struct {
	store.Store

	killed atomic.Bool
}

func (m *mortal) Heads(ctx context.Context, serves store.Serves) ([]store.Head, error) {
	if m.killed.Load() {
		return nil, errKilled
	}
	return m.Store.Heads(ctx, serves)
}

func (m *mortal) Claim(ctx context.Context, r store.ClaimRequest) ([]store.ClaimedRun, error) {
	if m.killed.Load() {
		return nil, errKilled
	}
	return m.Store.Claim(ctx, r)
}

func (m *mortal) Settle(ctx context.Context, s []store.Settlement) ([]store.Verdict, error) {
	if m.killed.Load() {
		return nil, errKilled
	}
	return m.Store.Settle(ctx, s)
}

func (m *mortal) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	if m.killed.Load() {
		return nil, errKilled
	}
	return m.Store.Renew(ctx, claims, d)
}

func (m *mortal) Reclaim(ctx context.Context, r store.ReclaimRequest) (store.ReclaimResult, error) {
	if m.killed.Load() {
		return store.ReclaimResult{}, errKilled
	}
	return m.Store.Reclaim(ctx, r)
}

func (m *mortal) ReportWorker(ctx context.Context, r store.WorkerReport) (store.Shared, error) {
	if m.killed.Load() {
		return store.Shared{}, errKilled
	}
	return m.Store.ReportWorker(ctx, r)
}

func (m *mortal) HandBack(ctx context.Context, r store.ClaimRequest) (int, error) {
	if m.killed.Load() {
		return 0, errKilled
	}
	return m.Store.HandBack(ctx, r)
}

// TestAFleetThatWasKilledIsSeenWithinNinetySeconds kills all workers while runs are due and
// one executes, and asks the API, which is served alone, what an operator asks.
func TestAFleetThatWasKilledIsSeenWithinNinetySeconds(t *testing.T) {
	t.Parallel()
	doc := described(t)
	synctest.Test(t, func(t *testing.T) {
		began, kept := time.Now(), memory.New(memory.Config{})
		fleet := &mortal{Store: kept}
		b := benchOf(t, kept, doc)
		ctx, stop := context.WithCancel(t.Context())
		var ended []chan error
		for _, name := range []string{"web-1", "web-2"} {
			worker := durable.NewWorker(fleet, durable.WorkerConfig{Name: name, Queues: []durable.Queue{{Name: "default", Max: 1}}, Elapsed: func() time.Duration { return time.Since(began) }, Process: new(durable.Process)})
			durable.Register(worker, durable.NewJob[map[string]any]("mail"), func(ctx context.Context, _ *durable.Run[map[string]any]) error { <-ctx.Done(); return ctx.Err() })
			done := make(chan error, 1)
			go func() { done <- worker.Run(ctx) }()
			ended = append(ended, done)
		}
		synctest.Wait()
		var id string
		for range 4 {
			id = b.enqueue(`{}`)
		}
		pass(time.Minute)
		summary := func() string { return b.want(200, "GET", "/runs/"+id+"/explain", "")["summary"].(string) }
		workers := func() (states []any) {
			for _, one := range b.want(200, "GET", "/workers", "")["workers"].([]any) {
				states = append(states, one.(map[string]any)["state"])
			}
			return states
		}
		require.Equal(t, []any{"working", "working"}, workers())
		require.Contains(t, summary(), "2 of 200 handlers execute, and of queue default 2 of the 2 that 2 workers with caps of their own allow")
		require.Contains(t, summary(), "the longest is run ")

		fleet.killed.Store(true)
		pass(90 * time.Second)
		require.Equal(t, []any{"silent", "silent"}, workers())
		require.Contains(t, summary(), "no living worker serves job mail on queue default; last web-")
		findings, err := json.Marshal(b.want(200, "GET", "/findings", ""))
		require.NoError(t, err)
		require.Contains(t, string(findings), `0 workers alive; silent: web-`)
		require.Contains(t, string(findings), `2 runs due`)
		attention, err := json.Marshal(b.want(200, "GET", "/attention", "")["items"].([]any)[0])
		require.NoError(t, err)
		require.Contains(t, string(attention), "0 workers alive")
		stop()
		for _, done := range ended {
			if err := <-done; err != nil { // the outcome of what executed is left to the lease
				var unsettled *durable.UnsettledError
				require.ErrorAs(t, err, &unsettled)
			}
		}
	})
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time of the bubble
	synctest.Wait()
}
