package wire

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// Problem is a refusal as RFC 9457 has it, with the code that the commands print.
type Problem struct {
	Title  string       `json:"title"` // of the status
	Status int          `json:"status"`
	Code   operate.Code `json:"code"`
	Detail string       `json:"detail"`
	Role   string       `json:"role,omitempty"`   // that is needed
	Errors FaultsError  `json:"errors,omitempty"` // all that is wrong with the request
}

// NewProblem is a problem of a status.
func NewProblem(status int, code operate.Code, detail string) Problem {
	return Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

// ProblemOf is the problem that an error is, under the code of the Operator. What may
// have come from a database is for the log: of such errors the problem says only the
// kind.
func ProblemOf(err error, code operate.Code) Problem {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		p := NewProblem(http.StatusRequestEntityTooLarge, operate.Invalid, "The body is too large.")
		p.Errors = InBody("", "want at most %d bytes", large.Limit)
		return p
	}
	switch code {
	case operate.Invalid:
		p := NewProblem(http.StatusBadRequest, code, "The request is not valid.")
		p.Errors = FaultsOf(err)
		return p
	case operate.NotFound:
		return NewProblem(http.StatusNotFound, code, Plain(err))
	case operate.Conflict:
		return NewProblem(http.StatusConflict, code, Plain(err))
	case operate.UnknownJob, operate.UnknownLimit:
		return NewProblem(http.StatusUnprocessableEntity, code, Plain(err))
	case operate.Forbidden:
		return NewProblem(http.StatusForbidden, code, Plain(err))
	case operate.Busy:
		return NewProblem(http.StatusServiceUnavailable, code, Plain(err))
	case operate.NotMigrated:
		return NewProblem(http.StatusServiceUnavailable, code, "The schema of the database does not fit this program: migrate, or upgrade the program.")
	case operate.Unreachable, operate.Interrupted:
		return NewProblem(http.StatusServiceUnavailable, code, "The database does not answer. Try again later.")
	default:
		return NewProblem(http.StatusInternalServerError, operate.Failed, "The program has failed to answer. Its log says why.")
	}
}

// Plain is the text of an error without the name of the package.
func Plain(err error) string {
	text := err.Error()
	for _, sentinel := range []error{store.ErrNotFound, store.ErrUnknownJob, store.ErrUnknownLimit, store.ErrInvalid, store.ErrConflict, lock.ErrInvalid} {
		text = strings.ReplaceAll(text, sentinel.Error(), strings.TrimPrefix(sentinel.Error(), "durable: "))
	}
	return strings.TrimRight(text, "\n")
}

// ofRun matches the fault of one of several runs.
var ofRun = regexp.MustCompile(`^run (\d+): `)

// FaultsOf are the faults that an error lists, one a line.
func FaultsOf(err error) (all FaultsError) {
	if faults, ok := errors.AsType[FaultsError](err); ok {
		return faults
	}
	text := strings.TrimPrefix(strings.TrimPrefix(Plain(err), "enqueue: "), "invalid: ")
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		fault := Fault{Detail: line}
		if m := ofRun.FindStringSubmatch(line); m != nil {
			fault = Fault{Pointer: "/runs/" + m[1], Detail: line[len(m[0]):]}
		}
		all.add(fault)
	}
	return all
}

// Write answers with the problem.
func (p Problem) Write(w http.ResponseWriter) {
	if p.Status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", "2")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may have gone
}
