package rules

import "github.com/durable-worker/durable-worker/store"

// Operable is a run as an operator's action finds it.
type Operable struct {
	State        store.State
	CancelReason *string // why it was asked to be cancelled before; nil: it was not, or the store does not know yet

	Acknowledged bool // it is dead, and was acknowledged
	Held         bool // it is pending, was never executed, and has a condition that is not met
}

// Effect is what an operator's action does with a run.
type Effect struct {
	Result store.ChangeResult // RunChanged, CancelRequested, RunUnchanged or RunConflict
	State  store.State        // of the run afterwards; of a deleted run, before
	Writes bool               // the store has something to write, and to record in the audit log
}

// Permit is what an action may do with a run. A retry that it permits still
// conflicts where the run has a unique key that it does not get back, see
// RegainsKey.
func Permit(action store.RunAction, run Operable) Effect {
	unchanged := Effect{Result: store.RunUnchanged, State: run.State}
	conflict := Effect{Result: store.RunConflict, State: run.State}
	switch action {
	case store.CancelRuns:
		return permitCancel(run)
	case store.RetryRuns:
		switch run.State {
		case store.Dead, store.Cancelled:
			return Effect{Result: store.RunChanged, State: store.Pending, Writes: true}
		case store.Succeeded:
			return conflict
		default:
			return unchanged
		}
	case store.AcknowledgeRuns:
		switch {
		case run.State != store.Dead:
			return conflict
		case run.Acknowledged:
			return unchanged
		default:
			return Effect{Result: store.RunChanged, State: run.State, Writes: true}
		}
	case store.ReleaseRuns:
		switch {
		case run.State.Terminal():
			return conflict
		case !run.Held:
			return unchanged
		default:
			return Effect{Result: store.RunChanged, State: run.State, Writes: true}
		}
	case store.DeleteRuns:
		if run.State == store.Running {
			return conflict
		}
		return Effect{Result: store.RunChanged, State: run.State, Writes: true}
	default:
		return unchanged
	}
}

func permitCancel(run Operable) Effect {
	switch run.State {
	case store.Pending:
		return Effect{Result: store.RunChanged, State: store.Cancelled, Writes: true}
	case store.Running:
		return Effect{Result: store.CancelRequested, State: run.State, Writes: run.CancelReason == nil}
	default:
		return Effect{Result: store.RunUnchanged, State: run.State}
	}
}

// RegainsKey reports whether a run that is retried gets its unique key back from the
// run that holds it now: from one that is gone or has ended, and whose time is
// over.
func RegainsKey(holder store.KeyHolder) bool {
	unfinished := holder.Stored && !holder.State.Terminal()
	return !unfinished && !holder.Held
}
