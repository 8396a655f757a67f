package rules

import "errors"

// ErrNoneAdvanced says that the database has refused the decision of each schedule.
var ErrNoneAdvanced = errors.New("no schedule can be advanced")

// OwnFault reports whether schedules whose decisions were refused, each tried alone, are
// themselves to blame: another one was taken, or the only one has values that are refused.
func OwnFault(taken, refused int, values bool) bool {
	return taken > 0 || refused == 1 && values
}
