package store

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/internal/storable"
)

// Sessions keeps which sessions of people at the API and the pages have ended.
type Sessions interface {
	// EndSession records in the audit log that a session has ended: a change of kind
	// KindSession, with the session's id as its subject. A session with such a change has
	// ended. A repeat adds nothing.
	EndSession(ctx context.Context, session, by string) error
}

// KindSession is the kind of a Change that says that a session has ended.
const KindSession = "session"

// CheckSessionEnd reports what is wrong with the end of a session, wrapped in ErrInvalid.
// Stores call it before they change anything.
func CheckSessionEnd(session, by string) error {
	var faults []error
	if session == "" || len(session) > MaxNameLength || !storable.IsText(session) || storable.HasControl(session) {
		faults = append(faults, fmt.Errorf("session %q: want its id, 1 to %d bytes of text", storable.Clip(session, 50), MaxNameLength))
	}
	if err := checkActor(by); err != nil {
		faults = append(faults, err)
	}
	return invalid("end of a session", faults)
}
