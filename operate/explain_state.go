package operate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// running explains how a run executes.
func (e *explaining) running() {
	run, at := e.Facts.Run, e.Facts.At
	x := &Execution{Since: run.StartedAt, Progress: run.Progress}
	if run.Worker != nil {
		x.Worker = *run.Worker
	}
	if run.Timeout > 0 && run.StartedAt != nil {
		deadline := run.StartedAt.Add(time.Duration(run.Timeout))
		x.Deadline = &deadline
	}
	if l := e.Lease; l != nil {
		x.Worker, x.Instance, x.LeaseEnd = l.Worker, &l.Instance, &l.ExpiresAt
		if !l.RenewedAt.IsZero() {
			x.LastBeat = &l.RenewedAt
		}
	}
	e.Execution = x
	e.lease(x)
	if e.CancelReason != "" {
		b := Blocker{Kind: BlockerCancelAsked, Text: "its cancellation was requested: " + firstLine(e.CancelReason)}
		e.byChange(&b, store.CancelRuns)
		e.block(b, nil)
	}
	if x.Deadline != nil && at.After(*x.Deadline) {
		e.block(Blocker{Kind: BlockerPastTimeout, Since: x.Deadline, Text: fmt.Sprintf("its timeout of %s ended %s ago: its handler was asked to stop",
			span(time.Duration(run.Timeout)), span(at.Sub(*x.Deadline)))}, nil)
	}
	e.worker(x)
	e.Summary = "running: " + e.texts()
	if e.CancelReason == "" {
		e.remedy("cancel", RoleOperator, "cancel the run", "runs cancel "+e.ID.String())
	}
}

// lease says whether a worker has the run.
func (e *explaining) lease(x *Execution) {
	at := e.Facts.At
	switch {
	case e.Lease == nil:
		by := at.Add(store.SweepPassEvery)
		e.block(Blocker{Kind: BlockerNoLease, EndsAt: &by, Text: "its claim has no lease, so it counts as lost: the next full pass of a worker requeues it, within " +
			span(store.SweepPassEvery)}, nil)
	case !e.Lease.ExpiresAt.After(at):
		text := fmt.Sprintf("the lease of %s expired %s ago", orUnknown(x.Worker), span(at.Sub(e.Lease.ExpiresAt)))
		alive := slices.ContainsFunc(e.Workers, func(w store.WorkerInfo) bool { return w.State != store.Silent })
		if alive {
			text += ": another worker will requeue the run"
		} else {
			text += ", and no worker is alive that could requeue the run"
			e.remedy("start_worker", RoleDeployer, "start a worker", "")
		}
		e.block(Blocker{Kind: BlockerLeaseExpired, Text: text, Since: &e.Lease.ExpiresAt}, nil)
		e.resting()
	default:
		text := fmt.Sprintf("%s executes it, attempt %d of %d", orUnknown(x.Worker), e.Facts.Run.Attempt, e.Facts.Run.MaxAttempts)
		if x.Since != nil {
			text += ", for " + span(at.Sub(*x.Since))
		}
		text += e.asJob()
		e.block(Blocker{Kind: BlockerExecuting, Text: text, Since: x.Since}, nil)
	}
}

// resting says that workers leave expired leases alone for a while.
func (e *explaining) resting() {
	var longest time.Duration
	for i := range e.Workers {
		w := &e.Workers[i]
		if w.State == store.Silent {
			continue
		}
		rest := time.Duration(w.Resting) - time.Duration(w.SeenAgo)
		if rest <= 0 {
			return
		}
		longest = max(longest, rest)
	}
	if longest > 0 {
		until := e.Facts.At.Add(longest)
		e.block(Blocker{Kind: BlockerTakeoverPause, EndsAt: &until,
			Text: "after an outage, or a jump of the store's clock, workers leave expired leases alone for " + span(longest)}, nil)
	}
}

// worker says what is wrong with the worker that executes the run.
func (e *explaining) worker(x *Execution) {
	if x.Instance == nil {
		return
	}
	for i := range e.Workers {
		w := &e.Workers[i]
		if w.Instance != *x.Instance {
			continue
		}
		// It has unexpired leases, or it is silent: then these are not renewed.
		if ago := time.Duration(w.SeenAgo); ago > rules.SilentAfter(w.Every) {
			e.block(Blocker{Kind: BlockerWorkerSilent, Text: fmt.Sprintf("%s has not reported for %s", described(w), span(ago)), Since: &w.SeenAt}, nil,
				Remedy{"workers", RoleViewer, "see the worker", "workers show " + w.Instance.String()[:8]})
		}
		if x.Deadline != nil && e.Facts.At.After(*x.Deadline) && w.Stuck > 0 {
			e.block(Blocker{Kind: BlockerStuck, Text: stuckText(w)}, map[string]any{"stuck": w.Stuck}, restartStuck(w))
		}
	}
}

func orUnknown(worker string) string {
	if worker == "" {
		return "an unknown worker"
	}
	return worker
}

// byChange says who made a change, if the audit log knows.
func (e *explaining) byChange(b *Blocker, action store.RunAction) {
	for i := range e.Changes {
		if c := &e.Changes[i]; c.Action == string(action) {
			b.By, b.Since = &c.Actor, &c.At
			b.Text += fmt.Sprintf(" (%s, %s ago)", c.Actor, span(e.Facts.At.Sub(c.At)))
			return
		}
	}
}

// ended explains why a run has ended, and how long it is kept.
func (e *explaining) ended() {
	run := e.Facts.Run
	b := Blocker{Kind: BlockerEnded, Since: run.FinishedAt, Text: "it has " + run.State.String()}
	switch run.State {
	case store.Succeeded:
		b.Text = "it has succeeded"
	case store.Dead:
		b.Text = "it is dead" + reason(run.Error) + e.crashRule()
	case store.Cancelled:
		b.Text = "it was cancelled" + reason(run.Error)
		e.byChange(&b, store.CancelRuns)
	}
	e.Past = b.Text
	e.block(b, nil)
	e.kept()
	id := e.ID.String()
	if e.KeyHolder != nil {
		e.block(Blocker{Kind: BlockerKeyHeld, Text: fmt.Sprintf("run %s holds its unique key, so a retry would be refused", *e.KeyHolder)},
			map[string]any{"run": *e.KeyHolder}, Remedy{"show", RoleViewer, "see the run that holds the key", "runs show " + e.KeyHolder.String()})
	}
	if run.State != store.Succeeded && e.KeyHolder == nil {
		e.remedy("retry", RoleOperator, "let it begin again", "runs retry "+id)
	}
	if run.State == store.Dead {
		e.remedy("acknowledge", RoleOperator, "take it out of the problems that are open", "runs acknowledge "+id)
	}
	e.remedy("rerun", RoleOperator, "create a new run like it", "runs rerun "+id)
	e.Summary = bare(e.texts())
}

// bare is what became of a run without the words before it: "dead: smtp 550".
func bare(past string) string {
	for _, words := range []string{"it is ", "it was ", "it has "} {
		if rest, found := strings.CutPrefix(past, words); found {
			return rest
		}
	}
	return past
}

func reason(why *string) string {
	if why == nil || *why == "" {
		return ""
	}
	return ": " + firstLine(*why)
}

// crashRule says why a run that crashed is dead.
func (e *explaining) crashRule() string {
	run := e.Facts.Run
	last := lastAttempt(run)
	if last == nil || last.Outcome != store.Crash {
		return ""
	}
	if e.Declared != nil && e.Declared.OnCrash == store.CrashDead {
		return fmt.Sprintf(" (after %s; the job says that a crash is the end)", counted(store.Count{N: int64(run.CrashCount)}, "crash", "crashes"))
	}
	return fmt.Sprintf(" (after %s, the last one alone on its worker)", counted(store.Count{N: int64(run.CrashCount)}, "crash", "crashes"))
}

// kept says how long an ended run is kept, and by which rule.
func (e *explaining) kept() {
	run := e.Facts.Run
	if run.FinishedAt == nil {
		return
	}
	retention, rule := e.retention(run.State)
	if e.Declared != nil && e.ServedAs == nil && e.Declared.Retention != 0 {
		retention, rule = time.Duration(e.Declared.Retention), "the retention of job "+run.Job
	}
	switch {
	case retention < 0:
		e.block(Blocker{Kind: BlockerKept, Text: "it is kept forever, by " + rule}, nil)
	case retention > 0:
		until := run.FinishedAt.Add(retention)
		text := fmt.Sprintf("it is kept for %s more, by %s (%s)", span(until.Sub(e.Facts.At)), rule, span(retention))
		if !until.After(e.Facts.At) {
			text = fmt.Sprintf("it may be deleted any time, by %s (%s)", rule, span(retention))
		}
		e.block(Blocker{Kind: BlockerKept, Text: text, EndsAt: &until}, nil)
	}
}

// retention is how long the workers keep runs that end in a state: the shortest that one
// of them says, as it deletes for all. Zero: not known.
func (e *explaining) retention(state store.State) (shortest time.Duration, rule string) {
	for i := range e.Workers {
		w := &e.Workers[i]
		one := time.Duration(w.Retention)
		if state == store.Dead {
			one = time.Duration(w.RetentionDead)
		}
		if w.State != store.Silent && one != 0 && (shortest == 0 || one > 0 && (shortest < 0 || one < shortest)) {
			shortest = one
		}
	}
	return shortest, "the retention of the workers"
}

// absent explains why a run is not there.
func (e *explaining) absent() {
	made, known := rules.MadeAt(e.ID), e.ID.Version() == 7
	age := e.Facts.At.Sub(made)
	retention, _ := e.retention(store.Succeeded)
	b := Blocker{Kind: BlockerUnknown, Text: "there is no run with this id, and none is known to have been there"}
	if known && age >= 0 {
		b.Text += fmt.Sprintf("; according to its id, it was created %s ago", span(age))
	}
	switch {
	case slices.ContainsFunc(e.Changes, func(c store.Change) bool { return c.Action == string(store.DeleteRuns) }):
		b = Blocker{Kind: BlockerDeleted, Text: "it was deleted"}
		e.byChange(&b, store.DeleteRuns)
	case known && retention > 0 && age > retention:
		b = Blocker{Kind: BlockerAgedOut, Since: &made, Text: fmt.Sprintf("according to its id, it was created %s ago, and runs are kept for %s after their end", span(age), span(retention))}
	}
	if n := len(e.BulkDeletes); n > 0 && b.Kind != BlockerDeleted {
		last := &e.BulkDeletes[0]
		b.Text += fmt.Sprintf("; it may be one of %d that %s deleted by a filter, %s ago", last.Runs, last.Actor, span(e.Facts.At.Sub(last.At)))
	}
	e.Past = b.Text
	e.block(b, nil)
	e.Summary = "not there: " + b.Text
}
