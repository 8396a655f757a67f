package faulttest

import (
	"context"
	"errors"
	"slices"
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
	runs           map[Need]durable.RunID
	kept           chan struct{} // closed: the kept handler may return
	release        sync.Once

	mu      sync.Mutex
	started map[string]int // handlers, by what they are for
	lost    bool           // the kept handler's context has ended
	ticks   int
}

// prepare starts a worker, and what has to be under way before the fault.
func (r *round) prepare() {
	r.runs, r.started, r.kept = map[Need]durable.RunID{}, map[string]int{}, make(chan struct{})
	r.worker = r.start("first", durable.DefaultQueue, true)
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
	r.runs[Sweep] = r.enqueue(jobs.brief)
	r.until(time.Minute, func() bool { return r.state(r.runs[Sweep]) == durable.Succeeded || r.swept() }, "no run is settled")
	r.must(r.abandon())
}

// abandon claims a run as a worker does that is then gone.
func (r *round) abandon() error {
	heads, err := r.subject.Sound.Heads(r.ctx, store.Serves{Queues: []string{"gone"}, Jobs: []string{jobs.gone.Name()}})
	if err != nil {
		return err
	}
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: newWorkerID("gone"), Duration: time.Second, Limit: 1}
	for _, head := range heads {
		request.Steps = append(request.Steps, store.Step{Lane: head.Lane, Take: 1})
	}
	claimed, err := r.subject.Sound.Claim(r.ctx, request)
	if err == nil && (len(claimed) != 1 || claimed[0].ID != r.runs[Reclaim]) {
		err = errors.New("the run to abandon was not claimed")
	}
	return err
}

// during is while the statement fails.
func (r *round) during() {
	failing := time.Now()
	_, err := r.subject.Sound.Operate(r.ctx, store.Order{Action: store.CancelRuns, Runs: []durable.RunID{r.runs[Cancel]}, By: "test"})
	r.must(err)
	_ = r.subject.Sound.Announce(r.ctx, store.Signal{Kind: store.CancelAsked})
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
		Execution: r.ended(Execution, durable.Succeeded), Failure: r.ended(Failure, durable.Succeeded), Death: r.ended(Death, durable.Dead),
		Report: r.ended(Report, durable.Succeeded), Child: r.ended(Child, durable.Succeeded), Complete: r.ended(Complete, durable.Succeeded),
		Reclaim: r.ended(Reclaim, durable.Pending), Cancel: r.ended(Cancel, durable.Cancelled), Start: r.ended(Start, durable.Succeeded),
		Schedule: func() bool { return r.tickCount() > ticks+1 },
		Sweep:    func() bool { return r.swept() },
		Beat:     func() bool { return !r.isLost() && time.Since(failing) > r.pace.Lease+r.pace.Lease/4 },
	}
	r.settle(r.pace.Within, wants, true)
	r.second.cancel()
	if !r.second.endedWithin(r.pace.Within) && !r.stop.stops(Drain) {
		r.fault("while it fails, a worker that was told to stop has not ended")
	}
}

// settle waits until all that is wanted is so, but for what the table lets be.
func (r *round) settle(within time.Duration, wants map[Need]func() bool, failing bool) {
	deadline := time.Now().Add(within)
	for {
		for need, met := range wants {
			if failing && r.stop.stops(need) || slices.Contains(r.stop.Late, need) || met() {
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
			r.fault("while it fails, %s does not go on", need)
		} else {
			r.fault("after it works again, %s does not go on: run %s is %v", need, r.runs[need], r.state(r.runs[need]))
		}
	}
}

// after is when the statement works again.
func (r *round) after() {
	r.release.Do(func() { close(r.kept) })
	ticks := r.tickCount()
	if r.second != nil && !r.second.endedWithin(r.pace.Within) {
		r.fault("after it works again, a worker that was told to stop has not ended")
	}
	third := r.start("third", "second", false)
	wants := map[Need]func() bool{
		Schedule: func() bool { return r.tickCount() > ticks },
		Sweep:    func() bool { return r.swept() },
	}
	for need := range r.runs {
		state := map[Need]durable.State{Death: durable.Dead, Reclaim: durable.Pending, Cancel: durable.Cancelled}[need]
		if need == Reclaim {
			state = durable.Pending
		} else if state == 0 {
			state = durable.Succeeded
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
		r.fault("after it works again, a worker that was told to stop has not ended")
	}
}

// close ends the worker, and leaves nothing for a later round.
func (r *round) close() {
	_, err := r.subject.Sound.Operate(r.ctx, store.Order{Action: store.CancelRuns, Runs: []durable.RunID{r.runs[Reclaim]}, By: "test"})
	r.must(err)
	r.worker.cancel()
	if !r.worker.endedWithin(2 * r.pace.Within) {
		r.fault("after it works again, the worker does not end")
	}
}

func (r *round) ended(need Need, state durable.State) func() bool {
	return func() bool { return r.state(r.runs[need]) == state }
}

func (r *round) state(id durable.RunID) durable.State {
	record, err := r.subject.Sound.Run(r.ctx, id)
	if err != nil {
		return -1
	}
	return record.State
}

func (r *round) swept() bool {
	_, err := r.subject.Sound.Run(r.ctx, r.runs[Sweep])
	return errors.Is(err, durable.ErrNotFound)
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

func (r *round) enqueue(j job) durable.RunID { return r.enqueueOn(durable.DefaultQueue, j) }

func (r *round) enqueueOn(queue string, j job) durable.RunID {
	run := j.New(args{}, durable.OnQueue(queue))
	r.must(r.enqueueRun(run))
	return run.ID
}

func (r *round) enqueueRun(run durable.NewRun) error {
	_, err := r.subject.Sound.Enqueue(r.ctx, run)
	return err
}
