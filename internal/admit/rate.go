package admit

import (
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Rate is what a gate of a limit of starts remembers, as a row keeps it. Instants
// are microseconds since the epoch, but for TAT. The zero value is a gate that has admitted
// nothing.
type Rate struct {
	TAT   int64   // of a token bucket: the theoretical arrival time of the next start; nanoseconds since the epoch
	At    []int64 // of a window: the last instant that each part may hold, rising
	Count []int32 // the starts in that part; as long as At

	LastAt int64 // of a token bucket and a key of a dynamic window: the last start
	// Since is, of a key of a dynamic window, its first start since it is live. It is
	// live until a period after its last one.
	Since int64
}

// Refund is starts that did not happen, as the runs were handed back before their
// handlers began. Who inserts one frees a place, and inserts a turn.
type Refund struct {
	Weight    int
	ChargedAt time.Time // Input.Now of their admission; for another instant nothing is given back
}

// LiveKey is a key of a dynamic window that has used it within the last period.
type LiveKey struct {
	Gate   GateID
	LastAt int64
}

// nano is how many nanoseconds a microsecond has.
const nano = 1000

// never is later than every instant.
const never = int64(1)<<62 - 1

// clone copies the state, so that a change does not reach the one it came from.
func (r Rate) clone() Rate {
	r.At, r.Count = slices.Clone(r.At), slices.Clone(r.Count)
	return r
}

// current is the state at an instant: what lies further ahead than the kind
// allows, as the clock was set back or the limit was changed, is brought back, and
// what is over is forgotten.
func (r Rate) current(l *store.Limit, now int64) Rate {
	switch l.Kind {
	case store.LimitTokenBucket:
		r.TAT, r.LastAt = bucketOf(l).clamp(r.TAT, nano*now), min(r.LastAt, now)
		return r
	case store.LimitSemaphore:
		return r
	default:
		return windowOf(l).current(r, now)
	}
}

// free is how many starts the gate admits at an instant.
func (r Rate) free(l *store.Limit, most int, now int64) int {
	if l.Kind == store.LimitTokenBucket {
		return bucketOf(l).free(r.TAT, nano*now)
	}
	return windowOf(l).free(r, most, now)
}

// take charges starts at an instant. There may be fewer free.
func (r Rate) take(l *store.Limit, k int, now int64) Rate {
	if l.Kind == store.LimitTokenBucket {
		r.TAT, r.LastAt = bucketOf(l).take(r.TAT, k, nano*now), now
		return r
	}
	return windowOf(l).take(r, k, now)
}

// next is the first instant, not before now, at which k starts are free if none
// is charged meanwhile.
func (r Rate) next(l *store.Limit, most, k int, now int64) int64 {
	if l.Kind == store.LimitTokenBucket {
		return (bucketOf(l).next(r.TAT, k, nano*now) + nano - 1) / nano
	}
	return windowOf(l).next(r, most, k, now)
}

// refund gives back starts.
func (r Rate) refund(l *store.Limit, back Refund, now int64) Rate {
	if l.Kind == store.LimitTokenBucket {
		if micros(back.ChargedAt) == r.LastAt {
			r.TAT = bucketOf(l).refund(r.TAT, back.Weight, nano*now)
		}
		return r
	}
	return windowOf(l).refund(r, back.Weight, micros(back.ChargedAt))
}

func micros(t time.Time) int64 { return t.UnixMicro() }

func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }
