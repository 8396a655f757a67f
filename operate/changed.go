package operate

import (
	"encoding/json"

	"github.com/durable-worker/durable-worker/store"
)

// note passes a change that was made on to Config.Changed, with the words that the audit log
// has.
func (a *Actor) note(kind, subject, action, reason string, runs int) {
	var detail json.RawMessage
	if reason != "" {
		detail, _ = json.Marshal(map[string]string{"reason": reason}) // texts always can be
	}
	a.pass(store.Change{Kind: kind, Subject: subject, Action: action, Runs: int64(runs), Detail: detail})
}

// pass passes a change on as made now by the Actor.
func (a *Actor) pass(change store.Change) {
	if a.config.Changed != nil {
		change.At, change.Actor = a.config.Now().UTC(), a.by
		a.config.Changed(change)
	}
}

// noteRuns passes on how a command has changed its runs. Those of a bulk change are
// passed on together, when it ends.
func (a *Actor) noteRuns(command *store.RunCommand, changed []store.ChangedRun) {
	if command.Bulk != nil {
		return
	}
	for i := range changed {
		if one := &changed[i]; one.Result == store.RunChanged || one.Result == store.CancelRequested {
			a.note(kindRun, one.ID.String(), string(command.Action), command.Reason, 0)
		}
	}
}

// noteBulk passes on a change of all runs of a filter, as far as it came.
func (a *Actor) noteBulk(bulk *store.BulkChange, action store.RunAction, reason string, done Bulk) {
	if n := done.Changed + done.CancelRequested; n > 0 {
		a.note(kindBulk, bulk.ID.String(), string(action), reason, n)
	}
}

// The kinds of what is changed, as the audit log has them.
const (
	kindRun      = "run"
	kindBulk     = "bulk"
	kindQueue    = "queue"
	kindSchedule = "schedule"
	kindLimit    = "limit"
	kindLock     = "lock"
	kindBatch    = "batch"
)
