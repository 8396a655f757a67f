package access

import (
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Refusal says why a request is refused.
type Refusal struct {
	Status     int           // the HTTP status
	Code       string        // a word for programs
	Reason     string        // sentences for people: what was seen, and what to do
	Need       Role          // the least role that may do it; zero: that is not the reason
	RetryAfter time.Duration // when to try again; zero: not said
	Login      bool          // who has logged in may do it, at login below the mount
	Failed     bool          // the login itself was refused
	Ended      bool          // who asks had logged in, and that session is over

	cause error // for the log
}

// refuseInText is a Config's Refuse.
func refuseInText(w http.ResponseWriter, _ *http.Request, refusal Refusal) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(refusal.Status)
	_, _ = w.Write([]byte(refusal.Reason + "\n")) // the client may have gone
}

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, refusal *Refusal) {
	if refusal.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((refusal.RetryAfter+time.Second-1)/time.Second)))
	}
	if _, ok := h.Auth.(*tokens); ok && refusal.Status == http.StatusUnauthorized {
		w.Header().Set("Www-Authenticate", `Bearer realm="durable"`)
	}
	if refusal.Status != http.StatusInternalServerError { // a panic has been logged
		h.log.add(r, refusal, h.Now())
	}
	h.Refuse(w, r, *refusal)
}

// refusals logs refusals, at most one each second.
type refusals struct {
	logger *slog.Logger

	mu      sync.Mutex
	last    time.Time
	skipped int
}

// add logs a refusal with what was seen of the request. Secrets are in none of it.
func (l *refusals) add(r *http.Request, refusal *Refusal, now time.Time) {
	l.mu.Lock()
	if now.Sub(l.last) < time.Second {
		l.skipped++
		l.mu.Unlock()
		return
	}
	skipped := l.skipped
	l.last, l.skipped = now, 0
	l.mu.Unlock()
	reason := refusal.Reason
	if refusal.cause != nil {
		reason += " (" + refusal.cause.Error() + ")"
	}
	l.logger.Warn("request refused", "event", "request.refused", "status", refusal.Status, "code", refusal.Code, "reason", reason, "method", plain(r.Method, 16),
		"path", plain(r.URL.Path, 200), "remote", r.RemoteAddr, "host", plain(r.Host, maxName), "proxy_header", proxied(r), "not_logged", skipped)
}

// sentence is a text with a capital at its begin and a full stop at its end.
func sentence(text string) string {
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
