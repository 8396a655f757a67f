package cron

import (
	"context"
	"fmt"
	"time"
)

// Search finds when a rule fires, in a bounded number of steps for each
// occurrence. Once one took more, or the context has ended, it finds nothing any
// more, and Err says why: before you take "nothing" for "never again", check
// Err. It is not for concurrent use.
type Search struct {
	Rule
	ctx   context.Context
	steps int // left for this occurrence
	err   error
}

// searchSteps bounds the steps to one occurrence. The longest known way is a
// clock that is set back by a whole day, with a rule that names each second of
// it.
const searchSteps = 100_000

// blackoutSteps is what a blackout that is skipped counts: of 4000 in a row,
// ten years of one a day, nothing more is expected.
const blackoutSteps = searchSteps / 4000

// heedEvery is after how many steps the context is checked.
const heedEvery = 256

// errSteps says that a search took too many steps.
var errSteps = fmt.Errorf("no next occurrence is found within %d steps", searchSteps)

// Search begins to evaluate the rule.
func (r Rule) Search(ctx context.Context) *Search { return &Search{Rule: r, ctx: ctx} }

// Err says why nothing more is found, or nil.
func (s *Search) Err() error { return s.err }

// begin starts the way to one occurrence.
func (s *Search) begin() {
	s.steps = searchSteps
	s.heed()
}

// step takes one step; false: it may not, and Err says why.
func (s *Search) step() bool {
	if s.steps--; s.steps <= 0 {
		s.fail(errSteps)
	} else if s.steps%heedEvery == 0 {
		s.heed()
	}
	return s.err == nil
}

func (s *Search) heed() {
	if s.ctx.Err() != nil {
		s.fail(context.Cause(s.ctx))
	}
}

func (s *Search) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// Next returns the first instant after t at which the rule fires, in UTC; the
// zero time if there is none. It does not depend on the t from which it is
// found, and its cost not on how much later it is.
func (s *Search) Next(t time.Time) time.Time {
	s.begin()
	if start := s.spec.Start; !start.IsZero() && t.Before(start) {
		t = start.Add(-1)
	}
	for s.step() {
		next := s.base(t.Add(-s.spec.Shift))
		if next.IsZero() || s.err != nil {
			return time.Time{}
		}
		if next = next.Add(s.spec.Shift); next.Year() > lastYear {
			return time.Time{}
		}
		if end := s.spec.End; !end.IsZero() && !next.Before(end) {
			return time.Time{}
		}
		until := s.blackedOut(next)
		if until.IsZero() {
			return next.UTC()
		}
		t = until.Add(-time.Microsecond)
		s.steps -= blackoutSteps
	}
	return time.Time{}
}

// base is Next without shift, bounds and blackouts.
func (s *Search) base(t time.Time) time.Time {
	switch {
	case s.spec.Every > 0:
		var anchor int64
		if !s.spec.Anchor.IsZero() {
			anchor = s.spec.Anchor.UnixMicro()
		}
		since, step := floorMicro(t)-anchor, s.spec.Every.Microseconds()
		last := since - ((since%step)+step)%step
		return time.UnixMicro(anchor + last + step).UTC()
	case !s.spec.Once.IsZero():
		if once := s.spec.Once.Truncate(time.Microsecond); once.After(t) {
			return once
		}
		return time.Time{}
	case s.wall.repeats:
		return s.nextMatch(t)
	default:
		return s.nextNamed(t)
	}
}

// floorMicro is t in microseconds, rounded down also before 1970.
func floorMicro(t time.Time) int64 {
	return t.Unix()*1_000_000 + int64(t.Nanosecond())/1000
}

// Last returns the last occurrence that is not before since and not after now;
// the zero time if there is none.
func (s *Search) Last(since, now time.Time) time.Time {
	low, high := since.Add(-time.Microsecond), now // the instants that have an occurrence up to now behind them: low, not high
	within := func(t time.Time) bool { next := s.Next(t); return !next.IsZero() && !next.After(now) }
	if !within(low) {
		return time.Time{}
	}
	for high.Sub(low) > time.Microsecond { // halved each time: at most 63 times
		if middle := low.Add(high.Sub(low) / 2).Truncate(time.Microsecond); middle.After(low) && within(middle) {
			low = middle
		} else if middle.After(low) {
			high = middle
		} else {
			break
		}
	}
	return s.Next(low)
}

// recentTries bounds from how many instants Recent tries: 33 farther and farther
// back, and as many halves as there are in 292 years.
const recentTries = 128

// Recent returns the last n occurrences that are not before since and not
// after now, oldest first. It searches for an instant from which on there are n
// of them, and not many more: first farther and farther back, then by halves
// between one that has too many and one that has too few.
func (s *Search) Recent(since, now time.Time, n int) []time.Time {
	since = since.Truncate(time.Microsecond)
	var many time.Time // too many from here on; the zero time: not known
	few := now.Truncate(time.Microsecond).Add(time.Microsecond)
	var from time.Time
	back := time.Second
	for range recentTries {
		switch {
		case !many.IsZero():
			from = many.Add(few.Sub(many) / 2).Truncate(time.Microsecond)
		case back > century || now.Add(-back).Before(since):
			from = since
		default:
			from, back = now.Add(-back).Truncate(time.Microsecond), 2*back
		}
		found := s.some(from, now, 2*n)
		switch {
		case s.err != nil:
			return nil
		case len(found) > 2*n:
			many = from
		case len(found) >= n || !from.After(since):
			return found[max(len(found)-n, 0):]
		default:
			few = from
		}
	}
	s.fail(errSteps)
	return nil
}

const century = 100 * 365 * 24 * time.Hour

// some lists the occurrences from an instant to now; one more than most when
// there are more.
func (s *Search) some(from, now time.Time, most int) (found []time.Time) {
	for t := s.Next(from.Add(-time.Microsecond)); !t.IsZero() && !t.After(now) && len(found) <= most; t = s.Next(t) {
		found = append(found, t)
	}
	return found
}

// Preview lists the first n occurrences after an instant.
func (s *Search) Preview(after time.Time, n int) (found []time.Time, err error) {
	for t := s.Next(after); !t.IsZero() && len(found) < n; t = s.Next(t) {
		found = append(found, t)
	}
	return found, s.err
}
