package poller

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/internal/protocol"
	"github.com/durable-worker/durable-worker/internal/saturate"
)

// Config reports a Poller how much to ask for and how long to sleep. Every field
// must be set.
type Config struct {
	Capacity int           // slots
	Batch    int           // most asked for by one call
	Interval time.Duration // sleep after an answer with nothing left
	Jitter   float64       // 0 to 1: the sleep is Interval·(1 ± Jitter)
	Linger   time.Duration // most that a free slot waits for company
	Elapsed  func() time.Duration
	Random   func() float64 // in [0, 1)
}

// Answer is what a source answers.
type Answer[T any] struct {
	Items []T
	Left  bool          // there may be more: ask again as soon as there is room
	Next  time.Duration // without Left: more is known to come after so long; negative: unknown
}

// Poller fills slots with items of a source. Make it with New.
type Poller[T any] struct {
	config Config
	ask    func(ctx context.Context, n int) (Answer[T], error)
	start  func(T)

	freed  atomic.Int64 // slots given back and not yet taken in by Run
	wanted atomic.Int64 // freed slots at which Run wants to be notified
	room   atomic.Int64 // slots free
	woken  atomic.Bool
	called atomic.Int64 // the instant of the earliest call that Run has not taken in; zero: none
	signal chan struct{}
}

// New returns a Poller. ask answers at most n items; an error is followed by a
// growing pause. start takes over one item, which fills one slot until Free
// gives it back; start must not block. Both are called by Run alone.
func New[T any](config Config, ask func(ctx context.Context, n int) (Answer[T], error), start func(T)) *Poller[T] {
	p := &Poller[T]{config: config, ask: ask, start: start, signal: make(chan struct{}, 1)}
	p.room.Store(int64(config.Capacity))
	return p
}

// Room returns how many slots are free.
func (p *Poller[T]) Room() int { return int(p.room.Load()) }

// Wake ends the sleep, or the next one if the source is being asked right now.
func (p *Poller[T]) Wake() {
	p.woken.Store(true)
	p.poke()
}

// Call ends the sleep after a while, unless the source has been asked by then:
// something is due, and this poller, of many, is the one to look. Unlike a Wake it
// is never put off, however many have been in vain.
func (p *Poller[T]) Call(after time.Duration) {
	at := max(int64(saturate.Add(p.config.Elapsed(), after)), 1)
	for {
		earliest := p.called.Load()
		if earliest != 0 && earliest <= at {
			return
		}
		if p.called.CompareAndSwap(earliest, at) {
			p.poke()
			return
		}
	}
}

// Free gives slots back.
func (p *Poller[T]) Free(n int) {
	p.room.Add(int64(n))
	if freed := p.freed.Add(int64(n)); freed == int64(n) || freed >= p.wanted.Load() {
		p.poke()
	}
}

func (p *Poller[T]) poke() {
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

// Run asks until ctx ends. A question that is under way then is waited for and
// its items are started: who stops a Poller has to cope with them.
func (p *Poller[T]) Run(ctx context.Context) {
	c := p.config
	machine := protocol.Ask{Capacity: c.Capacity, Batch: c.Batch, Interval: c.Interval, Jitter: c.Jitter, Linger: c.Linger}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	step := func(e protocol.AskEvent) protocol.AskEffects {
		e.At, e.Random = c.Elapsed(), c.Random()
		return machine.Step(e)
	}
	event := protocol.AskEvent{Kind: protocol.AskTick}
	for {
		effects := step(event)
		if p.woken.Swap(false) {
			effects = merge(effects, step(protocol.AskEvent{Kind: protocol.AskWoken}))
		}
		if at := p.called.Swap(0); at != 0 {
			effects = merge(effects, step(protocol.AskEvent{Kind: protocol.AskCalled, Next: time.Duration(at) - c.Elapsed()}))
		}
		if freed := p.freed.Swap(0); freed > 0 {
			effects = merge(effects, step(protocol.AskEvent{Kind: protocol.AskFreed, Count: int(freed)}))
		}
		if ctx.Err() != nil {
			return
		}
		if effects.Ask <= 0 {
			event = protocol.AskEvent{Kind: protocol.AskTick}
			p.pause(ctx, timer, effects.Wake, int64(machine.Wanted()))
			continue
		}
		answer, err := p.ask(ctx, effects.Ask)
		if err != nil {
			event = protocol.AskEvent{Kind: protocol.AskFailed}
			continue
		}
		p.room.Add(-int64(len(answer.Items)))
		for _, item := range answer.Items {
			p.start(item)
		}
		event = protocol.AskEvent{Kind: protocol.AskAnswered, Count: len(answer.Items), Left: answer.Left, Next: answer.Next}
	}
}

// pause waits until an instant (negative: an hour), until so many slots are freed, until
// a wake-up, or until ctx ends.
func (p *Poller[T]) pause(ctx context.Context, timer *time.Timer, until time.Duration, wanted int64) {
	wait := time.Hour
	if until >= 0 {
		wait = max(until-p.config.Elapsed(), 0)
	}
	p.wanted.Store(wanted)
	if p.freed.Load() >= wanted && wanted > 0 {
		return // they came before they were wanted, without a notice
	}
	timer.Reset(wait)
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-p.signal:
	}
}

// merge keeps a question that an earlier event of the same round decided on.
func merge(earlier, later protocol.AskEffects) protocol.AskEffects {
	if earlier.Ask > 0 {
		return earlier
	}
	return later
}
