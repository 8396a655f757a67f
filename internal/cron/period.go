package cron

import "time"

// widest is more than any zone was ever away from UTC.
const widest = 16 * time.Hour

// period is a stretch of time in which a zone keeps its offset, as far as is
// known: the next period may have the same one.
type period struct {
	start, end time.Time // the zero time: no bound; end is excluded
	offset     time.Duration
}

// periodAt returns the period that an instant lies in. Everything that goes
// through a zone's periods goes by it, since its end is always after t:
// ZoneBounds says otherwise on December 31 of a leap year, where the zone's data
// are a rule (https://go.dev/issue/81583). Such a rule's offset holds until the
// year ends in UTC.
func periodAt(t time.Time, zone *time.Location) period {
	local := t.In(zone)
	p := period{offset: offsetOf(t, zone)}
	start, end := local.ZoneBounds()
	if !start.IsZero() {
		p.start = start.UTC()
	}
	switch {
	case end.IsZero():
	case end.After(t):
		p.end = end.UTC()
	default:
		p.end = time.Date(t.UTC().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return p
}

// holds reports whether an instant lies before the end of the period.
func (p *period) holds(t time.Time) bool { return p.end.IsZero() || t.Before(p.end) }

func offsetOf(t time.Time, zone *time.Location) time.Duration {
	_, offset := t.In(zone).Zone()
	return time.Duration(offset) * time.Second
}

// wallOf is the wall time of an instant, written as if it were UTC.
func wallOf(t time.Time, zone *time.Location) time.Time { return t.UTC().Add(offsetOf(t, zone)) }
