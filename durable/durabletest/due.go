package durabletest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// RunDue lets the workers execute what is due now, and what becomes due
// meanwhile, until none of it is waiting or running, and reports how the
// executions ended. Time passes only as handlers take it, and some milliseconds
// for each occurrence of a schedule that waits for the one before. A retry that is due
// later is left alone, and so are runs that no worker of the kit serves, and
// those of a worker that is paused, frozen or killed.
func (k *Kit) RunDue() Tally {
	k.t.Helper()
	k.begin("RunDue")
	k.finish("due")
	return k.explained(k.end(time.Now()))
}

// RunAll lets time pass until every run that a worker of the kit can execute
// has ended, however late it is due, retries and the runs of killed workers
// included. Schedules fire while it lasts; it does not wait for the next
// occurrence, nor for runs that wait for an input without a deadline.
func (k *Kit) RunAll() Tally {
	k.t.Helper()
	k.begin("RunAll")
	for {
		k.finish("waiting")
		next := k.moment().next
		switch {
		case next >= 0:
			k.wait(next)
		case !k.orphans():
			return k.explained(k.end(time.Now()))
		case !k.wait(k.Limits.Time):
			k.tooMuch("waiting")
		}
	}
}

// Advance lets d pass. What becomes due in it is executed at its time. What is
// due at its end has been begun, and settled if its handler takes no time, when
// Advance returns; handlers that take longer are still running then. The few
// milliseconds that this may need are taken off the next Advance, so that a
// thousand times one second are a thousand seconds. Advance(0) lets happen what
// happens now.
func (k *Kit) Advance(d time.Duration) Tally {
	k.t.Helper()
	k.begin("")
	k.at = k.at.Add(max(d, 0))
	k.sleep(time.Until(k.at))
	for grace := time.Now().Add(100 * time.Millisecond); ; {
		synctest.Wait()
		if k.exhausted() {
			k.tooMuch("due")
		}
		if now := k.moment(); now.due == 0 && now.unsettled <= now.executing || !k.wait(time.Until(grace)) {
			return k.end(k.at)
		}
	}
}

// sleep lets time pass, and fails the test when it goes beyond Kit.Limits.
func (k *Kit) sleep(d time.Duration) {
	k.t.Helper()
	for until := time.Now().Add(d); k.wait(time.Until(until)); {
		if k.exhausted() {
			k.tooMuch("due")
		}
	}
}

// AdvanceTo lets time pass until an instant, as Advance does. An instant that
// has passed fails the test.
func (k *Kit) AdvanceTo(instant time.Time) Tally {
	k.t.Helper()
	d := instant.Sub(k.now())
	if d < 0 {
		k.t.Fatalf("it is %v, time does not go back to %v", time.Now().UTC(), instant.UTC())
	}
	return k.Advance(d)
}

// now is the test's virtual time: what Advance has let pass, without the
// milliseconds that were needed to come to rest, and what has passed since.
func (k *Kit) now() time.Time { return k.at.Add(time.Since(k.left)) }

// begin begins a call. needs names a call that does nothing without a worker.
func (k *Kit) begin(needs string) {
	k.t.Helper()
	k.at = k.now()
	k.mu.Lock()
	k.spent = 0
	k.mu.Unlock()
	synctest.Wait()
	if needs != "" && !slices.ContainsFunc(k.all(), (*Worker).live) {
		k.t.Fatalf("%s without a worker that executes anything: start one with Kit.Worker", needs)
	}
}

// end ends a call, and sets the test's clock. It reports what has ended since the
// call before: a worker may have been so quick as to execute what the test
// enqueued before the test came to this call.
func (k *Kit) end(at time.Time) Tally {
	k.at, k.left = at, time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	tally := k.tally
	k.tally = Tally{}
	return tally
}

// explained notes for a test that may fail why nothing was executed: runs are due that
// no worker serves.
func (k *Kit) explained(tally Tally) Tally {
	k.t.Helper()
	if tally != (Tally{}) {
		return tally
	}
	page, err := k.Store.Runs(context.Background(), durable.Filter{States: []durable.State{durable.Pending}, Limit: listed})
	if err != nil {
		k.t.Fatalf("runs: %v", err)
	}
	said := map[string]bool{}
	for i := range page.Runs {
		r := &page.Runs[i]
		lane := fmt.Sprintf("job %q on queue %q", r.Job, r.Queue)
		if r.DueAt.After(time.Now()) || said[lane] || slices.ContainsFunc(k.all(), func(w *Worker) bool { return w.live() && w.has(r) }) {
			continue
		}
		said[lane] = true
		k.t.Logf("a run is due that no worker of the kit serves: %s. A worker serves the queue %q, unless its WorkerConfig.Queues says otherwise",
			lane, durable.DefaultQueue)
	}
	return tally
}

// finish returns when nothing is due and no live worker has anything in hand.
func (k *Kit) finish(what string) {
	k.t.Helper()
	for {
		synctest.Wait()
		now := k.moment()
		if now.due == 0 && now.unsettled == 0 && now.freed == 0 {
			return
		}
		if k.exhausted() || !k.wait(k.Limits.Time) {
			k.tooMuch(what)
		}
	}
}

// wait returns when something was claimed, settled or requeued; false: nothing was
// within that time.
func (k *Kit) wait(most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-k.changed:
		return true
	case <-timer.C:
		return false
	}
}

func (k *Kit) exhausted() bool { return !k.spend(0) }

// endless is how late runs are due that wait for an input without a deadline. RunAll does not wait
// for those.
const endless = 50 * 365 * 24 * time.Hour

// moment is what the live workers have before them.
type moment struct {
	due       int           // lanes with a run, and schedules with an occurrence, that is due
	freed     int           // schedules with an occurrence that is due and waited for runs that have ended: workers are about to evaluate them
	next      time.Duration // until the next run is due; negative: none waits
	unsettled int           // runs claimed and not settled
	executing int           // of them, those whose handler has not returned
}

func (k *Kit) moment() moment {
	k.t.Helper()
	now := moment{next: -1}
	working := false
	// As a worker does in a moment: what has ended may have others be due.
	if _, err := k.Store.Release(context.Background(), store.ReleaseRequest{Limit: store.LargestPage}); err != nil {
		k.t.Fatalf("release: %v", err)
	}
	for _, w := range k.all() {
		if !w.live() {
			continue
		}
		working = true
		w.mu.Lock()
		serves := w.serves
		w.mu.Unlock()
		heads, err := k.Store.Heads(context.Background(), serves)
		if err != nil {
			k.t.Fatalf("heads: %v", err)
		}
		for _, head := range heads {
			switch {
			case head.Waiting && head.In <= 0:
				now.due++
			case head.Waiting && head.In < endless && (now.next < 0 || head.In < now.next):
				now.next = head.In
			}
		}
		now.unsettled += w.unsettled()
		now.executing += w.worker.Status().Executing
	}
	if working {
		now.due, now.freed = k.dueSchedules(now.due)
	}
	return now
}

// dueSchedules counts the schedules that a worker is about to evaluate: adds those
// that are due, and reports how many have waited and need not any more.
func (k *Kit) dueSchedules(due int) (dueToo, freed int) {
	k.t.Helper()
	schedules, err := k.Store.ListSchedules(context.Background())
	if err != nil {
		k.t.Fatalf("list schedules: %v", err)
	}
	for i := range schedules {
		s := &schedules[i]
		switch {
		case s.NextAt == nil || s.NextAt.After(time.Now()) || s.Fault != nil:
		case !s.Waiting:
			due++
		case !s.Plan.Full(k.unfinished(s.Name)):
			freed++
		}
	}
	return due, freed
}

// unfinished counts the runs of a schedule that have not ended.
func (k *Kit) unfinished(schedule string) (n int) {
	k.t.Helper()
	past, err := k.Store.ScheduleHistory(context.Background(), schedule, store.MaxUnfinishedRuns)
	if err != nil {
		k.t.Fatalf("history of schedule %s: %v", schedule, err)
	}
	for i := range past {
		if state := past[i].State; state != nil && !state.Terminal() {
			n++
		}
	}
	return n
}

// orphans reports whether a run is in the hands of a worker that is not live.
func (k *Kit) orphans() bool {
	k.t.Helper()
	page, err := k.Store.Runs(context.Background(), durable.Filter{States: []durable.State{durable.Running}, Limit: 1})
	if err != nil {
		k.t.Fatalf("runs: %v", err)
	}
	return len(page.Runs) > 0
}

// tooMuch fails the test with what is left to do.
func (k *Kit) tooMuch(what string) {
	k.t.Helper()
	k.mu.Lock()
	spent, tally := k.spent, k.tally
	k.mu.Unlock()
	page, err := k.Store.Runs(context.Background(), durable.Filter{States: []durable.State{durable.Pending, durable.Running}, Limit: listed})
	if err != nil {
		k.t.Fatalf("runs: %v", err)
	}
	var lines strings.Builder
	for i := range page.Runs {
		fmt.Fprintf(&lines, "\n  %s", describe(&page.Runs[i]))
	}
	k.t.Fatalf("runs are still %s or running after %v and %d executions (%+v); Kit.Limits allows %d, and %v without any:%s",
		what, time.Since(k.left).Round(time.Millisecond), spent, tally, k.Limits.Executions, k.Limits.Time, lines.String())
}
