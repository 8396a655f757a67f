package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Sessions knows which sessions of Tokens people have ended by logging out. A session that
// it does not know ends when its time is over. It must be safe for concurrent use.
type Sessions interface {
	// EndSession ends a session for good. by is who ends it.
	EndSession(ctx context.Context, session, by string) error
	// SessionEnded reports whether a session has been ended.
	SessionEnded(ctx context.Context, session string) (bool, error)
}

// endedWithin bounds how long a request waits to learn whether its session has ended.
const endedWithin = 2 * time.Second

// errEnded means that a request has a session that does not count any more.
var errEnded = fmt.Errorf("session ended: %w", ErrNoCredentials)

// ended reports whether the session of a request has ended.
func (h *handler) ended(ctx context.Context, who *Who) (bool, error) {
	if who.session == "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, endedWithin)
	defer cancel()
	return h.Sessions.SessionEnded(ctx, who.session)
}

// Ended reports whether who makes the request of a context has logged out since. Answers
// that last ask now and then, and end. While that cannot be found out, they continue.
func Ended(ctx context.Context) bool {
	v := visited(ctx)
	if v == nil {
		return false
	}
	ended, err := v.in.ended(ctx, &v.who)
	return err == nil && ended
}

// current refuses a request whose session has been ended. What cannot be found out refuses
// it, too: a copy of the cookie must not outlive the session.
func (h *handler) current(r *http.Request, who *Who) *Refusal {
	switch ended, err := h.ended(r.Context(), who); {
	case err != nil:
		return &Refusal{Status: http.StatusServiceUnavailable, Code: "unreachable", RetryAfter: time.Second, cause: err,
			Reason: "Whether this session has ended cannot be found out now. Try again later."}
	case ended:
		return sessionEnded(errEnded)
	default:
		return nil
	}
}

// sessionEnded sends to the login.
func sessionEnded(cause error) *Refusal {
	return &Refusal{Status: http.StatusUnauthorized, Code: "unauthorized", Reason: "The session has ended.", Login: true, Ended: true, cause: cause}
}

// logout ends the session of a request. The browser forgets it in any case.
func (h *handler) logout(w http.ResponseWriter, r *http.Request) *Refusal {
	http.SetCookie(w, emptyCookie(r))
	who, err := h.login.tokens.sessions.who(r)
	if err != nil || !h.Now().Before(who.Until) {
		seeOther(w, "login")
		return nil
	}
	place, busy := h.enter()
	if busy != nil {
		return busy
	}
	defer place.leave()
	who.Address = addressOf(r)
	if err := h.Sessions.EndSession(r.Context(), who.session, who.Actor()); err != nil {
		return &Refusal{Status: http.StatusServiceUnavailable, Code: "unreachable", cause: err,
			Reason: "Your browser has forgotten the session, but that it has ended could not be stored. Anyone who has a copy of its cookie can use it until " +
				who.Until.UTC().Format("2006-01-02 15:04 MST") + "; another token ends it, too."}
	}
	seeOther(w, "login")
	return nil
}

// remembered are the sessions that have ended in this process.
type remembered struct {
	now func() time.Time

	mu    sync.Mutex
	ended map[string]time.Time // when each of them would have ended by itself, at the latest
}

func newRemembered(now func() time.Time) *remembered {
	return &remembered{now: now, ended: map[string]time.Time{}}
}

// EndSession notes that a session has ended.
func (m *remembered) EndSession(_ context.Context, session, _ string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for other, until := range m.ended {
		if !m.now().Before(until) {
			delete(m.ended, other)
		}
	}
	if len(m.ended) >= rememberedMost {
		return errors.New("too many sessions have ended")
	}
	m.ended[session] = m.now().Add(sessionFor)
	return nil
}

// rememberedMost bounds what a process remembers of sessions.
const rememberedMost = 100_000

// SessionEnded reports whether a session has ended in this process.
func (m *remembered) SessionEnded(_ context.Context, session string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ended := m.ended[session]
	return ended, nil
}
