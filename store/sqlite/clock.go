package sqlite

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// clock is the store's time in microseconds: the machine's, as long as that is not
// set back. Then the store's continues from where it was, an eighth more slowly, until
// the machine's has caught up. It never goes back.
//
// Processes that share a file agree on it: each notes in the file, once a second
// while it writes, how far its time has come, and takes over what another has
// noted (see Store.timed). A time that is more than a day ahead of the machine's is
// not taken over: it was that of a mistake.
type clock struct {
	read func() time.Time // nil: the machine's clock

	mu     sync.Mutex    // guards the fields below
	latest int64         // the last answer
	at     time.Duration // of lease.Elapsed, when it was given; meaningless with an injected clock
	begun  bool          // there was an answer
}

const (
	markEvery   = time.Second                           // how often the time is noted in the file
	aheadLeast  = int64(time.Second / time.Microsecond) // less is no difference
	aheadUntold = 24 * time.Hour                        // the store's time may be so far ahead
)

// slower is how far the store's time comes while the machine's has to catch up.
func slower(passed time.Duration) time.Duration { return passed - passed/8 }

func (c *clock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.advance()
}

// machine is what the machine's clock says.
func (c *clock) machine() int64 {
	if c.read != nil {
		return c.read().UnixMicro()
	}
	return time.Now().UnixMicro()
}

// advance needs mu.
func (c *clock) advance() int64 {
	machine, at := c.machine(), lease.Elapsed()
	floor := c.latest
	if c.begun && c.read == nil {
		floor += slower(max(at-c.at, 0)).Microseconds()
	}
	c.latest, c.at, c.begun = max(machine, floor), at, true
	return c.latest
}

// mark is the store's time as it is noted in the file.
func (c *clock) mark() queries.SaveClockParams {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := queries.SaveClockParams{Latest: c.advance(), Elapsed: int64(c.at)}
	if c.latest-c.machine() > aheadLeast {
		m.Slow = 1
	}
	return m
}

// raise takes over the time that another process has noted, and reports whether it
// did, or had come as far. What has passed since is known where lease.Elapsed is
// the same for all processes of the machine; after a restart of the machine less is
// taken to have passed than has.
func (c *clock) raise(m queries.FindClockRow) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	noted := m.Latest
	if passed := c.at - time.Duration(m.Elapsed); sharedElapsed && c.read == nil && m.Latest > 0 && passed > 0 {
		if m.Slow != 0 {
			passed = slower(passed)
		}
		noted += passed.Microseconds()
	}
	if noted-c.machine() > aheadUntold.Microseconds() {
		return false
	}
	c.latest = max(c.latest, noted)
	return true
}

// ahead reports how far the store's time is ahead of the machine's.
func (c *clock) ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return duration(c.advance() - c.machine())
}

// learn takes over what is noted in the file.
func (c *clock) learn(ctx context.Context, reader *lookups) error {
	noted, err := reader.FindClock(ctx)
	if err == nil {
		c.raise(noted)
	}
	return err
}

// timed runs work in a write transaction, with the store's time. Once a second it
// compares that with the time that is noted in the file, and notes it.
func (s *Store) timed(ctx context.Context, work func(context.Context, *change) error) error {
	var c *change
	at := s.elapsed()
	due := s.marked.Load() == 0 || at-time.Duration(s.marked.Load()) >= markEvery
	err := s.transact(ctx, func(ctx context.Context) error {
		if !due {
			c = &change{prepared: s.ready, now: s.clock.now()}
			return work(ctx, c)
		}
		now, err := s.noteTime(ctx)
		if refusesRow(err) { // it concerns processes that share the file; what is to be written does not wait for it
			s.logger.Warn("the store's time can be neither compared with the file's nor recorded, using this process's", "event", "clock.unreadable", "error", err)
			now, err = s.clock.now(), nil
		}
		if err != nil {
			return err
		}
		c = &change{prepared: s.ready, now: now}
		return work(ctx, c)
	})
	if err == nil && due {
		s.marked.Store(int64(at))
	}
	if err == nil && c.freed {
		s.hint()
	}
	return err
}

// noteTime notes the store's time, in a write transaction, and returns it.
func (s *Store) noteTime(ctx context.Context) (now int64, err error) {
	noted, err := s.ready.FindClock(ctx)
	if err != nil {
		return 0, err
	}
	if !s.clock.raise(noted) {
		s.logger.Warn("the store's time in the file is far ahead of this machine's clock and is left behind; if another process still uses it, restart all", "event", "clock.far_ahead",
			"noted", instant(noted.Latest).String())
	}
	mark := s.clock.mark()
	return mark.Latest, s.ready.SaveClock(ctx, mark)
}

// keepTime notes the time also when nothing is written, while it is ahead of the
// machine's: who opens the file then has nothing else to learn it from. When it
// cannot, the next call tries again.
func (s *Store) keepTime(ctx context.Context) {
	if s.clock.ahead() < markEvery || s.elapsed()-time.Duration(s.marked.Load()) < markEvery {
		return
	}
	if err := s.write(ctx, reclaims, func(context.Context, *change) error { return nil }); err != nil {
		s.logger.Debug("the store's time could not be recorded", "event", "clock.not_noted", "error", err)
	}
}

// instant is the time that is stored as micros.
func instant(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

func instantOrNil(micros *int64) *time.Time {
	if micros == nil {
		return nil
	}
	t := instant(*micros)
	return &t
}

// micros is how a time is stored; the zero time is stored as null.
func micros(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.UnixMicro()
	return &n
}

// duration is the duration that is stored as micros; the longest that there is,
// of one that is longer.
func duration(micros int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(micros, -most), most)) * time.Microsecond
}
