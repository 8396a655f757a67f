package sqlite

import (
	"math"
	"sync"
	"time"
)

// clock is the store's time in microseconds; it never goes back. When the
// machine's clock is set back, time goes on from where it was.
type clock struct {
	read func() time.Time // nil: the machine's clock

	mu     sync.Mutex // guards the fields below
	latest int64      // the last answer
	at     time.Time  // when it was given, with its monotonic reading; zero with an injected clock
}

func (c *clock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read != nil {
		c.latest = max(c.latest, c.read().UnixMicro())
		return c.latest
	}
	t := time.Now()
	floor := c.latest
	if !c.at.IsZero() {
		floor += t.Sub(c.at).Microseconds()
	}
	if now := t.UnixMicro(); now > floor {
		floor = now
	}
	if floor > c.latest {
		c.latest, c.at = floor, t
	}
	return c.latest
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
