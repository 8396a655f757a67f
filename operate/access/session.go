package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

const (
	sessionCookie = "durable_session"
	sessionFor    = 12 * time.Hour
)

// sessions are cookies that this program has signed. Nothing is kept of them.
type sessions struct{ key []byte }

// errEnded means that a request has a session that does not count any more.
var errEnded = fmt.Errorf("session ended: %w", ErrNoCredentials)

// newSessions signs with a key from the tokens, so that another token ends them.
func newSessions(secrets ...string) sessions {
	mac := hmac.New(sha256.New, []byte("durable session key, version 1"))
	for _, secret := range secrets {
		sum := sha256.Sum256([]byte(secret))
		mac.Write(sum[:])
	}
	return sessions{mac.Sum(nil)}
}

// session is what a cookie says.
type session struct {
	Name  string `json:"n"`
	Role  Role   `json:"r"`
	Until int64  `json:"u"` // seconds since 1970
}

func (s sessions) sign(text string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// cookie is a new session. Without a Path the browser sends it to the mount of the
// handler and below, whatever a proxy has made of that path.
func (s sessions) cookie(r *http.Request, name string, role Role, now time.Time) *http.Cookie {
	said, _ := json.Marshal(session{Name: plain(name, maxName), Role: role, Until: now.Add(sessionFor).Unix()}) // it cannot fail
	text := base64.RawURLEncoding.EncodeToString(said)
	return cookieOf(r, text+"."+s.sign(text), int(sessionFor/time.Second))
}

// emptyCookie ends a session.
func emptyCookie(r *http.Request) *http.Cookie { return cookieOf(r, "", -1) }

func cookieOf(r *http.Request, value string, maxAge int) *http.Cookie {
	return &http.Cookie{Name: sessionCookie, Value: value, MaxAge: maxAge, HttpOnly: true, //nolint:gosec // plain http needs one that is not Secure
		SameSite: http.SameSiteStrictMode, Secure: secure(r)}
}

// secure reports whether the browser may send a cookie over TLS only. A proxy in front
// may speak TLS where this program does not; the Origin of a form says so.
func secure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	if origin := r.Header.Get("Origin"); strings.Contains(origin, "://") {
		return strings.HasPrefix(origin, "https://")
	}
	host := hostOf(r.Host)
	at, err := netip.ParseAddr(host)
	return host != "localhost" && (err != nil || !at.IsLoopback())
}

// who reads the session of a request. Its end is for the Handler to see.
func (s sessions) who(r *http.Request) (Who, error) {
	cookies := r.CookiesNamed(sessionCookie)
	if len(cookies) == 0 {
		return Who{}, ErrNoCredentials
	}
	for _, cookie := range cookies[:min(len(cookies), 4)] { // mounts within mounts have several
		if who, ok := s.read(cookie.Value); ok {
			return who, nil
		}
	}
	return Who{}, &denied{reason: "the session is of another token: log in again", cause: errEnded}
}

func (s sessions) read(value string) (Who, bool) {
	text, signature, _ := strings.Cut(value, ".")
	if !hmac.Equal([]byte(signature), []byte(s.sign(text))) {
		return Who{}, false
	}
	var said session
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(raw, &said) != nil {
		return Who{}, false
	}
	return Who{Name: said.Name, Role: said.Role, Way: "session", Until: time.Unix(said.Until, 0)}, true
}
