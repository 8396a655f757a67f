package metrics

import (
	"maps"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// nanoseconds of a second.
const nanoseconds = float64(time.Second)

func (t *text) runs(lanes []observe.LaneTotals) {
	each := func(write func(l *observe.LaneTotals, labels ...label)) {
		for i := range lanes {
			write(&lanes[i], label{"job", lanes[i].Job}, label{"queue", lanes[i].Queue})
		}
	}
	t.family(counter, "durable_runs_enqueued_total", "Runs that this process has sent to be stored.")
	each(func(l *observe.LaneTotals, labels ...label) { t.number(l.Enqueued, labels...) })
	t.family(counter, "durable_runs_settled_total", "Attempts that ended here, by the outcome that the store has taken.")
	each(func(l *observe.LaneTotals, labels ...label) {
		for _, kind := range store.SettledKinds() {
			t.number(l.Outcomes[kind], append(labels, label{"outcome", kind.String()})...)
		}
	})
	t.family(counter, "durable_runs_reclaimed_total", "Runs that this process has reclaimed from workers that lost them.")
	each(func(l *observe.LaneTotals, labels ...label) { t.number(l.Outcomes[store.Crash], labels...) })
	t.family(counter, "durable_writes_refused_total", "Outcomes that came too late: the lease was lost.")
	each(func(l *observe.LaneTotals, labels ...label) { t.number(l.Refused, labels...) })
	t.family(gauge, "durable_runs_executing", "Handlers that are executing.")
	each(func(l *observe.LaneTotals, labels ...label) { t.number(l.Executing, labels...) })
	t.family(histogram, "durable_run_wait_seconds", "Time from due to begun.")
	each(func(l *observe.LaneTotals, labels ...label) { t.classes(l.Wait, nanoseconds, labels...) })
	t.family(histogram, "durable_run_duration_seconds", "Time that handlers took.")
	each(func(l *observe.LaneTotals, labels ...label) { t.classes(l.Took, nanoseconds, labels...) })
}

// steps writes what became of steps, by job alone: a job without steps has no series.
func (t *text) steps(totals *observe.Totals) {
	byJob := map[string]map[observe.StepResult]int64{}
	for i := range totals.Lanes {
		l := &totals.Lanes[i]
		if l.Steps != nil && byJob[l.Job] == nil {
			byJob[l.Job] = map[observe.StepResult]int64{}
		}
		for result, n := range l.Steps {
			byJob[l.Job][result] += n
		}
	}
	t.family(counter, "durable_steps_total", "Executions of steps, by their result.")
	for _, job := range slices.Sorted(maps.Keys(byJob)) {
		for _, result := range observe.StepResults() {
			t.number(byJob[job][result], label{"job", job}, label{"result", result.String()})
		}
	}
	t.family(histogram, "durable_step_write_seconds", "Time from the end of a step until it was recorded.")
	t.classes(totals.StepWrites, nanoseconds)
	t.family(counter, "durable_released_total", "Runs that this process has made due because their inputs had come.")
	t.number(totals.Released)
}

func (t *text) engine(totals *observe.Totals) {
	t.family(histogram, "durable_claim_runs", "Claims by the number of runs that they got.")
	t.classes(totals.Claims, 1)
	t.family(histogram, "durable_store_duration_seconds", "Calls of the store.")
	for _, call := range totals.Calls {
		result := "ok"
		if call.Failed {
			result = "error"
		}
		t.classes(call.Took, nanoseconds, label{"verb", call.Verb}, label{"result", result})
	}
	t.family(counter, "durable_leases_lost_total", "Leases of executing runs that this process has lost.")
	t.number(totals.Lost[observe.LeaseLost])
	t.family(counter, "durable_handlers_abandoned_total", "Handlers that ignored the end of their context.")
	t.number(totals.Lost[observe.HandlerStuck])
}

func (t *text) worker(w *Worker) {
	t.family(gauge, "durable_worker_ready", "1: the worker takes work, as /readyz says.")
	t.number(number(w.Ready))
	t.family(gauge, "durable_worker_draining", "1: the worker is stopping.")
	t.number(number(w.Draining))
	t.family(gauge, "durable_worker_capacity", "Most handlers that execute concurrently.")
	t.number(int64(w.Capacity))
	t.family(gauge, "durable_handlers_stuck", "Handlers that were given up and have not returned.")
	t.number(int64(w.Stuck))
	t.family(gauge, "durable_heartbeat_lag_seconds", "By how much the last heartbeat was answered later than it was due.")
	t.seconds(w.BeatLag)
	t.family(gauge, "durable_scheduling_latency_seconds", "How long a goroutine that can continue waits for a CPU.")
	t.seconds(w.CPULatency)
	t.family(gauge, "durable_runs_not_begun", "Runs that are claimed and have not begun.")
	t.number(int64(w.Waiting))
	t.family(gauge, "durable_lease_margin_ratio", "Of the lease that ends first, the share of its duration that is left.")
	t.float(w.LeaseMargin)
	t.family(gauge, "durable_store_contact_age_seconds", "Time since the store last answered.")
	t.seconds(w.SinceContact)
	t.family(counter, "durable_store_outages_total", "Times that calls of the store began to fail.")
	t.number(int64(w.Outages))
	t.family(counter, "durable_store_outage_seconds_total", "Time from the first call that failed to the next that was answered.")
	t.seconds(w.Outage)
	t.family(gauge, "durable_reclaim_rest_seconds", "For how long the worker leaves expired leases alone, after an outage or a jump of the store's clock.")
	t.seconds(w.Resting)
	t.family(gauge, "durable_outcomes_unsettled", "Outcomes that the store does not take.")
	t.number(int64(w.Unsettled))
	t.family(gauge, "durable_outcomes_locked", "Outcomes whose runs another transaction keeps locked.")
	t.number(int64(w.Locked))
	t.family(gauge, "durable_set_aside", "Things that the store refuses to change, by what was tried.")
	for _, doing := range slices.Sorted(maps.Keys(w.SetAside)) {
		t.number(int64(w.SetAside[doing]), label{"doing", doing})
	}
}

func (t *text) events(e *Events) {
	t.family(counter, "durable_events_sent_total", "Events that the webhook has taken.")
	t.number(e.Sent)
	t.family(counter, "durable_events_dropped_total", "Events that were dropped: the queue was full, or the webhook did not take them.")
	t.number(e.Dropped)
	t.family(counter, "durable_events_failures_total", "Calls of the webhook that failed.")
	t.number(e.Failed)
	t.family(gauge, "durable_events_waiting", "Events that wait for the webhook.")
	t.number(int64(e.Waiting))
}

func (t *text) log(l *Log) {
	t.family(counter, "durable_log_lines_dropped_total", "Lines of the log that were dropped: too many waited to be written, or a write failed.")
	t.number(int64(l.Dropped))
	t.family(gauge, "durable_log_blocked_seconds", "For how long the present write to the log has not returned; 0: there is none.")
	t.seconds(l.Blocked)
}

func number(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

func (t *text) pools(pools []store.Pool) {
	if len(pools) == 0 {
		return
	}
	t.family(gauge, "durable_pool_connections", "Connections of a pool.")
	for _, p := range pools {
		t.number(int64(p.Idle), label{"pool", p.Name}, label{"state", "idle"})
		t.number(int64(p.Used), label{"pool", p.Name}, label{"state", "used"})
	}
	t.family(gauge, "durable_pool_connections_max", "Most connections of a pool.")
	for _, p := range pools {
		t.number(int64(p.Max), label{"pool", p.Name})
	}
	t.family(counter, "durable_pool_waits_total", "Calls that waited for a connection.")
	for _, p := range pools {
		t.number(p.Waits, label{"pool", p.Name})
	}
	t.family(counter, "durable_pool_wait_seconds_total", "Time that calls waited for a connection.")
	for _, p := range pools {
		t.seconds(p.Waited, label{"pool", p.Name})
	}
}

func (t *text) lockProbe(p *LockProbe) {
	healthy := int64(0)
	if p.Healthy {
		healthy = 1
	}
	t.family(gauge, "durable_lock_store_healthy", "Whether the last probe took a lock of its own and gave it back.")
	t.number(healthy)
	t.family(gauge, "durable_lock_probe_seconds", "How long the last probe of the store of the locks took.")
	t.seconds(p.Took)
}

func (t *text) locks(totals *observe.Totals) {
	if len(totals.Locks) == 0 && totals.Degraded == 0 {
		return
	}
	each := func(write func(l *observe.LockTotals, name label)) {
		for i := range totals.Locks {
			write(&totals.Locks[i], label{"lock", totals.Locks[i].Name})
		}
	}
	t.family(counter, "durable_lock_grants_total", "Calls that asked for a named lock, by their result.")
	each(func(l *observe.LockTotals, name label) {
		t.number(l.Granted, name, label{"result", "granted"})
		t.number(l.Refused, name, label{"result", "refused"})
	})
	t.family(counter, "durable_lock_lost_total", "Grants that were lost while they were held.")
	each(func(l *observe.LockTotals, name label) { t.number(l.Lost, name) })
	t.family(counter, "durable_lock_expired_total", "Grants that took over from a holder that let the lock expire.")
	each(func(l *observe.LockTotals, name label) { t.number(l.Expired, name) })
	t.family(gauge, "durable_lock_waiters", "Calls of this process that waited for the lock when one last ended.")
	each(func(l *observe.LockTotals, name label) { t.number(l.Waiting, name) })
	t.family(histogram, "durable_lock_wait_seconds", "Time that calls waited for the lock.")
	each(func(l *observe.LockTotals, name label) { t.classes(l.Wait, nanoseconds, name) })
	t.family(histogram, "durable_lock_hold_seconds", "Time that the lock was held.")
	each(func(l *observe.LockTotals, name label) { t.classes(l.Hold, nanoseconds, name) })
	t.family(counter, "durable_lock_degraded_time_seconds_total", "Time in which the store of the locks could not be asked.")
	t.seconds(totals.Degraded)
}
