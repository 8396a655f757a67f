package store

import (
	"fmt"
	"strings"
	"time"
)

// SetAside is one thing that a call of the store could not change and left as
// it was, so that the call went on with all others.
type SetAside struct {
	Kind  string        // what it is: run, lease, schedule, job
	Name  string        // its id, or its name
	Again time.Duration // until the store tries again; each time it fails the pause grows
	Err   error
}

// SetAsideError says that a call has done what was requested, except for some things.
type SetAsideError struct {
	SetAside []SetAside
}

// Again is how long it is until the first of them is tried again.
func (e *SetAsideError) Again() time.Duration {
	first := time.Duration(0)
	for _, one := range e.SetAside {
		if first == 0 || one.Again < first {
			first = one.Again
		}
	}
	return first
}

// Error names the first few.
func (e *SetAsideError) Error() string {
	var names []string
	for _, one := range e.SetAside[:min(len(e.SetAside), 3)] {
		names = append(names, fmt.Sprintf("%s %s: %v", one.Kind, one.Name, one.Err))
	}
	return fmt.Sprintf("%d refused by the store: %s", len(e.SetAside), strings.Join(names, "; "))
}
