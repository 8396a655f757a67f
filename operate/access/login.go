package access

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	loginPath  = "/login"
	logoutPath = "/logout"
)

// login starts sessions.
type login struct{ tokens *tokens }

// serve answers the login form.
func (l *login) serve(w http.ResponseWriter, r *http.Request, now time.Time) *Refusal {
	r.Body = http.MaxBytesReader(w, r.Body, strangerBody)
	if err := r.ParseForm(); err != nil {
		return unread(err)
	}
	role, err := l.tokens.known(r, r.PostForm.Get("token"), now)
	if d, ok := errors.AsType[*denied](err); ok {
		return &Refusal{Status: http.StatusTooManyRequests, Code: "too_many", Failed: true, Login: true, RetryAfter: d.wait, Reason: sentence(d.reason), cause: d.cause}
	}
	if role == 0 {
		return &Refusal{Status: http.StatusUnauthorized, Code: "unauthorized", Failed: true, Login: true, Reason: "The token is not known."}
	}
	http.SetCookie(w, l.tokens.sessions.cookie(r, r.PostForm.Get("name"), role, now))
	seeOther(w, within(r.PostForm.Get("next")))
	return nil
}

// unread refuses a form that cannot be read.
func unread(err error) *Refusal {
	refusal := &Refusal{Status: http.StatusBadRequest, Code: "invalid", Failed: true, Login: true, Reason: "The form cannot be read.", cause: err}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		refusal.Status, refusal.Code, refusal.Reason = http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("The form is larger than %d bytes.", strangerBody)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		refusal.Status, refusal.Reason = http.StatusRequestTimeout, fmt.Sprintf("The form did not arrive within %v.", strangerReads)
	}
	return refusal
}

// networkOf is the address of a request; of IPv6, the network that a household has.
func networkOf(r *http.Request) netip.Prefix {
	at, err := netip.ParseAddr(addressOf(r))
	if err != nil {
		return netip.Prefix{}
	}
	bits := 32
	if at = at.Unmap().WithZone(""); at.Is6() {
		bits = 64
	}
	network, _ := at.Prefix(bits) // the bits are possible
	return network
}

// within is a path below the mount to which a login may lead; ./ for all others.
func within(next string) string {
	parsed, err := url.Parse(next)
	if err != nil || next == "" || parsed.Scheme != "" || parsed.Host != "" || parsed.User != nil || plain(next, maxURL) != next ||
		strings.HasPrefix(next, "/") || strings.ContainsAny(next, "\\ ") || strings.Contains(parsed.Path, "..") {
		return "./"
	}
	return "./" + next
}

// seeOther redirects to a path relative to that of the request. http.Redirect would
// make it absolute, which is wrong behind a proxy that strips a prefix.
func seeOther(w http.ResponseWriter, location string) {
	w.Header().Set("Location", location)
	w.WriteHeader(http.StatusSeeOther)
}

// fromElsewhere reports whether a link on another site has led here: then the browser
// has kept the session's cookie back.
func fromElsewhere(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		len(r.Header["Authorization"]) == 0 && len(r.CookiesNamed(sessionCookie)) == 0
}

// reload answers with a page that asks for itself again, now from this site.
func reload(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(`<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0"><title>durable</title>` + "\n"))
}
