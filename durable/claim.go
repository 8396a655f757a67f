package durable

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/internal/claimplan"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/poller"
	"github.com/durable-worker/durable-worker/store"
)

// claimer asks the store for runs by the plan. Its methods are called by the
// poller alone, except those on atomics.
type claimer struct {
	w        *Worker
	handlers context.Context // parent of every handler's context
	serves   store.Serves
	plan     *claimplan.Plan
	wakeUps  claimplan.WakeUps
	expected expected            // wake-ups that become due
	pending  *store.ClaimRequest // its outcome is unknown; it is asked again, or handed back
	rests    bool                // the last claim of limited runs left none that could start now
	asked    time.Duration       // when pending was first sent
	givesUp  bool                // pending is to be handed back
	empty    int                 // claims in a row that got nothing although heads were due
	queues   map[string]*queueRoom
	works    map[store.LaneID]*laneWork // by lane

	isolation
}

func (c *claimer) init(handlers context.Context, w *Worker) {
	c.w, c.handlers, c.plan, c.queues = w, handlers, claimplan.New(w.config.ClaimBatchBytes), map[string]*queueRoom{}
	c.works = map[store.LaneID]*laneWork{}
	c.delay = -1
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

// roomOf reports how many more runs of a queue may execute; negative: no cap.
func (c *claimer) roomOf(queue string) int {
	q := c.queues[queue]
	if q == nil {
		return -1
	}
	return max(q.max-int(q.executing.Load()), 0)
}

type answer = poller.Answer[*execution]

// ask claims up to n runs. ctx ends when the worker stops claiming. A claim that was sent is
// waited for even then, so that no run is leased to a worker that does not know of it.
func (c *claimer) ask(ctx context.Context, n int) (got answer, err error) {
	var woken claimplan.Woken
	defer func() {
		switch {
		case err != nil:
			c.interrupted()
			c.hurry()
		case woken.Again > 0 && !got.Left: // it watches: nothing else wakes it
			c.w.poller.Call(woken.Again)
		}
	}()
	if instead, is, err := c.prevented(ctx); is || err != nil {
		return instead, err
	}
	if n = c.size(n); n == 0 {
		return answer{Next: claimPause}, nil
	}
	now := c.w.config.Elapsed()
	woken = c.wakeUps.Take(now)
	by, read := c.plan.Consider(woken, now)
	if read {
		if err := c.readHeads(ctx, now); err != nil {
			return answer{}, err
		}
		c.plan.Insist(woken)
	}
	ask, alone, wait := c.isolate(now)
	if !alone && !wait {
		ask = c.plan.Ask(n, c.roomOf)
	}
	switch {
	case c.pending != nil:
		by = claimplan.ByHeads
		c.again(ask, alone)
	case wait:
		return answer{Next: roomPause}, nil
	case ask.Empty():
		c.passWakeUps(woken)
		return answer{Next: c.plan.Sleep()}, nil
	case !alone && !c.w.config.Process.enter(c.w):
		c.passWakeUps(woken)
		return answer{Next: roomPause}, nil
	default:
		c.request(ask, alone)
		c.pending.Guess = by != claimplan.ByHeads
	}
	alone, c.pending.Next = c.pending.Alone, woken.Again
	limited := len(c.pending.Admissions) > 0
	got, err = c.send(ctx)
	if err == nil {
		c.answered(alone, len(got.Items))
	}
	if err == nil && len(got.Items) == 0 && by == claimplan.ByHeads {
		c.empty++ // other workers are claiming what is due
		return answer{Next: min(5*time.Millisecond<<min(c.empty, 10), c.w.config.PollInterval)}, nil
	}
	c.empty = 0
	if err == nil && (!limited || c.rests || len(got.Items) >= n) && (by == claimplan.NamedLanes || by == claimplan.ByHeads && !alone && c.w.named.Load() && c.w.listens.Load()) {
		return c.relax(got, n, woken), nil
	}
	return got, err
}

// size lowers n to what the next claim may ask for: no more than can begin, unless it is sent
// again.
func (c *claimer) size(n int) int {
	if c.pending == nil {
		n = c.w.executors.room(n)
	}
	return c.plan.Size(n)
}

// prevented returns what to answer instead, where something keeps the worker from
// claiming.
func (c *claimer) prevented(ctx context.Context) (instead answer, is bool, err error) {
	if c.givesUp || c.isLate() {
		if err := c.handBack(context.WithoutCancel(ctx)); err != nil {
			return answer{}, true, err
		}
	}
	switch {
	case c.aloneActive.Load():
		return answer{Next: -1}, true, nil // woken when the isolated run is settled
	case c.pending == nil && c.w.settler.full():
		c.interrupted()
		return answer{Next: -1}, true, nil // woken when there is room
	case c.pending == nil && !c.w.keeper.Check(ctx): // what is claimed now would be lost
		c.interrupted()
		return answer{Next: c.w.jittered(min(c.w.config.Terms.Duration/20, c.w.config.PollInterval))}, true, nil
	case c.pending == nil && c.w.config.Process.reserved(c.w):
		return answer{Next: roomPause}, true, nil
	}
	return answer{}, false, nil
}

// hurry bounds the pause before the pending claim is retried or handed back, as long
// as its lease is not over.
func (c *claimer) hurry() {
	d := c.w.config.Terms.Duration
	if c.pending != nil && c.w.config.Elapsed()-c.asked < d {
		c.w.poller.Call(c.w.jittered(d / 16))
	}
}

// answered records that the outcome of a claim is known.
func (c *claimer) answered(alone bool, n int) {
	if alone {
		c.answeredAlone(n)
	} else {
		c.w.config.Process.left()
	}
}

// stop releases what the claims of this worker reserved in the process. No claim follows.
func (c *claimer) stop() {
	if c.pending != nil && !c.pending.Alone {
		c.w.config.Process.left()
	}
	c.w.config.Process.stop(c.w)
}

// request makes the next claim the pending one.
func (c *claimer) request(ask claimplan.Ask, alone bool) {
	c.pending = &store.ClaimRequest{Claim: c.w.config.NewClaimID(), Worker: c.w.id, Duration: c.w.config.Terms.Duration,
		Steps: ask.Steps, Admissions: ask.Admissions, Lanes: ask.Lanes, Limit: ask.Limit, Alone: alone}
	c.asked = c.w.config.Elapsed()
}

func (c *claimer) readHeads(ctx context.Context, now time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, c.w.callTimeout())
	defer cancel()
	serves, reading := c.serves, c.plan.Read(now)
	serves.From = reading.From
	heads, err := c.w.store.Heads(ctx, serves)
	c.w.observeCall(err)
	c.w.observeFit(err)
	ended := c.w.config.Elapsed()
	if err != nil {
		c.plan.ReadFailed(reading, ended)
		c.w.warn(ctx, "claim.heads_failed", "claim: reading the heads failed, will be retried", err)
		return err
	}
	c.plan.SetHeads(reading, heads, ended, c.w.jittered(c.w.config.PollInterval))
	return nil
}

// begin turns claimed runs into executions under one hold. The executions keep references
// into runs: the caller must not use it again.
func (c *claimer) begin(request store.ClaimRequest, runs []store.ClaimedRun) []*execution {
	held := &claim{id: request.Claim, alone: request.Alone, limited: len(request.Admissions) > 0, asked: c.asked, unsettled: len(runs), runs: make([]execution, len(runs))}
	items := make([]*execution, len(runs))
	for i := range runs {
		x := &held.runs[i]
		x.w, x.claim, x.run, x.laneWork = c.w, held, &runs[i], c.workOf(runs[i].Lane)
		if x.room != nil {
			x.room.executing.Add(1)
		}
		items[i] = x
	}
	c.w.inFlight.add(held)
	c.w.config.Process.started(held, c.w)
	if held.alone {
		c.aloneActive.Store(true)
		held.warning = time.AfterFunc(aloneLogged, items[0].tellAlone)
	}
	held.ctx, held.hold = c.w.keeper.Hold(c.handlers, lease.Lease{Claim: request.Claim, Asked: c.asked})
	held.watch = context.AfterFunc(held.ctx, func() { c.w.watchLost(held) })
	if c.w.debug() {
		c.w.config.Logger.Debug("claimed", "event", "run.claimed", "claim", request.Claim.Short(), "runs", len(runs), "alone", held.alone)
	}
	return items
}

// workOf returns what the runs of a lane, or of its isolated ones, have in common.
func (c *claimer) workOf(id store.LaneID) *laneWork {
	id = max(id, -id)
	lane := c.plan.Lane(id)
	if lane == nil { // without a handler: it is handed back
		return &laneWork{counts: c.w.config.Tally.Lane(store.OtherLanes, store.OtherLanes)}
	}
	known := c.works[id]
	if known == nil || known.job != lane.Job || known.queue != lane.Queue {
		known = &laneWork{registration: c.w.registered(lane.Job), job: lane.Job, queue: lane.Queue,
			room: c.queues[lane.Queue], counts: c.w.config.Tally.Lane(lane.Queue, lane.Job)}
		if len(c.works) >= worksMost {
			clear(c.works)
		}
		c.works[id] = known
	}
	return known
}

// worksMost bounds the lanes that are remembered for executions.
const worksMost = 1000

// relax decides what follows a claim of up to n runs from named lanes, or by the heads while
// wake-ups name their lanes. If the claim had room for more, its lanes are empty as far as
// this worker knows, and it rests until the next wake-up or poll. If the claim came back
// full, it wakes other workers.
func (c *claimer) relax(got answer, n int, woken claimplan.Woken) answer {
	if len(got.Items) >= n {
		for lane, due := range woken.Lanes {
			if due.Runs > 0 {
				c.w.share(lane, due)
			}
		}
		return got
	}
	if !c.plan.Relax() {
		return got
	}
	now := c.w.config.Elapsed()
	got.Left, got.Next = false, c.plan.SleepUnread(now, c.wakeUps.Next(now))
	return got
}

// passWakeUps passes wake-ups on for which there is no room.
func (c *claimer) passWakeUps(woken claimplan.Woken) {
	for _, due := range woken.Lanes {
		if l := c.plan.Lane(due.Lane); l != nil && due.After == 0 && c.roomOf(l.Queue) == 0 {
			c.wakeUps.Leave(due.Lane)
			c.w.passOn(due)
		}
	}
}
