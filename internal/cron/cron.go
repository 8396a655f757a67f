// Package cron answers when a schedule fires: at the wall-clock times of a
// cron expression in a time zone, at the multiples of an interval, or once;
// within a start and an end, outside blackouts. It knows no clock and stores
// nothing.
//
// It is the one place that knows the cron library, which only reads
// expressions: their fields are evaluated on wall time as if it were UTC, and
// the way from wall time to instants, with its gaps and overlaps, is this
// package's own (see docs/decisions/0016-wall-time.md).
package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

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

const example = `want five fields such as "0 3 * * 1-5" (03:00 on weekdays), six with seconds first, or @daily`

// Compile reads a spec. It refuses, with the reason and an example of a right
// one, what is malformed and what can never fire.
func Compile(spec Spec) (Rule, error) {
	zone, err := time.LoadLocation(spec.Zone)
	if err != nil || spec.Zone == "Local" {
		return Rule{}, fmt.Errorf(`time zone %q is not known: want an IANA name such as "Europe/Berlin"`, spec.Zone)
	}
	rule := Rule{spec: spec, zone: zone}
	var faults []error
	if err := rule.compileKind(); err != nil {
		faults = append(faults, err)
	}
	if !spec.Start.IsZero() && !spec.End.IsZero() && !spec.Start.Before(spec.End) {
		faults = append(faults, fmt.Errorf("it ends at %s, which is not after its start at %s",
			spec.End.UTC().Format(time.RFC3339), spec.Start.UTC().Format(time.RFC3339)))
	}
	for _, w := range spec.Blackouts {
		compiled, err := w.compile()
		if err != nil {
			faults = append(faults, err)
		}
		rule.blackouts = append(rule.blackouts, compiled)
	}
	if err := errors.Join(faults...); err != nil {
		return Rule{}, err
	}
	return rule, rule.checkFires()
}

// compileKind reads the part that the spec consists of.
func (r *Rule) compileKind() error {
	kinds := 0
	for _, given := range []bool{r.spec.Expression != "", r.spec.Every != 0, !r.spec.Once.IsZero()} {
		if given {
			kinds++
		}
	}
	switch {
	case kinds == 0:
		return errors.New("no rule: " + example + ", or an interval such as 30s")
	case kinds > 1:
		return errors.New("more than one of a cron expression, an interval and an instant are given: want one")
	case r.spec.Every != 0:
		return checkInterval(r.spec.Every)
	case !r.spec.Once.IsZero():
		if y := r.spec.Once.UTC().Year(); y < 1970 || y > lastYear {
			return fmt.Errorf("instant %v: want a year from 1970 to %d", r.spec.Once, lastYear)
		}
		return nil
	default:
		var err error
		r.wall, err = parse(r.spec.Expression, r.zone)
		return err
	}
}

func checkInterval(d time.Duration) error {
	if d < time.Second || d%time.Microsecond != 0 || d > 100*365*24*time.Hour {
		return fmt.Errorf("interval %v: want 1s to 100 years in whole microseconds, such as 30s", d)
	}
	return nil
}

// checkFires refuses a rule without any occurrence. One that is over, because
// its end has passed, is no fault: the program that states it is started again.
func (r *Rule) checkFires() error {
	from := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	if !r.spec.End.IsZero() && r.spec.End.Before(from) {
		from = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if !r.spec.Start.IsZero() {
		from = r.spec.Start.Add(-1)
	}
	if once := r.spec.Once; !once.IsZero() {
		from = once.Truncate(time.Microsecond).Add(r.spec.Shift - time.Microsecond)
	}
	if r.wall != nil && r.wall.next(from).IsZero() {
		return fmt.Errorf("cron %q never fires: %s", r.spec.Expression, example)
	}
	if r.Next(from).IsZero() {
		return errors.New("it never fires: its start, end and blackouts leave no occurrence; " +
			`a blackout such as {Days: "sat,sun"} leaves the other days`)
	}
	return nil
}

// lastYear is the last one whose instants every store, and JSON, can hold.
const lastYear = 9999

// blackoutSteps bounds how many blackouts in a row are passed over: ten years
// of one a day.
const blackoutSteps = 4000

// Next returns the first instant after t at which the rule fires, in UTC; the
// zero time if there is none. Its cost does not depend on how much later that
// is.
func (r Rule) Next(t time.Time) time.Time {
	if start := r.spec.Start; !start.IsZero() && t.Before(start) {
		t = start.Add(-1)
	}
	for range blackoutSteps {
		next := r.base(t.Add(-r.spec.Shift))
		if next.IsZero() {
			return time.Time{}
		}
		if next = next.Add(r.spec.Shift); next.Year() > lastYear {
			return time.Time{}
		}
		if end := r.spec.End; !end.IsZero() && !next.Before(end) {
			return time.Time{}
		}
		until := r.blackedOut(next)
		if until.IsZero() {
			return next.UTC()
		}
		t = until.Add(-time.Microsecond)
	}
	return time.Time{}
}

// base is Next without shift, bounds and blackouts.
func (r *Rule) base(t time.Time) time.Time {
	switch {
	case r.spec.Every > 0:
		var anchor int64
		if !r.spec.Anchor.IsZero() {
			anchor = r.spec.Anchor.UnixMicro()
		}
		since, step := floorMicro(t)-anchor, r.spec.Every.Microseconds()
		last := since - ((since%step)+step)%step
		return time.UnixMicro(anchor + last + step).UTC()
	case !r.spec.Once.IsZero():
		if once := r.spec.Once.Truncate(time.Microsecond); once.After(t) {
			return once
		}
		return time.Time{}
	default:
		return r.wall.next(t)
	}
}

// floorMicro is t in microseconds, rounded down also before 1970.
func floorMicro(t time.Time) int64 {
	return t.Unix()*1_000_000 + int64(t.Nanosecond())/1000
}

// Key identifies an occurrence among all of its rule: by its wall time where
// the rule names fixed times of day, so that a repeated hour has each of them
// once, and by its instant otherwise.
func (r Rule) Key(occurrence time.Time) string {
	if r.wall != nil && !r.wall.repeats {
		return occurrence.Add(-r.spec.Shift).In(r.zone).Format("2006-01-02T15:04:05")
	}
	return occurrence.UTC().Format(time.RFC3339Nano)
}

// Last returns the last occurrence that is not before since and not after now;
// the zero time if there is none.
func (r Rule) Last(since, now time.Time) time.Time {
	low, high := since.Add(-time.Microsecond), now // the instants that have an occurrence up to now behind them: low, not high
	within := func(t time.Time) bool { next := r.Next(t); return !next.IsZero() && !next.After(now) }
	if !within(low) {
		return time.Time{}
	}
	for high.Sub(low) > time.Microsecond {
		if middle := low.Add(high.Sub(low) / 2).Truncate(time.Microsecond); middle.After(low) && within(middle) {
			low = middle
		} else if middle.After(low) {
			high = middle
		} else {
			break
		}
	}
	return r.Next(low)
}

// Recent returns the last n occurrences that are not before since and not
// after now, oldest first.
func (r Rule) Recent(since, now time.Time, n int) []time.Time {
	for back := time.Second; ; back *= 2 {
		from := now.Add(-back)
		whole := back > 200*365*24*time.Hour/2 || !from.After(since)
		if whole {
			from = since
		}
		found := r.last(from, now, n)
		if len(found) == n || whole {
			return found
		}
	}
}

// last walks from an instant to now and keeps the last n.
func (r *Rule) last(from, now time.Time, n int) []time.Time {
	var found []time.Time
	for t := r.Next(from.Add(-time.Microsecond)); !t.IsZero() && !t.After(now); t = r.Next(t) {
		if found = append(found, t); len(found) > 2*n {
			found = append(found[:0], found[len(found)-n:]...)
		}
	}
	return found[max(len(found)-n, 0):]
}

// firstFields are the fields of an expression that count hours, minutes and
// seconds.
func firstFields(expression string) []string {
	fields := strings.Fields(expression)
	if len(fields) == 6 {
		return fields[:3]
	}
	return fields[:min(len(fields), 2)]
}
