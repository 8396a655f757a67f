package access

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	loginPath  = "/login"
	logoutPath = "/logout"

	loginTries     = 5 // that may fail in a loginWindow, of one address
	loginWindow    = time.Minute
	loginAddresses = 10_000 // that are remembered
)

// login starts and ends sessions.
type login struct {
	tokens *tokens

	mu    sync.Mutex
	tries map[netip.Prefix]*tries
}

// tries are failed logins from one address.
type tries struct {
	since time.Time
	count int
}

func newLogin(t *tokens) *login { return &login{tokens: t, tries: map[netip.Prefix]*tries{}} }

// serves reports whether a request logs in or out.
func (l *login) serves(r *http.Request) bool {
	return r.Method == http.MethodPost && (r.URL.Path == loginPath || r.URL.Path == logoutPath)
}

func (l *login) serve(w http.ResponseWriter, r *http.Request, now time.Time) *Refusal {
	if r.URL.Path == logoutPath {
		http.SetCookie(w, emptyCookie(r))
		seeOther(w, "login")
		return nil
	}
	from := networkOf(r)
	if wait := l.wait(from, now); wait > 0 {
		return &Refusal{Status: http.StatusTooManyRequests, Code: "too_many", Failed: true, Login: true, RetryAfter: wait,
			Reason: "Too many logins from your address have failed. Try again in a minute."}
	}
	if err := r.ParseForm(); err != nil {
		return &Refusal{Status: http.StatusBadRequest, Code: "invalid", Failed: true, Login: true, Reason: "The form cannot be read.", cause: err}
	}
	role := l.tokens.role(r.PostForm.Get("token"))
	if role == 0 {
		l.fail(from, now)
		return &Refusal{Status: http.StatusUnauthorized, Code: "unauthorized", Failed: true, Login: true, Reason: "The token is not known."}
	}
	http.SetCookie(w, l.tokens.sessions.cookie(r, r.PostForm.Get("name"), role, now))
	seeOther(w, within(r.PostForm.Get("next")))
	return nil
}

// wait is how long an address must not try to log in.
func (l *login) wait(from netip.Prefix, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.tries[from]
	if seen == nil || seen.count < loginTries {
		return 0
	}
	return max(0, seen.since.Add(loginWindow).Sub(now))
}

// fail counts a failed login. When too many addresses have failed, all begin
// again: a count does not stop a client that has ten thousand of them.
func (l *login) fail(from netip.Prefix, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.tries[from]
	if seen == nil || now.Sub(seen.since) >= loginWindow {
		if len(l.tries) >= loginAddresses {
			clear(l.tries)
		}
		seen = &tries{since: now}
		l.tries[from] = seen
	}
	seen.count++
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
