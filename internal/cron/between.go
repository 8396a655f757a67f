package cron

import "time"

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
