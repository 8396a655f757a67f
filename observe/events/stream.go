package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

// Sink takes batches of events.
type Sink interface {
	// Send passes a batch on: one that is sent again after an error is the same batch,
	// with the same id. It must return when ctx ends. See Permanent and After for
	// errors that say more.
	Send(ctx context.Context, batch Batch) error
}

// SinkFunc is a function that is a Sink.
type SinkFunc func(ctx context.Context, batch Batch) error

// Send calls the function.
func (f SinkFunc) Send(ctx context.Context, batch Batch) error { return f(ctx, batch) }

// Batch is some events, in the order in which they were noted.
type Batch struct {
	Schema int       `json:"schema"`
	ID     uuid.UUID `json:"id"`
	Events []Event   `json:"events"` // at least one
}

// Config says what a Stream passes on. The zero value is useful.
type Config struct {
	Kinds  []Kind       // none: all
	Worker string       // the name that events have
	Errors bool         // pass on the texts of errors, up to 4 KiB each; they may hold what your handlers put there
	Logger *slog.Logger // default: none
	// MaxWaiting bounds the events that wait for the sink. Default: 10,000, and in any
	// case about 16 MiB.
	MaxWaiting int
	// Tries is how often a batch is sent before it is dropped. Default: 5, after pauses
	// of about 1, 2, 4 and 8 seconds.
	Tries int
	// Timeout bounds one try. Default: 10 s.
	Timeout time.Duration
}

const (
	batchMost    = 100              // events of a batch
	batchBytes   = 1 << 20          // about
	waitingBytes = 16 << 20         // about
	linger       = time.Second      // in which a batch fills
	firstPause   = time.Second      // before the second try
	longestPause = time.Minute      // also of those that a sink asks for
	lastWithin   = 5 * time.Second  // for what waits when the stream ends
	logEvery     = time.Minute      // at most
	tryWithin    = 10 * time.Second // Config.Timeout
)

// Stream is the way of events to one sink. Make it with New. Its methods may be called
// from many goroutines.
type Stream struct {
	sink   Sink
	config Config
	kinds  map[Kind]bool
	ends   uint64 // a bit for each kind of outcome whose event is wanted
	signal chan struct{}

	mu      sync.Mutex
	waiting []Event
	bytes   int
	totals  Totals
	logged  time.Time // when the last failure was
}

// Totals are what happened to the events of a Stream.
type Totals struct {
	Sent    int64 // the sink has taken them
	Dropped int64 // the queue was full, or the sink did not take them
	Failed  int64 // tries to send a batch that failed
	Waiting int
}

// New returns a Stream. Nothing is sent until Run is called.
func New(sink Sink, config Config) *Stream {
	if config.MaxWaiting <= 0 {
		config.MaxWaiting = 10_000
	}
	if config.Tries <= 0 {
		config.Tries = 5
	}
	if config.Timeout <= 0 {
		config.Timeout = tryWithin
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if len(config.Kinds) == 0 {
		config.Kinds = Kinds()
	}
	s := &Stream{sink: sink, config: config, kinds: map[Kind]bool{}, signal: make(chan struct{}, 1)}
	for _, one := range config.Kinds {
		s.kinds[one] = true
	}
	for outcome, what := range outcomes {
		if s.wants(what) {
			s.ends |= 1 << uint(outcome)
		}
	}
	if s.wants(RunParked) {
		s.ends |= 1 << uint(store.Snoozed)
	}
	return s
}

// Totals returns what happened to the events until now.
func (s *Stream) Totals() Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	totals := s.totals
	totals.Waiting = len(s.waiting)
	return totals
}

// Worker adds an event of a worker: WorkerStarted, WorkerHeartbeat or WorkerStopped.
func (s *Stream) Worker(what Kind, state State) { s.add(Event{Kind: what, State: &state}) }

func (s *Stream) wants(what Kind) bool { return s.kinds[what] }

func (s *Stream) any(kinds ...Kind) bool {
	for _, one := range kinds {
		if s.wants(one) {
			return true
		}
	}
	return false
}

// add queues an event if the stream wants it. It never blocks.
func (s *Stream) add(e Event) {
	if !s.wants(e.Kind) {
		return
	}
	e.Schema, e.At, e.Worker = Schema, time.Now(), s.config.Worker
	id, err := uuid.NewV7()
	size := e.size()
	s.mu.Lock()
	if err != nil || len(s.waiting) >= s.config.MaxWaiting || s.bytes+size > waitingBytes {
		s.totals.Dropped++
		s.mu.Unlock()
		return
	}
	e.ID = id
	s.waiting = append(s.waiting, e)
	s.bytes += size
	s.mu.Unlock()
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// Run sends events until ctx ends, and then for a few seconds what waits. Call it once,
// and wait for it before the program ends.
func (s *Stream) Run(ctx context.Context) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	late := time.AfterFunc(time.Hour, cancel)
	late.Stop()
	defer late.Stop()
	defer context.AfterFunc(ctx, func() { late.Reset(lastWithin) })()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.signal:
			s.fill(ctx)
			for batch, some := s.take(); some && ctx.Err() == nil; batch, some = s.take() {
				s.deliver(ctx, sending, batch)
				s.fill(ctx)
			}
		}
	}
	s.flush(sending)
}

// fill waits for a moment, or until there are enough events for a batch.
func (s *Stream) fill(ctx context.Context) {
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for s.Totals().Waiting < batchMost {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-s.signal:
		}
	}
}

// flush sends what waits when the stream ends, each batch once.
func (s *Stream) flush(ctx context.Context) {
	for batch, some := s.take(); some; batch, some = s.take() {
		if ctx.Err() != nil {
			s.drop(len(batch.Events), ctx.Err())
			continue
		}
		if err := s.try(ctx, batch); err != nil {
			s.drop(len(batch.Events), err)
		}
	}
}

// take returns the next batch. What it holds still counts as waiting until it is done.
func (s *Stream) take() (batch Batch, some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, bytes := 0, 0
	for n < len(s.waiting) && n < batchMost && (n == 0 || bytes+s.waiting[n].size() <= batchBytes) {
		bytes += s.waiting[n].size()
		n++
	}
	if n == 0 {
		return Batch{}, false
	}
	batch = Batch{Schema: Schema, ID: s.waiting[0].ID, Events: slices.Clone(s.waiting[:n])}
	return batch, true
}

// done removes the events of a batch from those that wait.
func (s *Stream) done(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.waiting[:n] {
		s.bytes -= s.waiting[i].size()
	}
	s.waiting = slices.Delete(s.waiting, 0, n)
}

// deliver sends a batch until it is taken, or has failed too often. When ctx ends the
// try that is under way continues, and a batch that it does not pass on waits for flush.
func (s *Stream) deliver(ctx, sending context.Context, batch Batch) {
	var err error
	wait := firstPause
	for n := range s.config.Tries {
		if n > 0 {
			pause(ctx, max(spread(wait), asked(err)))
			wait = min(2*wait, longestPause)
		}
		if ctx.Err() != nil {
			return
		}
		if err = s.try(sending, batch); err == nil || ctx.Err() != nil {
			return
		}
		if isPermanent(err) {
			break
		}
	}
	s.drop(len(batch.Events), err)
}

// try sends a batch once.
func (s *Stream) try(ctx context.Context, batch Batch) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	err := send(ctx, s.sink, batch)
	if err == nil {
		s.done(len(batch.Events))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.totals.Sent += int64(len(batch.Events))
		return nil
	}
	s.totals.Failed++
	return err
}

var errNoReturn = errors.New("the sink has ended its goroutine")

// send calls a sink, and survives a panic and runtime.Goexit.
func send(ctx context.Context, sink Sink, batch Batch) error {
	err := errNoReturn
	var sending sync.WaitGroup
	sending.Go(func() {
		defer func() {
			if value := recover(); value != nil {
				err = fmt.Errorf("panic: %v", value)
			}
		}()
		err = sink.Send(ctx, batch)
	})
	sending.Wait()
	return err
}

// drop gives a batch up. The log has one line a minute at most.
func (s *Stream) drop(n int, err error) {
	s.done(n)
	s.mu.Lock()
	s.totals.Dropped += int64(n)
	dropped, quiet := s.totals.Dropped, time.Since(s.logged) < logEvery
	if !quiet {
		s.logged = time.Now()
	}
	s.mu.Unlock()
	if !quiet {
		s.config.Logger.Warn("events dropped: the sink does not accept them", "event", "events.dropped", "dropped", dropped, "error", err)
	}
}

// spread is a pause ± 20 %.
func spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64())) //nolint:gosec // it only spreads
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
