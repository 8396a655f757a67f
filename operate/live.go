package operate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// The bounds of live hints.
const (
	maxStreams    = 1000            // of one Operator
	hintEvery     = 2 * time.Second // at most
	listenAgain   = 5 * time.Second // after a listener has lost its connection
	surveyTimeout = 5 * time.Second
)

// Hint says that something may have changed. Who gets it asks again.
type Hint struct {
	Changed []string `json:"changed"` // of what, sorted: runs, queues, schedules, limits, locks, bulk
	Survey  *Survey  `json:"survey"`  // nil: nothing new is known
}

// hub makes hints for the streams of one Operator, and costs nothing without one: it
// starts with the first stream and ends with the last.
type hub struct {
	mu      sync.Mutex
	streams map[*Stream]struct{}
	surveys int             // of the streams that get surveys
	changed map[string]bool // since the last hint
	stop    context.CancelFunc
	ended   chan struct{} // closed when what the first stream started has returned
}

// Stream is one listener of live hints. Its methods are for one goroutine.
type Stream struct {
	operator *Operator
	surveys  bool          // hints bring surveys
	ready    chan struct{} // has a value while there is a hint

	mu   sync.Mutex
	hint Hint
}

// Stream opens a stream of hints with surveys, one each two seconds while the store
// answers. Of one Operator 1,000 streams may be open; another is refused with ErrBusy.
// Close it.
func (o *Operator) Stream() (*Stream, error) { return o.stream(true) }

// StreamWithoutSurveys is Stream for who asks for everything again: its hints come each
// two seconds, and cost the store nothing.
func (o *Operator) StreamWithoutSurveys() (*Stream, error) { return o.stream(false) }

func (o *Operator) stream(surveys bool) (*Stream, error) {
	h := &o.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.streams) >= maxStreams {
		return nil, fmt.Errorf("%w: %d streams are open", ErrBusy, maxStreams)
	}
	s := &Stream{operator: o, surveys: surveys, ready: make(chan struct{}, 1)}
	if h.streams == nil {
		h.streams, h.changed = map[*Stream]struct{}{}, map[string]bool{}
	}
	h.streams[s] = struct{}{}
	if surveys {
		h.surveys++
	}
	if h.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		h.stop, h.ended = stop, ended
		go func() {
			defer close(ended)
			o.hint(ctx)
		}()
	}
	return s, nil
}

// Close closes the stream. The last one waits until what the first one has started has
// ended.
func (s *Stream) Close() {
	h := &s.operator.hub
	h.mu.Lock()
	if _, open := h.streams[s]; open && s.surveys {
		h.surveys--
	}
	delete(h.streams, s)
	if len(h.streams) > 0 || h.stop == nil {
		h.mu.Unlock()
		return
	}
	stop, ended := h.stop, h.ended
	h.stop = nil
	h.mu.Unlock()
	stop()
	<-ended
}

// Next waits for a hint. Hints that were not asked for in time become one.
func (s *Stream) Next(ctx context.Context) (Hint, error) {
	select {
	case <-ctx.Done():
		return Hint{}, ctx.Err()
	case <-s.ready:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	hint := s.hint
	s.hint = Hint{}
	return hint, nil
}

// add merges a hint into what the stream has not asked for yet.
func (s *Stream) add(hint Hint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, what := range hint.Changed {
		if i, known := slices.BinarySearch(s.hint.Changed, what); !known {
			s.hint.Changed = slices.Insert(s.hint.Changed, i, what)
		}
	}
	if hint.Survey != nil {
		s.hint.Survey = hint.Survey
	}
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// touch notes that something has changed.
func (h *hub) touch(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stop != nil {
		h.changed[what] = true
	}
}

// hint sends hints until ctx ends.
func (o *Operator) hint(ctx context.Context) {
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() { o.listen(ctx) })
	tick := time.NewTicker(hintEvery)
	defer tick.Stop()
	for {
		o.hub.send(o.hub.take(o.surveyed(ctx)))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// listen notes the signals of the store until ctx ends.
func (o *Operator) listen(ctx context.Context) {
	for {
		_ = o.store.Listen(ctx, func(signal store.Signal) { // hints are no promise: without them the survey's clock ticks on
			if signal.Kind == store.RunsDue || signal.Kind == store.RunEnded {
				o.hub.touch("runs")
			}
		})
		select {
		case <-ctx.Done():
			return
		case <-time.After(listenAgain):
		}
	}
}

// surveyed is a survey, if a stream wants one and the store answers.
func (o *Operator) surveyed(ctx context.Context) *Survey {
	o.hub.mu.Lock()
	wanted := o.hub.surveys > 0
	o.hub.mu.Unlock()
	if !wanted {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	survey, err := o.Survey(ctx)
	if err != nil {
		return nil
	}
	return &survey
}

// take is the hint that is due.
func (h *hub) take(survey *Survey) Hint {
	h.mu.Lock()
	defer h.mu.Unlock()
	hint := Hint{Survey: survey}
	for what := range h.changed {
		hint.Changed = append(hint.Changed, what)
	}
	slices.Sort(hint.Changed)
	clear(h.changed)
	return hint
}

// send gives a hint to all streams: to those with surveys if it says anything.
func (h *hub) send(hint Hint) {
	says := len(hint.Changed) > 0 || hint.Survey != nil
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams {
		switch {
		case !s.surveys:
			s.add(Hint{Changed: hint.Changed})
		case says:
			s.add(hint)
		}
	}
}
