package faulttest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// round is one statement that fails for a while.
type round struct {
	t         *testing.T
	ctx       context.Context
	subject   Subject
	pace      Pace
	statement string
	stop      Stop
	began     time.Time
	faults    []string

	worker, second *running
	runs           map[Need]store.RunID
	kept           chan struct{} // closed: the kept handler may return
	release        sync.Once

	mu      sync.Mutex
	started map[string]int // handlers, by what they are for
	lost    bool           // the kept handler's context has ended
	ticks   int
}

// prepare starts a worker, and what has to be under way before the fault.
func (r *round) prepare() {
	r.runs, r.started, r.kept = map[Need]store.RunID{}, map[string]int{}, make(chan struct{})
	r.worker = r.start("first", store.DefaultQueue, true)
	r.runs[Beat] = r.enqueue(jobs.keep)
	r.runs[Cancel] = r.enqueue(jobs.wait)
	for range r.pace.Leases {
		r.enqueue(jobs.keep)
	}
	gone := jobs.gone.New(args{}, durable.OnQueue("gone"))
	r.runs[Reclaim] = gone.ID
	r.must(r.enqueueRun(gone))
	r.until(time.Minute, func() bool {
		return r.handlers("keep") > r.pace.Leases && r.handlers("wait") > 0 && r.tickCount() > 0
	}, "the worker has not begun")
	r.must(r.endBrief())
	_, err := r.claim("gone", jobs.gone, r.runs[Reclaim])
	r.must(err)
}

// retention is how long the workers of a round keep brief runs.
const retention = 2 * time.Second

// endBrief makes a run that ends soon after it was made: the walk of a sweep comes
// by a quarter of the retention after a run may go. One that ends later is left to
// the full pass, for which a round does not wait, so that another one is made.
func (r *round) endBrief() error {
	for range 100 {
		began, brief := time.Now(), jobs.brief.New(args{}, durable.OnQueue("brief"))
		r.runs[Sweep] = brief.ID
		if err := r.enqueueRun(brief); err != nil {
			return err
		}
		claim, err := r.claim("brief", jobs.brief, brief.ID)
		if err != nil {
			return err
		}
		_, err = r.subject.Sound.Settle(r.ctx, []store.Settlement{{
			Claim: claim, Worker: newWorkerID("brief"), Last: true, Claimed: 1,
			Runs: []store.Settled{{ID: brief.ID, Outcome: store.Outcome{Kind: store.Success}}},
		}})
		if err != nil || time.Since(began) < retention/8 {
			return err
		}
	}
	return errors.New("no run ends soon enough after it was made")
}

// claim claims the only run of a queue, for a worker that is then gone.
func (r *round) claim(queue string, j job, id store.RunID) (lease.ClaimID, error) {
	heads, err := r.subject.Sound.Heads(r.ctx, store.Serves{Queues: []string{queue}, Jobs: []string{j.Name()}})
	if err != nil {
		return lease.ClaimID{}, err
	}
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: newWorkerID(queue), Duration: time.Second, Limit: 1}
	for _, head := range heads {
		request.Steps = append(request.Steps, store.Step{Lane: head.Lane, Take: 1})
	}
	claimed, err := r.subject.Sound.Claim(r.ctx, request)
	if err == nil && (len(claimed) != 1 || claimed[0].ID != id) {
		err = errors.New("the run was not claimed that is alone in " + queue)
	}
	return request.Claim, err
}

// during is while the statement fails.
func (r *round) during() {
	failing := time.Now()
	_, err := r.subject.Sound.Operate(r.ctx, store.RunCommand{Action: store.CancelRuns, Runs: []store.RunID{r.runs[Cancel]}, By: "test"})
	r.must(err)
	_ = r.subject.Sound.Publish(r.ctx, store.Signal{Kind: store.CancelsRequested})
	for need, job := range map[Need]job{Failure: jobs.fail, Death: jobs.die, Report: jobs.report, Child: jobs.parent, Complete: jobs.complete} {
		r.runs[need] = r.enqueue(job)
	}
	ticks := r.tickCount()
	r.second = r.start("second", "second", false)
	r.until(time.Second, func() bool { // until the fault has had its effect, as far as it goes
		return r.handlers("fail") > 0 && r.handlers("die") > 0 && r.handlers("report") > 0 && r.handlers("parent") > 0 && r.handlers("complete") > 0
	}, "")
	r.runs[Execution] = r.enqueue(jobs.plain)
	r.runs[Start] = r.enqueueOn("second", jobs.plain)
	wants := map[Need]func() bool{
		Execution: r.ended(Execution, store.Succeeded), Failure: r.ended(Failure, store.Succeeded), Death: r.ended(Death, store.Dead),
		Report: r.ended(Report, store.Succeeded), Child: r.ended(Child, store.Succeeded), Complete: r.ended(Complete, store.Succeeded),
		Reclaim: r.ended(Reclaim, store.Pending), Cancel: r.ended(Cancel, store.Cancelled), Start: r.ended(Start, store.Succeeded),
		Schedule: func() bool { return r.tickCount() > ticks+1 },
		Sweep:    func() bool { return r.swept() },
		Beat:     func() bool { return !r.isLost() && time.Since(failing) > r.pace.Lease+r.pace.Lease/4 },
	}
	r.settle(r.pace.Within, wants, true)
	r.second.cancel()
	if !r.second.endedWithin(r.pace.Within) && !r.stop.stops(Drain) {
		r.fault("while it fails, a worker that was to stop has not ended")
	}
}

// settle waits until all that is wanted is so, but for what the table lets be.
func (r *round) settle(within time.Duration, wants map[Need]func() bool, failing bool) {
	deadline := time.Now().Add(within)
	for {
		for need, met := range wants {
			if failing && r.stop.stops(need) || met() {
				delete(wants, need)
			}
		}
		if len(wants) == 0 {
			return
		}
		if time.Now().After(deadline) {
			break
		}
		r.pause(20 * time.Millisecond)
	}
	for need := range wants {
		if failing {
			r.fault("while it fails, %s does not continue", need)
		} else {
			r.fault("after it works again, %s does not continue: run %s is %v", need, r.runs[need], r.state(r.runs[need]))
		}
	}
}

// after is when the statement works again.
func (r *round) after() {
	r.release.Do(func() { close(r.kept) })
	ticks := r.tickCount()
	if r.second != nil && !r.second.endedWithin(r.pace.Within) {
		r.fault("after it works again, a worker that was to stop has not ended")
	}
	if r.stop.stops(Sweep) { // what could not be deleted is left to the full pass, for which a round does not wait
		r.must(r.endBrief())
	}
	third := r.start("third", "second", false)
	wants := map[Need]func() bool{
		Schedule: func() bool { return r.tickCount() > ticks },
		Sweep:    func() bool { return r.swept() },
	}
	for need := range r.runs {
		state := map[Need]store.State{Death: store.Dead, Reclaim: store.Pending, Cancel: store.Cancelled}[need]
		if need == Reclaim {
			state = store.Pending
		} else if state == 0 {
			state = store.Succeeded
		}
		if need != Sweep {
			wants[need] = r.ended(need, state)
		}
	}
	r.settle(2*r.pace.Within, wants, false)
	for need, id := range r.runs {
		crashes := 0
		if need == Reclaim {
			crashes = 1
		}
		if record, err := r.subject.Sound.Run(r.ctx, id); err == nil && record.CrashCount > crashes && !r.stop.stops(Crashless) {
			r.fault("%s was charged %d crashes", need, record.CrashCount-crashes)
		}
	}
	third.cancel()
	if !third.endedWithin(r.pace.Within) {
		r.fault("after it works again, a worker that was to stop has not ended")
	}
}

// close ends the worker, and leaves nothing for a later round.
func (r *round) close() {
	_, err := r.subject.Sound.Operate(r.ctx, store.RunCommand{Action: store.CancelRuns, Runs: []store.RunID{r.runs[Reclaim]}, By: "test"})
	r.must(err)
	r.worker.cancel()
	if !r.worker.endedWithin(2 * r.pace.Within) {
		r.fault("after it works again, the worker does not end")
	}
}

func (r *round) ended(need Need, state store.State) func() bool {
	return func() bool { return r.state(r.runs[need]) == state }
}

func (r *round) state(id store.RunID) store.State {
	record, err := r.subject.Sound.Run(r.ctx, id)
	if err != nil {
		return -1
	}
	return record.State
}

func (r *round) swept() bool {
	_, err := r.subject.Sound.Run(r.ctx, r.runs[Sweep])
	return errors.Is(err, store.ErrNotFound)
}

// until waits for a condition. Without words it is enough to have waited.
func (r *round) until(most time.Duration, holds func() bool, otherwise string) {
	for deadline := time.Now().Add(most); !holds(); r.pause(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			if otherwise != "" {
				r.t.Fatalf("%s: %s", r.statement, otherwise)
			}
			return
		}
	}
}

func (r *round) pause(d time.Duration) { <-time.After(d) }

func (r *round) must(err error) {
	if err != nil {
		r.t.Fatalf("%s: %v", r.statement, err)
	}
}

func (r *round) enqueue(j job) store.RunID { return r.enqueueOn(store.DefaultQueue, j) }

func (r *round) enqueueOn(queue string, j job) store.RunID {
	run := j.New(args{}, durable.OnQueue(queue))
	r.must(r.enqueueRun(run))
	return run.ID
}

func (r *round) enqueueRun(run store.NewRun) error {
	_, err := r.subject.Sound.Enqueue(r.ctx, run)
	return err
}
