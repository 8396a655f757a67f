package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// mixture is a store that many goroutines use concurrently in every way, and what
// they know of it. Leases of a microsecond let everything be stolen.
type mixture struct {
	*fixture
	batch    int // most runs of a claim, most leases of a reclaim
	mu       sync.Mutex
	enqueued int64
	accepted int64 // successes
	claims   []store.Settlement
}

func verbsRace(t *testing.T, f *fixture) {
	const rounds = 25
	m := &mixture{fixture: f, batch: 7}
	f.enqueue(newRuns(300)...)
	m.enqueued = 300
	verbs := []func(context.Context) error{
		m.enqueueSome, m.enqueueKeyed, m.claimSome, m.claimSome, m.settleSome, m.settleSome, m.renewAll, m.reclaimSome,
		m.inspect, m.declare, m.materialize,
	}
	var functions []func(context.Context) error
	for _, verb := range append(verbs, verbs...) {
		functions = append(functions, func(ctx context.Context) error {
			for range rounds {
				if err := verb(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	f.together(functions...)
	if t.Failed() {
		return
	}
	m.drain()
	counts := f.counts()
	if counts[store.Succeeded] != m.enqueued || m.accepted != m.enqueued {
		t.Errorf("%d runs were enqueued, %d settles accepted, and %v", m.enqueued, m.accepted, counts)
	}
}

func (m *mixture) enqueueSome(ctx context.Context) error {
	_, err := m.store.Enqueue(ctx, newRuns(5)...)
	m.mu.Lock()
	m.enqueued += 5
	m.mu.Unlock()
	return err
}

// claimSome claims from plain and from isolated lines.
func (m *mixture) claimSome(ctx context.Context) error {
	heads, err := m.store.Heads(ctx, store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}})
	if err != nil {
		return err
	}
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: newWorker("w1"), Duration: time.Microsecond, Limit: m.batch}
	for _, head := range heads {
		request.Steps = append(request.Steps, store.Step{Lane: head.Lane, Take: m.batch})
	}
	claimed, err := m.store.Claim(ctx, request)
	for _, c := range claimed {
		if want := store.ZonedTimeOf(instantOf(c.ID)); c.Schedule != "" && c.OccursAt != want || c.Schedule == "" && c.OccursAt != "" {
			m.t.Errorf("a run of schedule %q is for %q, want %q", c.Schedule, c.OccursAt, want)
		}
	}
	m.mu.Lock()
	m.claims = append(m.claims, all(request.Claim, request.Worker, claimed, success()))
	m.mu.Unlock()
	return err
}

// settleSome settles the two latest claims, and one a second time.
func (m *mixture) settleSome(ctx context.Context) error {
	m.mu.Lock()
	recent := append([]store.Settlement{}, m.claims[max(len(m.claims)-2, 0):]...)
	m.mu.Unlock()
	verdicts, err := m.store.Settle(ctx, recent)
	m.mu.Lock()
	for _, verdict := range verdicts {
		if verdict == store.Applied {
			m.accepted++
		}
	}
	m.mu.Unlock()
	return err
}

func (m *mixture) renewAll(ctx context.Context) error {
	m.mu.Lock()
	var claims []lease.ClaimID
	for _, settlement := range m.claims {
		claims = append(claims, settlement.Claim)
	}
	m.mu.Unlock()
	_, err := m.store.Renew(ctx, claims, time.Microsecond)
	return err
}

func (m *mixture) reclaimSome(ctx context.Context) error {
	_, err := m.store.Reclaim(ctx, store.ReclaimRequest{MaxCrashes: 1000, Limit: m.batch})
	return err
}

// inspect reads in every way.
func (m *mixture) inspect(ctx context.Context) error {
	if _, err := m.store.Counts(ctx); err != nil {
		return err
	}
	page, err := m.store.Runs(ctx, store.Filter{States: []store.State{store.Running, store.Pending}, Limit: 10})
	for _, run := range page.Runs {
		if _, err := m.store.Run(ctx, run.ID); err != nil {
			return err
		}
	}
	return err
}

func (m *mixture) declare(ctx context.Context) error {
	return m.store.Declare(ctx, store.Declaration{
		Worker:    newWorker("w1"),
		Jobs:      []store.JobInfo{{Name: "mail", Queue: store.DefaultQueue, MaxAttempts: 3}},
		Schedules: []store.Schedule{newSchedule("one"), newSchedule("two"), newSchedule("three")},
	})
}

func (m *mixture) materialize(ctx context.Context) error {
	made, err := m.store.Materialize(ctx, 10, func(now time.Time, s store.Schedule) store.Decision {
		run := newRun()
		return store.Decision{NextAt: now, Occurrences: []store.Occurrence{{Key: s.Name + run.ID.String(), At: instantOf(run.ID), Run: run}}}
	})
	m.mu.Lock()
	m.enqueued += int64(len(made.Runs))
	m.mu.Unlock()
	return err
}

// instantOf is the occurrence that a run of a schedule is for: each has one of its own.
func instantOf(id store.RunID) time.Time {
	return time.Unix(int64(id[14])<<8|int64(id[15]), 0).In(time.FixedZone("Mars/Utopia", 5400))
}

// drain brings every run to its end.
func (m *mixture) drain() {
	m.t.Helper()
	m.batch = 1000
	for range 100 {
		m.advance(time.Hour)
		if err := m.reclaimSome(m.ctx); err != nil {
			m.t.Fatalf("Reclaim: %v", err)
		}
		if err := m.claimSome(m.ctx); err != nil {
			m.t.Fatalf("Claim: %v", err)
		}
		if err := m.settleSome(m.ctx); err != nil {
			m.t.Fatalf("Settle: %v", err)
		}
		if m.counts()[store.Succeeded] == m.enqueued {
			return
		}
	}
}
