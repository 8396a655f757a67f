package durable

import "time"

// Status is what a health check needs to know.
type Status struct {
	Ready        bool          // the worker has declared and works, the store has answered within the lease's duration (and accepted a write, if one was tried), Unsettled is not Full, and there is no Misfit
	Draining     bool          // the worker is stopping
	Capacity     int           // how many handlers may execute concurrently
	Executing    int           // runs in hand whose handlers have not returned
	Waiting      int           // how many of them have not begun: the worker is short of CPU, or has just claimed them
	Stuck        int           // how many of them the worker has abandoned
	SinceContact time.Duration // since the store last answered
	Outages      int           // how often the store has stopped answering
	Outage       time.Duration // the sum of their durations, each from the first call that failed to the next that was answered
	Resting      time.Duration // how long this worker still leaves expired leases alone, after an outage or a jump of the store's clock; zero: it takes them over
	BeatLag      time.Duration // how long after its due time the last heartbeat was answered
	// SchedulingLatency is how long a goroutine that could continue waited for a CPU, when that
	// was last measured. From a hundredth of the lease on the worker begins fewer handlers.
	SchedulingLatency time.Duration
	LeaseMargin       float64    // the share of its duration that the lease which ends first has left before this process gives it up; 1: there is no lease
	Unsettled         Unsettled  // outcomes that the store does not accept
	Misfit            string     // why the worker cannot serve the store's schema, and claims nothing; empty: it can
	SetAside          []SetAside // what the store refuses to change, and the worker's loops skip; at most a hundred
}

// Status returns the worker's state at this moment.
func (w *Worker) Status() Status {
	w.health.mu.Lock()
	now := w.config.Elapsed()
	since, l := now-w.health.answeredAt, w.config.Terms.Duration
	away := w.health.silent && since >= l || w.health.refused && w.health.takeover.Unwritten(now) >= l
	misfit, outages, outage, resting := w.health.misfit, w.health.outages, w.health.outFor, w.health.takeover.Resting(now)
	if w.health.silent {
		outage += now - w.health.outSince
	}
	w.health.mu.Unlock()
	phase, unsettled := w.phase.Load(), w.settler.status()
	latency, waiting := w.executors.shortage()
	var lag time.Duration
	margin := 1.0
	if phase == phaseWorking || phase == phaseDraining {
		lag, margin = w.keeper.Lag(), w.keeper.Margin()
	}
	return Status{
		Outages: outages, Outage: outage, Resting: resting,
		Capacity: w.config.MaxConcurrentRuns, BeatLag: lag, LeaseMargin: margin, Misfit: misfit,
		Ready:     phase == phaseWorking && !away && !unsettled.Full && misfit == "",
		Unsettled: unsettled,
		Draining:  phase >= phaseDraining, Executing: w.inFlight.len(), Stuck: int(w.stuck.Load()), SinceContact: since,
		SchedulingLatency: latency, Waiting: waiting,
		SetAside: w.asides.list(now),
	}
}
