package api

import (
	"context"
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
)

// New returns a handler to mount with http.StripPrefix, at /api/v1 or elsewhere. The
// error says what is missing.
func New(operator *operate.Operator, config Config) (http.Handler, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	a := &api{Config: config, operator: operator, mux: http.NewServeMux(), waits: make(chan struct{}, maxWaits)}
	for _, r := range a.routes() {
		a.mux.HandleFunc(r.pattern, func(w http.ResponseWriter, req *http.Request) { a.serve(w, req, r) })
	}
	return access.Handler(http.HandlerFunc(a.route), access.Config{Auth: config.Auth, Hosts: config.Hosts, Media: "application/json",
		Refuse: refuse, Sessions: operator, Logger: config.Logger})
}

func (a *api) routes() []route {
	return slices.Concat(runRoutes(), stepRoutes(), batchRoutes(), fleetRoutes(), figureRoutes(), scheduleRoutes(), limitRoutes(), lastingRoutes())
}

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

func (a *api) sees() access.Sees { return access.Sees{Args: a.Args, Texts: a.Texts} }

// answerWithin bounds what an answer may take that does not last: less than the server
// gives it.
const answerWithin = 20 * time.Second

// serve does one operation.
func (a *api) serve(w http.ResponseWriter, r *http.Request, to route) {
	who := access.WhoFrom(r.Context())
	lasting := r.Context()
	ctx, cancel := context.WithTimeout(lasting, answerWithin)
	defer cancel()
	r = r.WithContext(ctx)
	c := &call{lasting: lasting, api: a, Params: wire.NewParams(r.URL.RawQuery, a.operator.Now()), w: w, r: r, who: who, op: a.operator.Hiding(operate.HiddenFrom(who.Role, a.sees())).As(who.Actor())}
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

// fail answers with an error.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	code := a.operator.CodeOf(err)
	if errors.Is(err, context.DeadlineExceeded) {
		code = operate.Unreachable
	}
	p := wire.ProblemOf(err, code)
	if special, ok := errors.AsType[*statusError](err); ok {
		p.Status, p.Title = special.status, http.StatusText(special.status)
	}
	if code == operate.Forbidden {
		p.Role = a.sees().All().String()
	}
	if p.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
		a.Logger.Error("request failed", "event", "request.failed", "method", r.Method, "path", r.URL.Path, "status", p.Status, "error", err)
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
