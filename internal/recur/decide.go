package recur

import (
	"time"

	"github.com/durable-worker/durable-worker/internal/cron"
	"github.com/durable-worker/durable-worker/store"
)

// lateness is how late an occurrence may be materialized before it counts as
// missed.
const lateness = time.Minute

// decide says what happens to a schedule that is due at now, or not planned
// yet. It is pure but for the ids of the runs. It counts only if the search has
// not been given up.
func decide(rule *cron.Search, now time.Time, s *store.Schedule) store.Decision {
	if s.NextAt.IsZero() {
		s.NextAt = rule.Next(plannedFrom(s, now))
		if s.NextAt.IsZero() || s.NextAt.After(now) {
			return store.Decision{NextAt: s.NextAt}
		}
	}
	var d store.Decision
	first := s.NextAt
	if missed(s, now) {
		last := now.Add(-lateness - time.Microsecond) // later ones are on time
		first = firstToCatchUp(s, rule, last, now)
		skipMissed(&d, rule, s.NextAt, first, last)
		if first.IsZero() {
			first = rule.Next(last)
		}
	}
	overlap, unfinished, most := s.OverlapPolicy(), s.Unfinished, max(store.MaxCatchUp/cost(s), 1)
	for at := first; ; at = rule.Next(at) {
		switch {
		case at.IsZero() || at.After(now) || len(d.Occurrences) == most:
			d.NextAt = at
			return d
		case overlap == store.OverlapWait && s.Plan.Full(unfinished):
			d.NextAt, d.Waiting = at, nextWait(s, len(d.Occurrences) > 0)
			return d
		case overlap == store.OverlapSkip && s.Plan.Full(unfinished):
			skipRest(&d, rule, at, now)
			return d
		default:
			key := rule.Key(at)
			due := at.Add(cron.Share(time.Duration(s.Plan.Jitter), s.Name+" "+key))
			d.Occurrences = append(d.Occurrences, store.Occurrence{Key: key, At: rule.Named(at), Run: s.RunAt(due)})
			unfinished++
		}
	}
}

// plannedFrom is the instant after which the occurrences of a schedule without a
// plan count: when it was created, changed or resumed.
func plannedFrom(s *store.Schedule, now time.Time) time.Time {
	if s.EvaluateAt.IsZero() || s.EvaluateAt.After(now) {
		return now
	}
	return s.EvaluateAt
}

// missed reports whether no worker was running when the schedule was due, so that
// at least its next occurrence was missed. One that waits was evaluated again and
// again, and is not late because of it.
func missed(s *store.Schedule, now time.Time) bool {
	since := s.NextAt
	if s.Waiting > 0 {
		since = s.EvaluateAt
	}
	return now.Sub(since) > lateness
}

// firstToCatchUp is the first occurrence that becomes a run although it was missed,
// as all up to an instant were; the zero time: none does.
func firstToCatchUp(s *store.Schedule, rule *cron.Search, until, now time.Time) time.Time {
	since := s.NextAt
	if within := time.Duration(s.Plan.CatchUpWithin); within > 0 && now.Add(-within).After(since) {
		since = now.Add(-within)
	}
	if since.After(until) {
		return time.Time{}
	}
	// Where another machine's zone data have planned it, the calendar may not
	// hold the instant at which the schedule is.
	var otherwise time.Time
	if since.Equal(s.NextAt) {
		otherwise = s.NextAt
	}
	switch s.CatchUpPolicy() {
	case store.CatchUpLatest:
		if givesWay(s, rule, until, now) {
			return time.Time{}
		}
		if last := rule.Last(since, until); !last.IsZero() {
			return last
		}
		return otherwise
	case store.CatchUpAll:
		most := s.Plan.CatchUpMost
		if most == 0 {
			most = store.MaxCatchUp
		}
		if recent := rule.Recent(since, until, most); len(recent) > 0 {
			return recent[0]
		}
		return otherwise
	}
	return time.Time{}
}

// givesWay reports whether the run of a missed occurrence would have one after it
// skipped that is on time: the missed one is then left out.
func givesWay(s *store.Schedule, rule *cron.Search, until, now time.Time) bool {
	room := max(s.Plan.MaxUnfinished, 1) - s.Unfinished
	if s.OverlapPolicy() != store.OverlapSkip || room <= 0 {
		return false
	}
	onTime := rule.Recent(until.Add(time.Microsecond), now, room)
	return len(onTime) == room
}

// skipMissed records what lies from an occurrence on and before the first one
// that is caught up; without one, up to an instant.
func skipMissed(d *store.Decision, rule *cron.Search, from, first, until time.Time) {
	if !first.IsZero() {
		until = first.Add(-time.Microsecond)
	}
	if until.Before(from) {
		return
	}
	last := rule.Last(from, until)
	if last.IsZero() {
		last = from
	}
	d.Skips = append(d.Skips, store.Skip{Reason: store.SkipMissed, First: from, Last: last})
}

// skipRest records an occurrence and all after it up to now: until then no run
// ends. There may be a million, where what has waited for weeks waits no more.
func skipRest(d *store.Decision, rule *cron.Search, at, now time.Time) {
	last := rule.Last(at, now)
	if last.IsZero() { // planned by another machine's zone data
		last = at
	}
	d.Skips = append(d.Skips, store.Skip{Reason: store.SkipOverlap, First: at, Last: last})
	d.NextAt = rule.Next(now)
}

// The first pause between two evaluations of a schedule that waits, and the longest.
const (
	ShortestWait = 25 * time.Millisecond
	longestWait  = time.Second
)

// nextWait is how long to pause before checking again whether the earlier run has
// ended: soon when it has just been created, then twice as long each time, so that
// the wait is longer by no more than the run itself took.
func nextWait(s *store.Schedule, begun bool) time.Duration {
	if begun || s.Waiting == 0 {
		return ShortestWait
	}
	return min(2*s.Waiting, longestWait)
}
