package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/storable"
)

// Monitor reads which workers are running and what waits for them. It takes no locks.
type Monitor interface {
	// Workers lists by name the workers that have reported within ListedFor, or
	// that hold an unexpired lease, as they last reported (see Stats). One that has
	// stopped in order is not listed.
	Workers(ctx context.Context) ([]WorkerInfo, error)
	// Survey counts the runs that wait and those that run, for each job on each queue. Runs
	// that wait for a limit are among those that wait.
	Survey(ctx context.Context) (Survey, error)
	// Facts returns what decides about one run, in one bounded read. A missing run is no
	// error.
	Facts(ctx context.Context, id RunID) (Facts, error)
	// Problems lists dead runs, those that ended last first.
	Problems(ctx context.Context, filter ProblemFilter) ([]Problem, error)
}

// ListedFor is how long a worker that has fallen silent is listed.
const ListedFor = 24 * time.Hour

// WorkerState is what is known about a worker.
type WorkerState string

// The states. More may come.
const (
	Working  WorkerState = "working"
	Draining WorkerState = "draining" // it claims no more, and lets its handlers finish
	// Silent: it has not reported for three intervals and holds no unexpired lease.
	// It was killed, or it cannot reach the store.
	Silent WorkerState = "silent"
)

// WorkerInfo is a worker as it last reported.
type WorkerInfo struct {
	Name      string      `json:"name"`
	Instance  uuid.UUID   `json:"instance"`
	State     WorkerState `json:"state"`
	StartedAt time.Time   `json:"started_at"`
	SeenAt    time.Time   `json:"seen_at"` // its last report
	// SeenAgo is how long ago that was, on the store's clock.
	SeenAgo Duration `json:"seen_ago"`
	Leases  int      `json:"leases"` // unexpired

	Presence
}

// Presence is what a worker reports about itself.
type Presence struct {
	Version   string   `json:"version"` // of the program; empty: it does not know
	Queues    []string `json:"queues"`
	Jobs      []string `json:"jobs"`      // their old names included, see durable.Alias
	More      bool     `json:"more"`      // it has more jobs or queues than it may name
	Capacity  int      `json:"capacity"`  // most handlers executing concurrently
	Executing int      `json:"executing"` // handlers that have not returned
	Stuck     int      `json:"stuck"`     // of them, given up
	Draining  bool     `json:"draining"`
	// BeatLag is how long after its due time the last heartbeat was answered.
	BeatLag Duration `json:"beat_lag"`
	// ShortOfCPU is how long goroutines of its process wait for a CPU while it begins fewer
	// handlers for that; zero: it does not.
	ShortOfCPU Duration `json:"short_of_cpu,omitempty"`
	// Every is the interval of its reports, before it is spread.
	Every Duration `json:"every"`
	// Poll is how often it queries for runs if it does not listen for wake-ups; zero: it
	// listens.
	Poll Duration `json:"poll,omitempty"`
	// Resting is how long it still leaves expired leases alone, after an outage or a jump of
	// the store's clock; zero: it takes them over.
	Resting Duration `json:"resting,omitempty"`
	// Retention is how long it keeps succeeded and cancelled runs whose job does not say, and
	// RetentionDead is the same for dead runs. Zero: not known; negative: forever.
	Retention     Duration `json:"retention,omitempty"`
	RetentionDead Duration `json:"retention_dead,omitempty"`
	// Caps are the worker's own caps of queues, up to MaxReportNames.
	Caps []OwnCap `json:"caps,omitempty"`
	// Longest is the longest execution so far; nil: there is none.
	Longest *LongExecution `json:"longest,omitempty"`
}

// OwnCap is a worker's own cap of a queue.
type OwnCap struct {
	Queue     string `json:"queue"`
	Max       int    `json:"max"`       // most handlers of its runs executing concurrently
	Executing int    `json:"executing"` // of them, when it reported
}

// LongExecution is an execution as a worker reports it.
type LongExecution struct {
	Run   RunID    `json:"run"`
	Job   string   `json:"job"`
	Queue string   `json:"queue"`
	For   Duration `json:"for"` // since it was claimed, when the worker reported
}

// FullFor returns the worker's own cap of a queue that has no place left; nil: it has
// none, or a place.
func (p *Presence) FullFor(queue string) *OwnCap {
	for i := range p.Caps {
		if c := &p.Caps[i]; c.Queue == queue && c.Executing >= c.Max {
			return c
		}
	}
	return nil
}

// Serves reports whether the worker takes runs of a job from a queue now. If the worker
// does not name all its jobs, Serves assumes so.
func (w *WorkerInfo) Serves(queue, job string) bool {
	return w.State == Working && (w.More || slices.Contains(w.Queues, queue) && slices.Contains(w.Jobs, job))
}

// Pool is how a pool of a store's connections is used.
type Pool struct {
	Name   string
	Max    int
	Used   int
	Idle   int
	Waits  int64         // calls that waited for a connection
	Waited time.Duration // all of them together
}

// Survey is what waits and what runs.
type Survey struct {
	At    time.Time  `json:"at"` // of the store's clock
	Lanes []LaneInfo `json:"lanes"`
	// ExpiredLeases are those that expired more than a minute ago and that no worker has
	// taken over.
	ExpiredLeases Count `json:"expired_leases"`
	// Notices are inputs that were sent and whose runs have not been looked at since.
	Notices Count `json:"notices"`
	// OldestNotice is when the first of them is to be looked at; nil: there is none. A worker
	// does so within its poll interval, and puts those of executing runs off.
	OldestNotice *time.Time `json:"oldest_notice"`
	// Partial says that there are more lanes than MaxSurveyLanes, and that some are
	// left out.
	Partial bool `json:"partial"`
}

// MaxSurveyLanes bounds the lanes that a store reads for a survey. Each priority of a
// job on a queue is a lane.
const MaxSurveyLanes = 10_000

// LaneInfo is a job on a queue, all priorities together.
type LaneInfo struct {
	Queue     string     `json:"queue"`
	Job       string     `json:"job"`
	Paused    bool       `json:"paused"` // the queue is
	Pending   Count      `json:"pending"`
	Due       Count      `json:"due"`      // of the pending runs, those that are due
	Isolated  Count      `json:"isolated"` // of the pending runs, those that are executed alone
	Running   Count      `json:"running"`
	OldestDue *time.Time `json:"oldest_due"` // of the pending run that is due first; nil: none is pending
}

// The bounds of what a worker reports.
const (
	MaxReportNames = 2000 // of queues and of jobs
	MaxReportLanes = 200  // of jobs on queues; what others did is reported as OtherLanes
	MaxVersion     = 200  // bytes
)

// OtherLanes is the queue and the job of what is not counted apart.
const OtherLanes = "_other"

// Check reports what is wrong with a report, wrapped in ErrInvalid. Stores call it
// before they store anything.
func (r *WorkerReport) Check() error {
	var faults []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	refuse(r.Number < 1, "number %d: want 1 or more", r.Number)
	refuse(r.Presence.Every <= 0, "interval %v: want more than 0", time.Duration(r.Presence.Every))
	refuse(len(r.Presence.Queues) > MaxReportNames, "%d queues: want at most %d", len(r.Presence.Queues), MaxReportNames)
	refuse(len(r.Presence.Jobs) > MaxReportNames, "%d jobs: want at most %d", len(r.Presence.Jobs), MaxReportNames)
	version := r.Presence.Version
	refuse(len(version) > MaxVersion || !storable.IsText(version) || storable.HasControl(version), "version %q: want at most %d bytes of text",
		storable.Clip(version, 100), MaxVersion)
	refuse(len(r.Did) > MaxReportLanes+1, "%d lanes: want at most %d", len(r.Did), MaxReportLanes+1)
	refuse(len(r.Presence.Caps) > MaxReportNames, "%d caps: want at most %d", len(r.Presence.Caps), MaxReportNames)
	for _, names := range [][]string{r.Presence.Queues, r.Presence.Jobs} {
		for _, name := range names {
			if err := CheckName("queue or job", name); err != nil {
				faults = append(faults, err)
			}
		}
	}
	for i := range r.Did {
		for kind, name := range map[string]string{"queue": r.Did[i].Queue, "job": r.Did[i].Job} {
			if err := CheckName(kind, name); err != nil {
				faults = append(faults, err)
			}
		}
	}
	return invalid("report", faults)
}
