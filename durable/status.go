package durable

import "time"

// Status is what a health check needs to know.
type Status struct {
	Ready        bool          // declared, working, and within the lease's duration the store has answered, and taken a write if one was tried, Unsettled is not Full, and there is no Misfit
	Draining     bool          // the worker is stopping
	Capacity     int           // most handlers executing concurrently
	Executing    int           // handlers that have not returned
	Stuck        int           // of them, given up
	SinceContact time.Duration // since the store last answered
	Outages      int           // how often the store has stopped to answer
	Outage       time.Duration // from the first call that failed to the next that was answered, over all of these
	Resting      time.Duration // for how long this worker leaves expired leases alone, after an outage or a jump of the store's clock; zero: it takes them
	BeatLag      time.Duration // by how much the last heartbeat was answered later than it was due
	LeaseMargin  float64       // of the lease that ends first, the share of its duration that is left before this process gives it up; 1: it has none
	Unsettled    Unsettled     // outcomes that the store does not take
	Misfit       string        // why the store's schema cannot be served: the worker claims nothing until it can; empty: it can
	SetAside     []SetAside    // what the store refuses to change and the worker's loops go around, at most a hundred
}

// Status returns the worker's state at this moment.
func (w *Worker) Status() Status {
	w.health.mu.Lock()
	now := w.config.Elapsed()
	since, l := now-w.health.answeredAt, w.config.Terms.Duration
	away := w.health.silent && since >= l || w.health.refused && w.health.takeover.Unwritten(now) >= l
	misfit, outages, outage, resting := w.health.misfit, w.health.outages, w.health.outage(now), w.health.takeover.Resting(now)
	w.health.mu.Unlock()
	phase, unsettled := w.phase.Load(), w.settler.status()
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
		SetAside: w.asides.list(now),
	}
}
