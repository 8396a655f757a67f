package metrics

import (
	"net/http"
	"time"

	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// Snapshot is what is written. Leave out what the program does not have.
type Snapshot struct {
	Totals observe.Totals
	// Version is that of the program.
	Version string
	// Worker is the state of the program's worker; nil: it has none, or none yet.
	Worker *Worker
	// Database is what was read of the store; nil: nothing yet.
	Database *Database
	// Pools are the store's pools of connections.
	Pools []store.Pool
	// Locks is what a probe of the store of the locks found; nil: it is not probed.
	Locks *LockProbe
	// Events are the figures of a stream of events; nil: there is none.
	Events *Events
	// Log is how the log fares; nil: it is not known, see package observe/logs.
	Log *Log
}

// Log is how a log fares: see logs.Writer.
type Log struct {
	Dropped uint64        // lines
	Blocked time.Duration // for how long the present write has not returned
}

// Events are what happened to events, see package observe/events.
type Events struct {
	Sent, Dropped int64
	Failed        int64 // tries to send
	Waiting       int
}

// LockProbe is what a probe found: see lock.Locker.Probe.
type LockProbe struct {
	Healthy bool // a lock was taken and given back
	Took    time.Duration
}

// Worker is the state of a worker.
type Worker struct {
	Ready, Draining bool
	Capacity        int // most handlers executing concurrently
	Stuck           int // handlers that were given up
	BeatLag         time.Duration
	CPULatency      time.Duration  // how long a goroutine that can continue waits for a CPU
	Waiting         int            // runs that are claimed and have not begun
	LeaseMargin     float64        // the least share of a lease's duration that is left before its local deadline
	SinceContact    time.Duration  // since the store last answered
	Outages         int            // how often the store has stopped to answer
	Outage          time.Duration  // the time without answers, over all of these
	Resting         time.Duration  // for how long the worker leaves expired leases alone
	Unsettled       int            // outcomes that the store does not take
	Locked          int            // outcomes whose runs another transaction keeps locked
	SetAside        map[string]int // what the store refuses to change, by what was tried
}

// Serve answers a scrape, in the format that it accepts.
func Serve(w http.ResponseWriter, r *http.Request, s Snapshot) {
	format := accepted(r.Header)
	w.Header().Set("Content-Type", format.ContentType())
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(Text(s, format)) // the scraper may have gone
}

// Text writes a snapshot.
func Text(s Snapshot, format Format) []byte {
	t := &text{format: format, b: make([]byte, 0, 32<<10)}
	t.family(gauge, "durable_build_info", "The version of the program; always 1.")
	t.number(1, label{"version", s.Version})
	t.runs(s.Totals.Lanes)
	t.steps(&s.Totals)
	t.engine(&s.Totals)
	switch {
	case s.Database != nil:
		t.database(s.Database)
	case s.Totals.Alive > 0:
		t.family(gauge, "durable_workers_alive", "Living workers of the store, as it answered to the last report.")
		t.number(s.Totals.Alive)
	}
	if s.Worker != nil {
		t.worker(s.Worker)
	}
	t.pools(s.Pools)
	t.locks(&s.Totals)
	if s.Locks != nil {
		t.lockProbe(s.Locks)
	}
	if s.Events != nil {
		t.events(s.Events)
	}
	if s.Log != nil {
		t.log(s.Log)
	}
	return t.end()
}
