package api

import (
	_ "embed" // the description
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

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
	// access.Operator. Others see how many bytes they have.
	Args access.Role
	// Logger logs refusals, and errors whose text clients do not get. Default: none.
	Logger *slog.Logger
	// Now is the time. Default: time.Now.
	Now func() time.Time
}

// The bounds of answers that last.
const (
	maxWaits   = 200 // of one handler
	maxWait    = time.Minute
	waitMargin = 10 * time.Second // to write the answer
)

//go:embed openapi.json
var description []byte

// api answers requests that have passed access.Handler.
type api struct {
	Config

	operator *operate.Operator
	mux      *http.ServeMux
	waits    chan struct{}
}

// New returns a handler to mount with http.StripPrefix, at /api/v1 or elsewhere. The
// error says what is missing.
func New(operator *operate.Operator, config Config) (http.Handler, error) {
	if config.Args == 0 {
		config.Args = access.Operator
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	a := &api{Config: config, operator: operator, mux: http.NewServeMux(), waits: make(chan struct{}, maxWaits)}
	for _, r := range a.routes() {
		a.mux.HandleFunc(r.pattern, func(w http.ResponseWriter, req *http.Request) { a.serve(w, req, r) })
	}
	return access.Handler(http.HandlerFunc(a.route), access.Config{Auth: config.Auth, Hosts: config.Hosts, Media: "application/json",
		Refuse: refuse, Logger: config.Logger, Now: config.Now})
}

// route is one operation.
type route struct {
	pattern string
	params  []string // of the query
	handle  func(*call) (answer, error)
}

func (a *api) routes() []route {
	return slices.Concat(runRoutes(), fleetRoutes(), scheduleRoutes(), limitRoutes(), a.lastingRoutes())
}

// call is one request.
type call struct {
	*api
	*wire.Params

	w   http.ResponseWriter
	r   *http.Request
	who access.Who
	op  *operate.Actor
}

// answer is what a request gets. Without a status it is 200; without a body there is
// nothing left to write.
type answer struct {
	status int
	header map[string]string
	body   any
}

func ok(body any) answer { return answer{status: http.StatusOK, body: body} }

// route answers with problems also where there is no operation.
func (a *api) route(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "" || path.Clean(r.URL.Path) != r.URL.Path {
		nowhere().Write(w) // the mux would redirect past the mount
		return
	}
	if _, pattern := a.mux.Handler(r); pattern != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := a.mux.Handler(other); pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		nowhere().Write(w)
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	wire.NewProblem(http.StatusMethodNotAllowed, operate.Invalid, "Here only these methods have a meaning: "+strings.Join(allowed, ", ")+".").Write(w)
}

func nowhere() wire.Problem {
	return wire.NewProblem(http.StatusNotFound, operate.NotFound, "There is no such path; openapi.json lists them.")
}

// serve does one operation.
func (a *api) serve(w http.ResponseWriter, r *http.Request, to route) {
	who := access.WhoFrom(r.Context())
	c := &call{api: a, Params: wire.NewParams(r.URL.RawQuery, a.Now()), w: w, r: r, who: who, op: a.operator.As(who.Actor())}
	c.Only(to.params...)
	given, err := to.handle(c)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	if given.body == nil {
		return
	}
	for name, value := range given.header {
		w.Header().Set(name, value)
	}
	text, err := json.Marshal(given.body)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(given.status)
	_, _ = w.Write(append(text, '\n')) // the client may have gone
}

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

// fail answers with an error.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := wire.ProblemOf(err, a.operator.CodeOf(err))
	if special, ok := errors.AsType[*statusError](err); ok {
		p.Status, p.Title = special.status, http.StatusText(special.status)
	}
	if p.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
		a.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "status", p.Status, "error", err)
	}
	p.Write(w)
}

// refuse writes what access refuses as a problem.
func refuse(w http.ResponseWriter, _ *http.Request, refusal access.Refusal) {
	p := wire.NewProblem(refusal.Status, operate.Code(refusal.Code), refusal.Reason)
	if refusal.Need != 0 {
		p.Role = refusal.Need.String()
	}
	p.Write(w)
}

// body reads the body, and reports what is wrong with it and with the parameters
// together.
func (c *call) body(into any) error {
	err := wire.Body(c.r.Body, into)
	if err == nil {
		return c.Err()
	}
	faults, inBody := errors.AsType[wire.Faults](err)
	others, inQuery := errors.AsType[wire.Faults](c.Err())
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

// seen is a run as the one who asks may see it.
func (c *call) seen(r store.Record) wire.RunView {
	if c.who.Role < c.Args {
		return wire.WithoutArgs(r)
	}
	return wire.RunView{Record: r}
}
