package durablecmd

import (
	"context"
	"sync"
	"time"

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
