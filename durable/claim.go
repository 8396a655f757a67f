package durable

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/poller"
	"github.com/durable-worker/durable-worker/store"
)

// claimer asks the store for runs by the plan. Its methods are called by the
// poller alone, save those on atomics.
type claimer struct {
	w        *Worker
	handlers context.Context // parent of every handler's context
	serves   store.Serves
	plan     plan
	headsAt  time.Duration // when the heads were last read
	headsDue time.Duration // when they are read again although wake-ups come
	nextAt   time.Duration // when the next run is due that they showed; negative: none
	calls    calls
	pending  *store.ClaimRequest // its outcome is unknown; it is asked again, or handed back
	asked    time.Duration       // when pending was first sent
	givesUp  bool                // pending is to be handed back
	resting  bool                // nothing was due when last looked
	empty    int                 // claims in a row that got nothing although heads were due
	queues   map[string]*queueRoom
	sizer    batchSizer
	reach    reach

	isolation
}

// queueRoom counts the runs of a capped queue.
type queueRoom struct {
	max       int
	executing atomic.Int64
}

const headsEvery = time.Second

func (c *claimer) init(handlers context.Context, w *Worker) {
	c.w, c.handlers, c.plan, c.queues = w, handlers, plan{stale: true, next: -1}, map[string]*queueRoom{}
	c.sizer.most, c.delay = w.config.ClaimBatchBytes, -1
	for _, q := range w.config.Queues {
		c.serves.Queues = append(c.serves.Queues, q.Name)
		if q.Max > 0 {
			c.queues[q.Name] = &queueRoom{max: q.Max}
		}
	}
	for name := range w.jobs {
		c.serves.Jobs = append(c.serves.Jobs, name)
	}
	for alias := range w.aliases {
		c.serves.Jobs = append(c.serves.Jobs, alias)
	}
}

// room reports how many more runs of a queue may execute; negative: no cap.
func (c *claimer) room(queue string) int {
	q := c.queues[queue]
	if q == nil {
		return -1
	}
	return max(q.max-int(q.executing.Load()), 0)
}

type answer = poller.Answer[*execution]

// ask claims up to n runs. The caller's ctx says when to stop asking; a claim
// that was sent is waited for all the same, so that its runs are not leased to
// nobody.
func (c *claimer) ask(ctx context.Context, n int) (answer, error) {
	if c.givesUp {
		if err := c.handBack(context.WithoutCancel(ctx)); err != nil {
			c.interrupted()
			return answer{}, err
		}
	}
	if c.aloneActive.Load() {
		return answer{Next: -1}, nil // woken when the isolated run is settled
	}
	if c.pending == nil && c.w.settler.full() {
		c.interrupted()
		return answer{Next: -1}, nil // woken when there is room
	}
	if c.pending == nil && c.w.config.Process.reserved(c.w) {
		return answer{Next: roomPause}, nil
	}
	got, err := c.question(ctx, n)
	if err != nil {
		c.interrupted()
	}
	return got, err
}

// answered records that it is known what a claim has got.
func (c *claimer) answered(alone bool, n int) {
	if alone {
		c.answeredAlone(n)
	} else {
		c.w.config.Process.left()
	}
}

// stop ends what the claims of a worker that asks no more hold up.
func (c *claimer) stop() {
	if c.pending != nil && !c.pending.Alone {
		c.w.config.Process.left()
	}
	c.w.config.Process.stop(c.w)
}

// request makes the claim to ask for.
func (c *claimer) request(steps []store.Step, alone bool, n int) {
	c.pending = &store.ClaimRequest{Claim: c.w.config.NewClaimID(), Worker: c.w.id, Duration: c.w.config.Terms.Duration,
		Steps: steps, Limit: n, Alone: alone}
	if alone {
		c.pending.Limit = 1
	}
	c.asked = c.w.config.Elapsed()
}

func (c *claimer) readHeads(ctx context.Context, now time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, c.w.callTimeout())
	defer cancel()
	serves, below := c.serves, c.reach.below(now)
	if !below {
		serves.From = c.plan.bounds()
	}
	heads, err := c.w.store.Heads(ctx, serves)
	c.w.contact(err)
	switch ended := c.w.config.Elapsed(); {
	case below:
		c.reach.lookedBelow(ended, ended-now)
	case err == nil:
		c.reach.lookedAbove(ended - now)
	}
	if err != nil {
		c.w.warn(ctx, "claim: reading the heads failed, will be retried", err)
		return err
	}
	c.plan.learn(heads)
	c.headsAt, c.headsDue = now, now+c.w.jittered(c.w.config.PollInterval)
	if c.nextAt = -1; c.plan.next >= 0 {
		c.nextAt = c.w.config.Elapsed() + c.plan.next
	}
	return nil
}

// begin turns what was claimed into executions under one hold.
func (c *claimer) begin(request store.ClaimRequest, runs []store.ClaimedRun) []*execution {
	held := &claim{id: request.Claim, alone: request.Alone, asked: c.asked, unsettled: len(runs), runs: make([]execution, len(runs))}
	items := make([]*execution, len(runs))
	for i := range runs {
		lane := c.plan.byID[max(runs[i].Lane, -runs[i].Lane)]
		x := &held.runs[i]
		x.w, x.claim, x.run = c.w, held, runs[i]
		if lane != nil {
			x.job, x.queue, x.room = lane.Job, lane.Queue, c.queues[lane.Queue]
			x.registration = c.w.registered(lane.Job)
		}
		if x.room != nil {
			x.room.executing.Add(1)
		}
		items[i] = x
	}
	c.w.active.add(held)
	c.w.config.Process.started(held, c.w)
	if held.alone {
		c.aloneActive.Store(true)
		held.told = time.AfterFunc(aloneTold, items[0].tellAlone)
	}
	held.ctx, held.hold = c.w.keeper.Hold(c.handlers, lease.Lease{Claim: request.Claim, Asked: c.asked})
	held.watch = context.AfterFunc(held.ctx, func() { c.w.watchLost(held) })
	if c.w.debug() {
		c.w.config.Logger.Debug("claimed", "claim", request.Claim.Short(), "runs", len(runs), "alone", held.alone)
	}
	return items
}

// isStuck reports whether the handler was given up and has not returned.
func (x *execution) isStuck() bool {
	resolution := x.resolution.Load()
	return (resolution == resolvedLost || resolution == resolvedTimeout) && !x.returned.Load()
}
