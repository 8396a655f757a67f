package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Config is what a Handler needs. Auth must be given.
type Config struct {
	// Auth says who makes a request.
	Auth Auth
	// Hosts are the names that a request may give as its host, without ports. Empty: any;
	// with Loopback, the loopback names and the address of the listener.
	Hosts []string
	// Media is the one content type that bodies of requests may have, such as
	// application/json. Empty: any.
	Media string
	// Login makes POST login and POST logout start and end sessions of Tokens, below the
	// path at which the handler is mounted. GET login is open to everyone then.
	Login bool
	// Open are beginnings of paths that everyone may read, such as /assets/.
	Open []string
	// Refuse writes the answer to a request that is refused. The status and its headers
	// are the Refusal's. Default: a line of text.
	Refuse func(w http.ResponseWriter, r *http.Request, refusal Refusal)
	// Sessions knows which sessions have ended by a logout. Default: those that have ended
	// in this process, while it lives.
	Sessions Sessions
	// Logger logs refusals, at most one each second, and panics. Default: none.
	Logger *slog.Logger
	// Now is the time. Default: time.Now.
	Now func() time.Time
}

// The limits of requests. Server has those of connections.
const (
	maxInFlight = 64
	maxURL      = 8 << 10
	maxBody     = 1 << 20
)

// handler is the chain before an inner handler.
type handler struct {
	Config

	inner     http.Handler
	places    chan struct{} // of requests that are being answered
	strangers *lobby        // of those whose maker is not known
	asks      *lobby        // of calls of the Auth
	origin    *http.CrossOriginProtection
	login     *login // nil: none
	log       refusals
}

// Handler lets to the inner handler only what the Config allows. Paths in the Config are
// as the inner handler sees them. The error names what is missing.
func Handler(inner http.Handler, config Config) (http.Handler, error) {
	if config.Auth == nil {
		return nil, errors.New("no Auth: give access.Tokens, access.Proxy, access.Loopback, or a function of your own")
	}
	if checked, ok := config.Auth.(interface{ check() error }); ok {
		if err := checked.check(); err != nil {
			return nil, fmt.Errorf("auth: %w", err)
		}
	}
	if config.Refuse == nil {
		config.Refuse = refuseInText
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Sessions == nil {
		config.Sessions = newRemembered(config.Now)
	}
	h := &handler{Config: config, inner: inner, places: make(chan struct{}, maxInFlight),
		strangers: newLobby(strangersMost, strangersEach), asks: newLobby(asksMost, asksEach), origin: http.NewCrossOriginProtection(), log: refusals{logger: config.Logger}}
	if t, ok := config.Auth.(*tokens); ok && config.Login {
		h.login = &login{t}
	}
	return h, nil
}

// ServeHTTP is the chain.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := &answer{ResponseWriter: w}
	defer h.recover(answer, r)
	headers(answer.Header())
	if refusal := h.serve(answer, r); refusal != nil {
		h.refuse(answer, r, refusal)
	}
}

// serve answers a request, or says why it is refused. Only a request whose maker is known
// takes one of the places: one client cannot take them all.
func (h *handler) serve(w http.ResponseWriter, r *http.Request) *Refusal {
	if refusal := h.admit(r); refusal != nil {
		return refusal
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if h.login != nil && r.Method == http.MethodPost && r.URL.Path == loginPath {
		return h.stranger(w, r, func() *Refusal { return h.login.serve(w, r, h.Now()) })
	}
	if h.login != nil && r.Method == http.MethodPost && r.URL.Path == logoutPath {
		return h.logout(w, r)
	}
	open := h.open(r)
	if !open && h.login != nil && fromElsewhere(r) {
		reload(w)
		return nil
	}
	who, refusal := h.identify(r)
	switch {
	case refusal == nil:
		return h.known(w, r, &who, open)
	case open:
		return h.stranger(w, r, func() *Refusal {
			h.inner.ServeHTTP(w, r)
			return nil
		})
	default:
		return refusal
	}
}

// known answers a request whose maker is known.
func (h *handler) known(w http.ResponseWriter, r *http.Request, who *Who, open bool) *Refusal {
	place, busy := h.enter()
	if busy != nil {
		return busy
	}
	defer place.leave()
	if know, ok := r.Context().Value(acquaintedKey{}).(func()); ok {
		know()
	}
	if open {
		h.inner.ServeHTTP(w, r)
		return nil
	}
	if refusal := h.current(r, who); refusal != nil {
		return refusal
	}
	h.inner.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, &visit{who: *who, place: place, in: h})))
	return nil
}

// safe reports whether a method only reads.
func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// admit checks what does not depend on the person who asks.
func (h *handler) admit(r *http.Request) *Refusal {
	switch {
	case len(r.RequestURI) > maxURL:
		return &Refusal{Status: http.StatusRequestURITooLong, Code: "too_large", Reason: fmt.Sprintf("The URL is longer than %d bytes.", maxURL)}
	case r.ContentLength > maxBody:
		return &Refusal{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Reason: fmt.Sprintf("The body is larger than %d bytes.", maxBody)}
	case !h.knownHost(r):
		return &Refusal{Status: http.StatusMisdirectedRequest, Code: "wrong_host",
			Reason: fmt.Sprintf("The host %q is not one under which this program answers. Set DURABLE_DASHBOARD_HOSTS, or access.Config.Hosts, to the names by which it is reached; without a token, only loopback names are.", plain(r.Host, maxName))}
	case safe(r.Method):
		return nil
	}
	if err := h.origin.Check(r); err != nil {
		return &Refusal{Status: http.StatusForbidden, Code: "cross_origin",
			Reason: fmt.Sprintf("The request comes from a page of another site (Origin %q, Host %q). Behind a proxy, pass the Host header on.", plain(r.Header.Get("Origin"), maxName), plain(r.Host, maxName))}
	}
	if r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "" && len(r.Header["Cookie"]) > 0 && len(r.Header["Authorization"]) == 0 {
		return &Refusal{Status: http.StatusForbidden, Code: "cross_origin",
			Reason: "A request with a cookie must say by which page it is made (Origin, or Sec-Fetch-Site). Programs send a token in the Authorization header instead."}
	}
	return h.body(r)
}

// body checks what a body says of itself. None is decompressed: a small one could become
// a large one.
func (h *handler) body(r *http.Request) *Refusal {
	if h.Media == "" || r.ContentLength == 0 {
		return nil
	}
	media, more, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := strings.ToLower(more["charset"])
	switch {
	case err != nil || media != h.Media || len(r.Header["Content-Type"]) > 1:
		return &Refusal{Status: http.StatusUnsupportedMediaType, Code: "invalid", Reason: "The Content-Type of the body must be " + h.Media + "."}
	case charset != "" && charset != "utf-8" && charset != "us-ascii":
		return &Refusal{Status: http.StatusUnsupportedMediaType, Code: "invalid", Reason: "The body must be in UTF-8."}
	case len(r.Header["Content-Encoding"]) > 0 && r.Header.Get("Content-Encoding") != "identity":
		return &Refusal{Status: http.StatusUnsupportedMediaType, Code: "invalid", Reason: "The body must not be encoded: leave Content-Encoding out."}
	default:
		return nil
	}
}

// knownHost reports whether a request may name its host.
func (h *handler) knownHost(r *http.Request) bool {
	if len(h.Hosts) > 0 {
		host := hostOf(r.Host)
		return slices.ContainsFunc(h.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
	}
	_, local := h.Auth.(loopback)
	return !local || loopbackHost(r)
}

// open reports whether everyone may make a request.
func (h *handler) open(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || path.Clean(r.URL.Path) != r.URL.Path {
		return false // a path with dots may lead elsewhere
	}
	return h.login != nil && r.URL.Path == loginPath ||
		slices.ContainsFunc(h.Open, func(begin string) bool { return strings.HasPrefix(r.URL.Path, begin) })
}

// identify finds out who makes a request, and whether they may.
func (h *handler) identify(r *http.Request) (Who, *Refusal) {
	who, err := h.ask(r)
	if err != nil {
		return who, h.unknown(err)
	}
	who.Address = addressOf(r)
	if !who.Until.IsZero() && !h.Now().Before(who.Until) {
		refusal := sessionEnded(nil)
		refusal.Login = h.login != nil
		return who, refusal
	}
	need := Operator
	if safe(r.Method) {
		need = Viewer
	}
	if who.Role < need {
		return who, &Refusal{Status: http.StatusForbidden, Code: "forbidden", Need: need,
			Reason: fmt.Sprintf("This needs the role %s; you are %s with the role %s.", need, plain(who.Actor(), maxName), who.Role)}
	}
	return who, nil
}

// unknown refuses a request of which the Auth does not know who makes it.
func (h *handler) unknown(err error) *Refusal {
	if errors.Is(err, errBusy) {
		return busy()
	}
	refusal := &Refusal{Status: http.StatusUnauthorized, Code: "unauthorized", Reason: "The request does not say who makes it.",
		Login: h.login != nil, Ended: errors.Is(err, errEnded), cause: err}
	if d, ok := errors.AsType[*denied](err); ok {
		refusal.Reason, refusal.cause = sentence(d.reason), d.cause
		if d.wait > 0 {
			refusal.Status, refusal.Code, refusal.RetryAfter, refusal.Login = http.StatusTooManyRequests, "too_many", d.wait, false
		}
	}
	return refusal
}

// headers are those of every answer.
func headers(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types durable")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer browsers send forms with Origin: null
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
}

// recover answers a request whose handler panicked.
func (h *handler) recover(w *answer, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause)
	}
	h.Logger.Error("request panicked", "event", "request.panicked", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	if w.begun {
		panic(http.ErrAbortHandler) // the client must not take half an answer for a whole one
	}
	h.refuse(w, r, &Refusal{Status: http.StatusInternalServerError, Code: "failed", Reason: "The program has failed to answer. Its log says why."})
}

// answer knows whether it has begun.
type answer struct {
	http.ResponseWriter

	begun bool
}

// WriteHeader begins the answer.
func (a *answer) WriteHeader(status int) {
	a.begun = true
	a.ResponseWriter.WriteHeader(status)
}

// Write begins the answer.
func (a *answer) Write(text []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(text)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
