package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/storable"
)

// The checks of operators' requests for schedules. Stores call them before they
// read anything, so that all of them refuse the same; the errors wrap ErrInvalid
// and name the invalid value.

// CheckScheduleNames refuses names that no schedule can have and that not every
// engine can search for.
func CheckScheduleNames(names ...string) error {
	return invalid("schedules", nameFaults(names...))
}

// CheckScheduleHistory refuses a name as CheckScheduleNames does, and a limit
// below zero.
func CheckScheduleHistory(name string, limit int) error {
	faults := nameFaults(name)
	if limit < 0 {
		faults = append(faults, fmt.Errorf("limit %d: want 0 or more", limit))
	}
	return invalid("past of a schedule", faults)
}

// CheckScheduleChange refuses a name as CheckScheduleNames does, and an actor's
// name that the audit log cannot store.
func CheckScheduleChange(name, by string) error {
	faults := nameFaults(name)
	if err := checkActor(by); err != nil {
		faults = append(faults, err)
	}
	return invalid("change of a schedule", faults)
}

// CheckScheduleRun refuses what CheckScheduleChange does, and an id that no run
// can have.
func CheckScheduleRun(name string, id RunID, by string) error {
	if err := CheckScheduleChange(name, by); err != nil {
		return err
	}
	if err := checkID(id); err != nil {
		return invalid("run of a schedule", []error{err})
	}
	return nil
}

func nameFaults(names ...string) (faults []error) {
	for _, name := range names {
		if len(name) > MaxNameLength || !storable.IsText(name) {
			faults = append(faults, fmt.Errorf("schedule name %q: want at most %d bytes of text without NUL", storable.Clip(name, 150), MaxNameLength))
		}
	}
	return faults
}

// maxRuleText bounds a text of a rule or a plan, in bytes: what is wrong with it
// is repeated to a person.
const maxRuleText = 500

// checkTexts refuses texts that no rule and no window can have.
func (s *Schedule) checkTexts() error {
	texts := []string{s.Rule.Cron, s.Rule.Zone}
	for _, w := range s.Plan.Blackouts {
		texts = append(texts, w.Days, w.From, w.Until)
	}
	for _, text := range texts {
		if len(text) > maxRuleText || !storable.IsText(text) {
			return fmt.Errorf("rule with %q: want at most %d bytes of text without NUL", storable.Clip(text, 100), maxRuleText)
		}
	}
	return nil
}

// checkInstants refuses instants that a spec cannot hold: JSON knows years of
// four digits, and a store with one spec that it cannot read would list none.
func (s *Schedule) checkInstants() (faults []error) {
	for _, one := range []struct {
		name string
		at   time.Time
	}{{"anchor", s.Rule.Anchor}, {"start", s.Plan.Start}, {"end", s.Plan.End}, {"instant", s.Rule.Once}} {
		if _, err := one.at.MarshalJSON(); err != nil || !inYears(one.at) {
			faults = append(faults, fmt.Errorf("%s %v: want a year from 1970 to 9999, and an offset below a day", one.name, one.at))
		}
	}
	if !s.Rule.Anchor.IsZero() && s.Rule.Every == 0 {
		faults = append(faults, errors.New("From only anchors an interval: use StartAt to begin later"))
	}
	return faults
}
