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
	"context"
	"errors"
	"fmt"
	"time"
)

// Compile reads a spec. It refuses, with the reason and an example of a right
// one, what is malformed and what can never fire.
func Compile(spec Spec) (Rule, error) {
	zone, err := time.LoadLocation(spec.Zone)
	if err != nil || spec.Zone == "Local" {
		return Rule{}, fmt.Errorf(`time zone %q is not known: want an IANA name such as "Europe/Berlin"`, spec.Zone)
	}
	return compileIn(spec, zone)
}

// compileIn is Compile with the zone's data.
func compileIn(spec Spec, zone *time.Location) (Rule, error) {
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
		r.wall, err = parse(r.spec.Expression)
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
	search := r.Search(context.Background())
	if search.begin(); r.wall != nil && search.base(from).IsZero() {
		return fmt.Errorf("cron %q never fires: %s", r.spec.Expression, example)
	}
	if search.Next(from).IsZero() {
		return errors.New("it never fires: its start, end and blackouts leave no occurrence; " +
			`a blackout such as {Days: "sat,sun"} leaves the other days`)
	}
	return nil
}
