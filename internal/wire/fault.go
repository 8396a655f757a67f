package wire

import (
	"fmt"
	"strings"

	"github.com/durable-worker/durable-worker/store"
)

// Fault is one thing that is wrong with a request.
type Fault struct {
	Pointer   string `json:"pointer,omitempty"`   // to a part of the body (RFC 6901)
	Parameter string `json:"parameter,omitempty"` // of the query
	Detail    string `json:"detail"`
}

// FaultsError is all that is wrong with a request. It is an error of the kind
// store.ErrInvalid.
type FaultsError []Fault

// mostFaults bounds the faults that an answer names.
const mostFaults = 20

// Error lists the faults.
func (f FaultsError) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = strings.TrimPrefix(strings.TrimLeft(fault.Pointer+" "+fault.Parameter, " ")+": "+fault.Detail, ": ")
		lines[i] = strings.Replace(lines[i], " : ", ": ", 1)
	}
	return strings.Join(lines, "\n")
}

// Is reports that faults make a request invalid.
func (f FaultsError) Is(target error) bool { return target == store.ErrInvalid }

// add records a fault.
func (f *FaultsError) add(fault Fault) {
	if len(*f) < mostFaults {
		*f = append(*f, fault)
	}
}

// err is the faults as an error; nil: there are none.
func (f FaultsError) err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// InBody is a fault of a part of the body.
func InBody(pointer, format string, args ...any) FaultsError {
	return FaultsError{{Pointer: pointer, Detail: fmt.Sprintf(format, args...)}}
}

// InQuery is a fault of a parameter of the query.
func InQuery(parameter, format string, args ...any) FaultsError {
	return FaultsError{{Parameter: parameter, Detail: fmt.Sprintf(format, args...)}}
}
