package cron

import "time"

// Spec says when a schedule fires. Exactly one of Expression, Every and Once is
// given.
type Spec struct {
	Expression string        // 5 or 6 fields, or a word such as @daily
	Zone       string        // IANA name, "" is UTC; of Expression and of Blackouts
	Every      time.Duration // an interval
	Anchor     time.Time     // Every fires at whole intervals from here; the zero time: from 1970
	Once       time.Time     // a single instant
	Start      time.Time     // nothing before; the zero time: no bound
	End        time.Time     // nothing at or after; the zero time: no bound
	Blackouts  []Window      // nothing within
	Shift      time.Duration // every instant is so much later; blackouts and bounds hold for the shifted one
}

// Rule answers when a schedule fires. Make it with Compile.
type Rule struct {
	spec      Spec
	wall      *wallClock // of Expression
	zone      *time.Location
	blackouts []window
}

// lastYear is the last one whose instants every store, and JSON, can hold.
const lastYear = 9999

// Key identifies an occurrence among all of its rule: by its wall time where
// the rule names fixed times of day, so that a repeated hour has each of them
// once, and by its instant otherwise.
func (r Rule) Key(occurrence time.Time) string {
	if r.wall != nil && !r.wall.repeats {
		return occurrence.Add(-r.spec.Shift).In(r.zone).Format("2006-01-02T15:04:05")
	}
	return occurrence.UTC().Format(time.RFC3339Nano)
}

// Named is the instant that the rule names for an occurrence, which Shift moves, in
// the rule's zone.
func (r Rule) Named(occurrence time.Time) time.Time {
	return occurrence.Add(-r.spec.Shift).In(r.zone)
}
