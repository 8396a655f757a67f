package access

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

const (
	sessionCookie = "durable_session"
	sessionFor    = 12 * time.Hour
)

// sessions are cookies that this program has signed. Which have ended before their time, a
// Sessions keeps.
//
// Invariant: the key of a role follows from the token of that role and from nothing else.
// Who knows another token, or none, can neither sign a session of the role nor check a guess
// of its token, and a role without a token has no key.
type sessions struct {
	keys func() map[Role][]byte // made once, when the first session is signed or read
}

// stretchings make a guess of a token, by who holds one of its cookies, cost as much as a
// guess of a password should.
const stretchings = 600_000

// newSessions makes each role's key of its token, so that another token ends all sessions of
// its role, and processes with the same tokens accept each other's.
func newSessions(tokens map[Role]string) *sessions {
	return &sessions{keys: sync.OnceValue(func() map[Role][]byte {
		keys := map[Role][]byte{}
		for role, token := range tokens {
			if token == "" {
				continue
			}
			salt := []byte("durable session key, version 2, " + role.String())
			if key, err := pbkdf2.Key(sha256.New, token, salt, stretchings, sha256.Size); err == nil { // it refuses short tokens, where FIPS 140 is enforced
				keys[role] = key
			}
		}
		return keys
	})}
}

// session is what a cookie says. Its role is that of the key which has signed it.
type session struct {
	Name  string `json:"n"`
	Until int64  `json:"u"` // seconds since 1970
	ID    string `json:"i"` // random; an ended session is known by it
}

func sign(key []byte, text string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// cookie is a new session. Without a Path the browser sends it to the mount of the
// handler and below, whatever a proxy has made of that path.
func (s *sessions) cookie(r *http.Request, name string, role Role, now time.Time) *http.Cookie {
	said, _ := json.Marshal(session{Name: plain(name, maxName), Until: now.Add(sessionFor).Unix(), ID: rand.Text()}) // it cannot fail
	text := base64.RawURLEncoding.EncodeToString(said)
	return cookieOf(r, text+"."+sign(s.keys()[role], text), int(sessionFor/time.Second))
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
func (s *sessions) who(r *http.Request) (Who, error) {
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

// read reads a cookie that this program, or another one with the same token, has signed.
func (s *sessions) read(value string) (Who, bool) {
	text, signature, _ := strings.Cut(value, ".")
	for role, key := range s.keys() {
		if !hmac.Equal([]byte(signature), []byte(sign(key, text))) {
			continue
		}
		var said session
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || json.Unmarshal(raw, &said) != nil || said.ID == "" {
			return Who{}, false
		}
		return Who{Name: said.Name, Role: role, Way: "session", Until: time.Unix(said.Until, 0), session: said.ID}, true
	}
	return Who{}, false
}
