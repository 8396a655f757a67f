package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/storable"
)

// Stats keeps what workers report about themselves and their work.
type Stats interface {
	// ReportWorker stores a worker's report. Number rises with each report of a worker: a
	// report that is stored already changes nothing, so repeat a call whose answer was
	// lost with the same report. The store adds what the worker did to the minute and
	// the quarter of an hour of its clock in which it stores the report.
	ReportWorker(ctx context.Context, report WorkerReport) (Shared, error)
	// Series returns what workers did, oldest first.
	Series(ctx context.Context, query SeriesQuery) ([]SeriesPoint, error)
}

// WorkerReport is what a worker is, and what it did since its last report.
type WorkerReport struct {
	Worker   WorkerID
	Number   int64 // from 1
	Presence Presence
	Did      []LaneTally // at most MaxReportLanes and OtherLanes, each once
	Stopped  bool        // the last report: the worker is not listed any more
}

// Shared is what a store answers to every report.
type Shared struct {
	Now   time.Time // of the store's clock
	Alive int       // workers that have reported within three of the reporter's intervals
}

// Buckets is the number of classes into which a Tally sorts times.
const Buckets = 16

// BucketBounds are the upper bounds of all classes but the last, which has none.
func BucketBounds() [Buckets - 1]time.Duration {
	const ms, s = time.Millisecond, time.Second
	return [...]time.Duration{5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms, s, 2500 * ms, 5 * s, 10 * s, 30 * s, 60 * s, 300 * s, 1800 * s}
}

// Tally is what was done in a period.
type Tally struct {
	Enqueued  int64          `json:"enqueued"` // runs sent to be stored; those that were there already count as well
	Succeeded int64          `json:"succeeded"`
	Failed    int64          `json:"failed"` // attempts that are followed by another
	Dead      int64          `json:"dead"`
	Cancelled int64          `json:"cancelled"`
	Crashed   int64          `json:"crashed"` // runs reclaimed from workers that have lost them
	Busy      Duration       `json:"busy"`    // the time of all handlers together
	Wait      [Buckets]int64 `json:"wait"`    // attempts by the time from due to begun
	Took      [Buckets]int64 `json:"took"`    // attempts by the time of the handler
}

// Add adds another tally.
func (t *Tally) Add(other *Tally) {
	t.Enqueued += other.Enqueued
	t.Succeeded += other.Succeeded
	t.Failed += other.Failed
	t.Dead += other.Dead
	t.Cancelled += other.Cancelled
	t.Crashed += other.Crashed
	t.Busy += other.Busy
	for i := range Buckets {
		t.Wait[i] += other.Wait[i]
		t.Took[i] += other.Took[i]
	}
}

// Since returns what was done after an earlier tally of the same counters.
func (t Tally) Since(earlier Tally) Tally {
	t.Enqueued -= earlier.Enqueued
	t.Succeeded -= earlier.Succeeded
	t.Failed -= earlier.Failed
	t.Dead -= earlier.Dead
	t.Cancelled -= earlier.Cancelled
	t.Crashed -= earlier.Crashed
	t.Busy -= earlier.Busy
	for i := range Buckets {
		t.Wait[i] -= earlier.Wait[i]
		t.Took[i] -= earlier.Took[i]
	}
	return t
}

// Ended is the number of attempts that have ended.
func (t *Tally) Ended() int64 { return t.Succeeded + t.Failed + t.Dead + t.Cancelled }

// LaneTally is what was done of a job on a queue.
type LaneTally struct {
	Queue string `json:"queue"`
	Job   string `json:"job"`

	Tally
}

// Span is the length of the steps of a series.
type Span int16

// The spans. The numbers are stored.
const (
	Minute  Span = 1  // kept for 6 h
	Quarter Span = 15 // kept for 30 days
)

// Length is the time of one step.
func (s Span) Length() time.Duration { return time.Duration(s) * time.Minute }

// Kept is how long the steps are kept.
func (s Span) Kept() time.Duration {
	if s == Minute {
		return 6 * time.Hour
	}
	return 30 * 24 * time.Hour
}

// Spans are all spans, shortest first.
func Spans() []Span { return []Span{Minute, Quarter} }

// Scope says what a series measures.
type Scope int8

// The scopes.
const (
	AllLanes Scope = iota // of all jobs on all queues together: one point a step
	EachLane              // of each job on each queue
)

// SeriesQuery asks for a series.
type SeriesQuery struct {
	Span  Span
	Scope Scope
	// Within is how far back the first step begins, at most, before now.
	Within time.Duration
	// Queue and Job, with the scope EachLane: only these; empty: any.
	Queue string
	Job   string
	// Step adds up the steps of the span to longer ones: whole steps, which divide a day.
	// Zero: as they are kept.
	Step time.Duration
	// NoTimes leaves out Wait and Took, the dearest part of a point.
	NoTimes bool
}

// Length is how long a step of the answer is.
func (q *SeriesQuery) Length() time.Duration { return max(q.Step, q.Span.Length()) }

// MaxSeriesPoints bounds the points of a series; the newest are kept.
const MaxSeriesPoints = 20_000

// SeriesPoint is one step of a series.
type SeriesPoint struct {
	At time.Time `json:"at"` // its beginning

	LaneTally // with the scope AllLanes without names
}

// Check refuses a query that makes no sense, with ErrInvalid.
func (q *SeriesQuery) Check() error {
	var faults []error
	if !slices.Contains(Spans(), q.Span) {
		faults = append(faults, fmt.Errorf("span %d: want 1 or 15 minutes", q.Span))
	}
	if q.Scope != AllLanes && q.Scope != EachLane {
		faults = append(faults, fmt.Errorf("scope %d: want 0 or 1", q.Scope))
	}
	if q.Scope != EachLane && q.Queue+q.Job != "" {
		faults = append(faults, fmt.Errorf("queue %q, job %q: want the scope of each lane", storable.Clip(q.Queue, 100), storable.Clip(q.Job, 100)))
	}
	if !storable.IsText(q.Queue) || !storable.IsText(q.Job) {
		faults = append(faults, fmt.Errorf("queue %q, job %q: want text without NUL", storable.Clip(q.Queue, 100), storable.Clip(q.Job, 100)))
	}
	if q.Step < 0 || q.Step > 24*time.Hour || q.Step > 0 && (q.Step%max(q.Span.Length(), 1) != 0 || 24*time.Hour%q.Step != 0) {
		faults = append(faults, fmt.Errorf("step %v: want whole steps of the span, which divide a day", q.Step))
	}
	if q.Within <= 0 {
		faults = append(faults, fmt.Errorf("within %v: want more than 0", q.Within))
	}
	return invalid("series", faults)
}

// Summed returns what was done of all lanes together, without names, followed by
// the lanes, ordered by queue and job.
func Summed(did []LaneTally) []LaneTally {
	all := make([]LaneTally, 1, len(did)+1)
	for i := range did {
		all[0].Add(&did[i].Tally)
	}
	if all[0].Tally == (Tally{}) {
		return nil
	}
	all = append(all, did...)
	slices.SortFunc(all[1:], func(a, b LaneTally) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Job, b.Job))
	})
	return all
}
