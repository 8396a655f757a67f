package cron

import "time"

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

// nextNamed returns the first instant after t of a rule that names times of day;
// the zero time if there is none.
func (s *Search) nextNamed(t time.Time) time.Time {
	for wall := wallOf(t, s.zone); s.step(); {
		if wall = s.wall.fields.Next(wall); wall.IsZero() {
			return time.Time{}
		}
		if instant := s.instantOf(wall, s.zone); instant.After(t) {
			return instant
		}
	}
	return time.Time{}
}

// nextMatch finds the first instant after t whose wall time matches.
func (s *Search) nextMatch(t time.Time) time.Time {
	for limit := t.AddDate(searchYears+1, 0, 0); t.Before(limit) && s.step(); {
		p := periodAt(t, s.zone)
		wall := s.wall.fields.Next(t.UTC().Add(p.offset))
		if wall.IsZero() {
			return time.Time{}
		}
		if instant := wall.Add(-p.offset); p.holds(instant) {
			return instant
		}
		if far := wall.Add(-widest - time.Second); p.end.Sub(t) > 2*widest && far.After(p.end) {
			t = far // in no period is the match sooner, and what has been on the wall by now will not come back
			continue
		}
		if s.wall.matches(wallOf(p.end, s.zone)) { // the first instant of the next period
			return p.end
		}
		t = p.end
	}
	return time.Time{}
}

// instantOf is the first instant that has a wall time, or the first one after
// the gap that swallowed it.
func (s *Search) instantOf(wall time.Time, zone *time.Location) time.Time {
	for t := wall.Add(-widest); s.step(); {
		p := periodAt(t, zone)
		instant := wall.Add(-p.offset)
		if !p.start.IsZero() && instant.Before(p.start) {
			return p.start
		}
		if p.holds(instant) {
			return instant
		}
		t = p.end
	}
	return time.Time{}
}

// blackedOut returns until when an instant and all after it lie in a blackout,
// as far as is known: the next instant may lie in one too. The zero time: it
// lies in none.
//
// An instant lies in one when the clock on the wall then shows a time within it.
// When the clock is set back out of a blackout, the blackout is interrupted.
func (s *Search) blackedOut(t time.Time) time.Time {
	if len(s.blackouts) == 0 {
		return time.Time{}
	}
	wall := wallOf(t, s.zone)
	for i := range s.blackouts {
		from, end, inside := s.blackouts[i].around(wall)
		if !inside {
			continue
		}
		p := periodAt(t, s.zone)
		if until := t.UTC().Add(end.Sub(wall)); p.holds(until) {
			return until
		}
		// Of a long one, all is in it that no zone can show as before or after it.
		if far := end.Add(-widest); p.end.After(from.Add(widest)) && far.After(p.end) {
			return far
		}
		return p.end
	}
	return time.Time{}
}
