package rules

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/saturate"
	"github.com/durable-worker/durable-worker/store"
)

// silentAfter is how many intervals without a report make a worker silent.
const silentAfter = 3

// SilentAfter is how long without a report makes a worker silent that reports at an
// interval.
func SilentAfter(every store.Duration) time.Duration {
	return saturate.Times(silentAfter, time.Duration(every))
}

// WorkerState is the state of a worker that has reported a time ago and that holds
// some unexpired leases.
func WorkerState(p *store.Presence, ago time.Duration, leases int) store.WorkerState {
	switch {
	case ago > SilentAfter(p.Every) && leases == 0:
		return store.Silent
	case p.Draining:
		return store.Draining
	default:
		return store.Working
	}
}

// Seen completes what is known of a worker that has reported a presence.
func Seen(w store.WorkerInfo, now time.Time) store.WorkerInfo {
	ago := max(now.Sub(w.SeenAt), 0)
	w.SeenAgo = store.Duration(ago.Round(time.Millisecond))
	w.State = WorkerState(&w.Presence, ago, w.Leases)
	return w
}

// SortWorkers orders workers as they are listed.
func SortWorkers(all []store.WorkerInfo) {
	slices.SortFunc(all, func(a, b store.WorkerInfo) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.StartedAt.Compare(b.StartedAt), slices.Compare(a.Instance[:], b.Instance[:]))
	})
}

// PresenceText is a presence as an engine stores it.
func PresenceText(p *store.Presence) (string, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("presence: %w", err)
	}
	return string(text), nil
}

// PresenceOf reads what PresenceText has written, and what newer programs have.
func PresenceOf(text string) (p store.Presence, err error) {
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return p, fmt.Errorf("presence: %w", err)
	}
	if p.Queues == nil {
		p.Queues = []string{}
	}
	if p.Jobs == nil {
		p.Jobs = []string{}
	}
	return p, nil
}

// AddedUp adds up the steps of points, which are in the order of their instants, to those
// that a query asks for.
func AddedUp(points []store.SeriesPoint, query *store.SeriesQuery) []store.SeriesPoint {
	type step struct {
		at         time.Time
		queue, job string
	}
	sums, at := []store.SeriesPoint{}, map[step]int{}
	for i := range points {
		p := points[i]
		p.At = p.At.UTC().Truncate(query.Length())
		if query.NoTimes {
			p.Wait, p.Took = [store.Buckets]int64{}, [store.Buckets]int64{}
		}
		key := step{p.At, p.Queue, p.Job}
		if n, known := at[key]; known {
			sums[n].Add(&p.Tally)
			continue
		}
		at[key] = len(sums)
		sums = append(sums, p)
	}
	slices.SortFunc(sums, func(a, b store.SeriesPoint) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Job, b.Job))
	})
	return sums
}

// StepOf is the beginning of the step of a series in which an instant is.
func StepOf(at time.Time, span store.Span) time.Time { return at.UTC().Truncate(span.Length()) }
