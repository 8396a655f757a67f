package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store/backend"
)

// The codes of {"error":{"code":…}}.
const (
	codeUsage       = "usage"
	codeConfig      = "config"
	codeInvalid     = "invalid"
	codeNotFound    = "not_found"
	codeConflict    = "conflict"
	codeUnknownJob  = "unknown_job"
	codeNotMigrated = "not_migrated"
	codeUnreachable = "unreachable"
	codeInterrupted = "interrupted"
	codeFailed      = "failed"
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
var errNotMigrated = errors.New("the database is not ready for this program")

// errUnhealthy is a worker that does not answer as one that is well does.
var errUnhealthy = errors.New("the worker is not well")

func codeOf(err error) string {
	if _, ok := errors.AsType[*usageError](err); ok {
		return codeUsage
	}
	if _, ok := errors.AsType[*configError](err); ok {
		return codeConfig
	}
	switch {
	case errors.Is(err, durable.ErrInvalid), errors.Is(err, lock.ErrInvalid):
		return codeInvalid
	case errors.Is(err, durable.ErrNotFound):
		return codeNotFound
	case errors.Is(err, durable.ErrConflict):
		return codeConflict
	case errors.Is(err, durable.ErrUnknownJob):
		return codeUnknownJob
	case errors.Is(err, errNotMigrated):
		return codeNotMigrated
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return codeInterrupted
	case backend.Transient(err):
		return codeUnreachable
	default:
		return codeFailed
	}
}

// complain tells the person, or the program that asked for JSON, what is wrong.
func (p *program) complain(err error) {
	if _, told := errors.AsType[*loggedError](err); told {
		return
	}
	if p.wantsJSON() {
		body := map[string]any{"error": map[string]string{"code": codeOf(err), "message": err.Error()}}
		_ = newEncoder(p.stderr).Encode(body) // nobody is left to tell
		return
	}
	fmt.Fprintf(p.stderr, "%s: %s\n", p.name, printableLines(err.Error()))
	if code := codeOf(err); code == codeUsage {
		fmt.Fprintf(p.stderr, "Run %q for usage.\n", p.path+" --help")
	}
}

// wantsJSON looks at the arguments themselves, because they may not have been
// understood.
func (p *program) wantsJSON() bool {
	args := p.args
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}
