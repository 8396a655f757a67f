package durablecmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// The codes of {"error":{"code":…}} that only a program has; the others are
// operate's.
const (
	codeUsage    operate.Code = "usage"
	codeConfig   operate.Code = "config"
	codeTimedOut operate.Code = "timed_out"
)

// usageError is a command line that makes no sense.
type usageError struct {
	err error
}

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// errNotMigrated is a database whose schema this program cannot work with.
var errNotMigrated = errors.New("the database schema is not compatible")

// noFileError is an errNotMigrated: the database is a file that is not there.
type noFileError struct {
	err  error
	name string // of the program, for advice
}

func (e *noFileError) Error() string {
	return fmt.Sprintf("%v: `%s migrate up` creates it, and so does a worker when it starts; or set %s", e.err, e.name, varDatabaseURL)
}

func (e *noFileError) Unwrap() []error { return []error{e.err, errNotMigrated} }

// errUnhealthy is a worker that gives no answer, or not a good one.
var errUnhealthy = errors.New("worker is unhealthy")

// errTimedOut is a run that has not ended in time.
var errTimedOut = errors.New("timed out")

func codeOf(err error) operate.Code {
	if _, ok := errors.AsType[*usageError](err); ok {
		return codeUsage
	}
	if _, ok := errors.AsType[*configError](err); ok {
		return codeConfig
	}
	switch {
	case errors.Is(err, errNotMigrated):
		return operate.NotMigrated
	case errors.Is(err, errInterrupted):
		return operate.Interrupted
	case errors.Is(err, errTimedOut):
		return codeTimedOut
	default:
		return operate.CodeOf(err, backend.Transient)
	}
}

// complain reports the person, or the program that asked for JSON, what is wrong.
func (p *program) complain(err error) {
	if _, logged := errors.AsType[*loggedError](err); logged {
		return
	}
	failed := operate.FailureOf(err, codeOf(err))
	failed.Error.Message = unprefixed(failed.Error.Message)
	if p.wantsJSON() {
		_ = newEncoder(p.errors()).Encode(failed) // there is no other place to report it
		return
	}
	fmt.Fprintf(p.errors(), "%s: %s\n", p.name, printableLines(failed.Error.Message))
	if code := codeOf(err); code == codeUsage {
		fmt.Fprintf(p.errors(), "Run %q for usage.\n", p.path+" --help")
	}
}

// unprefixed is the text of an error without the package's name, which means
// nothing at a terminal.
func unprefixed(text string) string {
	for _, sentinel := range []error{store.ErrNotFound, store.ErrUnknownJob, store.ErrUnknownLimit, store.ErrInvalid, store.ErrConflict} {
		text = strings.ReplaceAll(text, sentinel.Error(), strings.TrimPrefix(sentinel.Error(), "durable: "))
	}
	return strings.TrimRight(text, "\n")
}

// wantsJSON examines the arguments themselves, because they may not have been
// understood.
func (p *program) wantsJSON() bool {
	args := p.args
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}
