package durablecmd

import (
	"context"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/observe/metrics"
	"github.com/durable-worker/durable-worker/operate"
)

const (
	// sampleEvery is how old the database's part of /metrics becomes before a scrape reads
	// it again.
	sampleEvery = 30 * time.Second
	// sampleSpread is added for each living worker, so that a fleet reads about one a second.
	sampleSpread = time.Second
	// sampleWithin bounds the time for which a scrape waits for the database.
	sampleWithin = 3 * time.Second
)

// sampler keeps what was last read of the database for /metrics. Nothing is read
// between scrapes.
type sampler struct {
	read func(context.Context) (operate.Sample, error)
	now  func() time.Duration // on this machine's monotonic clock

	reading sync.Mutex // held by the scrape that reads

	mu     sync.Mutex // guards what is below
	sample *operate.Sample
	tried  bool
	at     time.Duration // of the last try
	readAt time.Duration // of the last one that had an answer
}

// latest returns what is known, and reads it first if it is old. One scrape reads at a
// time; others, and one that does not get an answer, show what is known with its age.
func (s *sampler) latest(ctx context.Context) *metrics.Database {
	if s.due() && s.reading.TryLock() {
		s.renew(ctx)
		s.reading.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sample == nil {
		return nil
	}
	return &metrics.Database{Age: s.now() - s.readAt, At: s.sample.Survey.At, Lanes: s.sample.Survey.Lanes, Unserved: s.sample.Unserved,
		Alive: s.sample.Alive, Silent: s.sample.Silent, ExpiredLeases: s.sample.Survey.ExpiredLeases, Limits: s.sample.Limits,
		Flagged: s.sample.Flagged, Lateness: s.sample.Lateness}
}

func (s *sampler) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	every := sampleEvery
	if s.sample != nil {
		every += time.Duration(s.sample.Alive) * sampleSpread
	}
	return !s.tried || s.now()-s.at >= every
}

func (s *sampler) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sampleWithin)
	defer cancel()
	sample, err := s.read(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tried, s.at = true, s.now(); err == nil { // without an answer the age says so
		s.sample, s.readAt = &sample, s.at
	}
}

const (
	// probeEvery is how old a probe of the locks becomes before a health check or a scrape
	// makes another.
	probeEvery = 10 * time.Second
	// probeWithin bounds the time for which they wait for it.
	probeWithin = 2 * time.Second
)

// lockProbe keeps what was last found of the store of the locks, where that is another one
// than the runs' own, with which the worker is in touch anyway. Nothing is probed between
// health checks and scrapes.
type lockProbe struct {
	probe func(context.Context) (lock.Health, error)
	now   func() time.Duration // on this machine's monotonic clock

	mu    sync.Mutex // guards what is below; held while a probe is made
	found *probed
	at    time.Duration
}

// probed is what a probe found.
type probed struct {
	health lock.Health
	took   time.Duration
}

// metrics is the same for a scrape.
func (p *probed) metrics() *metrics.LockProbe {
	if p == nil {
		return nil
	}
	return &metrics.LockProbe{Healthy: p.health == lock.Healthy, Took: p.took}
}

// latest is what is known, which is not older than probeEvery; nil: locks are not probed.
func (p *lockProbe) latest(ctx context.Context) *probed {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if began := p.now(); p.found == nil || began-p.at >= probeEvery {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeWithin)
		defer cancel()
		health, _ := p.probe(ctx) // its error may hold what clients may not see; the lockers log it
		p.at = p.now()
		p.found = &probed{health, p.at - began}
	}
	return p.found
}
