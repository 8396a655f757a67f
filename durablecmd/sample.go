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
	// sampleSpread is added for each living worker: all of them read the same, and a fleet
	// that is scraped as a whole has something new every six seconds.
	sampleSpread = 6 * time.Second
	// sampleSpreadMost bounds what is added: where one of many workers is scraped, the age
	// stays below that of the alert DurableSampleOld.
	sampleSpreadMost = 2 * time.Minute
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
		Alive: s.sample.Alive, Silent: s.sample.Silent, ExpiredLeases: s.sample.Survey.ExpiredLeases, Notices: s.sample.Survey.Notices, OldestNotice: s.sample.Survey.OldestNotice, Limits: s.sample.Limits,
		Flagged: s.sample.Flagged, Lateness: s.sample.Lateness}
}

func (s *sampler) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	every := sampleEvery
	if s.sample != nil {
		every += min(time.Duration(s.sample.Alive)*sampleSpread, sampleSpreadMost)
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
	// probeWithin bounds each of the two calls of a probe. A health check that waits for both
	// still answers within the second that Kubernetes gives it.
	probeWithin = 250 * time.Millisecond
)

// lockProbe keeps what was last found of the store of the locks, where that is another one
// than the runs' own, with which the worker is in touch anyway. Nothing is probed between
// health checks and scrapes.
type lockProbe struct {
	probe func(context.Context) (lock.Health, error)
	now   func() time.Duration // on this machine's monotonic clock

	probing sync.Mutex // held by the one that probes

	mu    sync.Mutex // guards what is below
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

// latest is what is known, and probes first if that is old. One probes at a time; others
// get what is known. It is nil where locks are not probed, or until the first probe has ended.
func (p *lockProbe) latest(ctx context.Context) *probed {
	if p == nil {
		return nil
	}
	if p.due() && p.probing.TryLock() {
		p.renew(ctx)
		p.probing.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.found
}

func (p *lockProbe) due() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.found == nil || p.now()-p.at >= probeEvery
}

func (p *lockProbe) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*probeWithin)
	defer cancel()
	began := p.now()
	health, _ := p.probe(ctx) // its error may hold what clients may not see; the lockers log it
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = p.now()
	p.found = &probed{health, p.at - began}
}
