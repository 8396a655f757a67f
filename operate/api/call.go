package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"

	"github.com/durable-worker/durable-worker/internal/wire"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/store"
)

// Config is what an API needs beside its Operator. Auth must be given.
type Config struct {
	// Auth says who makes a request.
	Auth access.Auth
	// Hosts are the names under which the API answers; see access.Config.
	Hosts []string
	// Args is the least role that sees args, results and checkpoints. Default:
	// access.Operator. Others see how many bytes they have, and cannot search in args.
	Args access.Role
	// Texts is the least role that sees what handlers have written: errors, stacks, log
	// lines and notes of progress. Default: access.Viewer. Others cannot search in errors.
	Texts access.Role
	// Logger logs refusals, and errors whose text clients do not get. Default: none.
	Logger *slog.Logger
}

// api answers requests that have passed access.Handler.
type api struct {
	Config

	operator *operate.Operator
	mux      *http.ServeMux
	waits    chan struct{}
}

// route is one operation.
type route struct {
	pattern string
	params  []string // of the query
	handle  func(*call) (answer, error)
}

// call is one request.
type call struct {
	*api
	*wire.Params

	w       http.ResponseWriter
	r       *http.Request
	lasting context.Context //nolint:containedctx // of the connection; that of r ends after answerWithin
	who     access.Who
	op      *operate.Actor
}

// answer is what a request gets. Without a status it is 200; without a body there is
// nothing left to write.
type answer struct {
	status int
	header map[string]string
	body   any
}

func ok(body any) answer { return answer{status: http.StatusOK, body: body} }

// statusError is an error whose status differs from that of its code.
type statusError struct {
	error

	status int
}

func (e *statusError) Unwrap() error { return e.error }

func with(status int, err error) error {
	if err == nil {
		return nil
	}
	return &statusError{err, status}
}

// body reads the body, and reports what is wrong with it and with the parameters
// together.
func (c *call) body(into any) error {
	err := wire.Body(c.r.Body, into)
	if err == nil {
		return c.Err()
	}
	faults, inBody := errors.AsType[wire.FaultsError](err)
	others, inQuery := errors.AsType[wire.FaultsError](c.Err())
	if inBody && inQuery {
		return slices.Concat(others, faults)
	}
	return err
}

// run is the run that the path names.
func (c *call) run() (store.RunID, error) {
	id, err := store.ParseRunID(c.r.PathValue("id"))
	if err != nil {
		return id, wire.InQuery("id", "the path must have the id of a run, a UUID such as 0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e")
	}
	return id, c.Err()
}
