package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// statKey is one step of a series: of a job on a queue, or of all without names.
type statKey struct {
	span       store.Span
	at         time.Time
	queue, job string
}

// ReportWorker stores what a worker is and did.
func (s *Store) ReportWorker(ctx context.Context, report store.WorkerReport) (store.Shared, error) {
	if err := ctx.Err(); err != nil {
		return store.Shared{}, fmt.Errorf("report: %w", err)
	}
	if err := report.Check(); err != nil {
		return store.Shared{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	known, again := s.workers[report.Worker.Instance]
	if !again {
		known.startedAt = now
	}
	if report.Number > known.reports {
		presence := clonePresence(&report.Presence)
		known.name, known.seenAt, known.reportedAt, known.reports, known.presence = report.Worker.Name, now, now, report.Number, &presence
		if report.Stopped {
			known.presence = nil
		}
		s.workers[report.Worker.Instance] = known
		s.addStats(now, report.Did)
	}
	shared := store.Shared{Now: now}
	for _, w := range s.workers {
		if w.presence != nil && now.Sub(w.reportedAt) <= rules.SilentAfter(report.Presence.Every) {
			shared.Alive++
		}
	}
	return shared, nil
}

func (s *Store) addStats(now time.Time, did []store.LaneTally) {
	summed := store.Summed(did)
	for _, span := range store.Spans() {
		at := rules.StepOf(now, span)
		for i := range summed {
			key := statKey{span, at, summed[i].Queue, summed[i].Job}
			if s.stats[key] == nil {
				s.stats[key] = &store.Tally{}
			}
			s.stats[key].Add(&summed[i].Tally)
		}
	}
}

// forgetStats drops steps that are older than they are kept.
func (s *Store) forgetStats(now time.Time) {
	for key := range s.stats {
		if now.Sub(key.at) > key.span.Kept() {
			delete(s.stats, key)
		}
	}
}

// Series returns what workers did.
func (s *Store) Series(ctx context.Context, query store.SeriesQuery) ([]store.SeriesPoint, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("series: %w", err)
	}
	if err := query.Check(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	points, since := []store.SeriesPoint{}, s.now().Add(-query.Within)
	for key, tally := range s.stats {
		if key.span == query.Span && !key.at.Before(since) && (key.queue == "") == (query.Scope == store.AllLanes) &&
			(query.Queue == "" || query.Queue == key.queue) && (query.Job == "" || query.Job == key.job) {
			points = append(points, store.SeriesPoint{At: key.at, LaneTally: store.LaneTally{Queue: key.queue, Job: key.job, Tally: *tally}})
		}
	}
	points = rules.AddedUp(points, &query)
	return points[max(len(points)-store.MaxSeriesPoints, 0):], nil
}
