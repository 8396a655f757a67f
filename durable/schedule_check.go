package durable

import "fmt"

// The checks of what operators ask of schedules. Stores call them before they
// look anything up, so that all of them refuse the same; the errors wrap
// ErrInvalid and name the offender.

// CheckScheduleNames refuses names that no schedule can have and that not every
// engine can be asked for.
func CheckScheduleNames(names ...string) error {
	return invalid("schedules", nameFaults(names...))
}

// CheckSchedulePast refuses a name as CheckScheduleNames does, and a limit
// below zero.
func CheckSchedulePast(name string, limit int) error {
	faults := nameFaults(name)
	if limit < 0 {
		faults = append(faults, fmt.Errorf("limit %d: want 0 or more", limit))
	}
	return invalid("past of a schedule", faults)
}

// CheckScheduleChange refuses a name as CheckScheduleNames does, and a name of
// who asks that the audit cannot keep.
func CheckScheduleChange(name, by string) error {
	faults := nameFaults(name)
	if err := checkActor(by); err != nil {
		faults = append(faults, err)
	}
	return invalid("change of a schedule", faults)
}

func nameFaults(names ...string) (faults []error) {
	for _, name := range names {
		if len(name) > MaxNameLength || !isText(name) {
			faults = append(faults, fmt.Errorf("schedule name %q: want at most %d bytes of text without NUL", clip(name, 150), MaxNameLength))
		}
	}
	return faults
}
