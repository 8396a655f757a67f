package access

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// minSecret is the least length of a token, or of a secret, in bytes. `openssl rand
// -hex 16` writes one.
const minSecret = 16

func errShort(what string) error {
	return fmt.Errorf("%s has fewer than %d characters: generate one with `openssl rand -hex 16`", what, minSecret)
}

// tokens admits clients that present one of two tokens.
type tokens struct {
	operator, viewer string
	sessions         *sessions
	guard            *guard // of the Authorization header and of the login form together
}

// Tokens lets in who knows a token: as `Authorization: Bearer TOKEN`, as the password
// of Basic authentication, whose user name then is the name in the audit log, or through
// the login form of the pages, which starts a session of twelve hours. Either token may
// be empty: then there is no such role, and no session of it. Another token ends all
// sessions of its role. Five wrong tokens a minute are answered to one network; then it
// waits. Handlers that share the Auth count together.
func Tokens(operator, viewer string) Auth {
	return &tokens{operator: operator, viewer: viewer, guard: newGuard(guessesKnown),
		sessions: newSessions(map[Role]string{Operator: operator, Viewer: viewer})}
}

func (t *tokens) check() error {
	switch {
	case t.operator == "" && t.viewer == "":
		return errors.New("there is no token")
	case t.operator != "" && len(t.operator) < minSecret:
		return errShort("the operator's token")
	case t.viewer != "" && len(t.viewer) < minSecret:
		return errShort("the viewer's token")
	case t.operator == t.viewer:
		return errors.New("the operator and the viewer have the same token")
	}
	return nil
}

// role is what a token lets its owner do. It takes the same time for every token.
func (t *tokens) role(token string) (role Role) {
	operator, viewer := same(token, t.operator), same(token, t.viewer)
	switch {
	case token == "":
		return 0
	case operator:
		return Operator
	case viewer:
		return Viewer
	default:
		return 0
	}
}

// known is the role of a token that a request gives; zero: none. An error refuses the
// request whatever the token is.
func (t *tokens) known(r *http.Request, token string, now time.Time) (Role, error) {
	role := t.role(token)
	if err := t.guard.check(r, token, role, now); err != nil {
		return 0, err
	}
	return role, nil
}

// Who reads the Authorization header, and without one the session.
func (t *tokens) Who(r *http.Request) (Who, error) { return t.whoAt(r, time.Now()) }

func (t *tokens) whoAt(r *http.Request, now time.Time) (who Who, err error) {
	given := r.Header.Values("Authorization")
	if len(given) > 1 {
		return Who{}, &denied{reason: "the request has several Authorization headers"}
	}
	if len(given) == 0 {
		return t.sessions.who(r)
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	who.Way = "token"
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		token = strings.TrimSpace(token)
	case strings.EqualFold(scheme, "Basic"):
		if who.Name, token, _ = r.BasicAuth(); who.Name == "" && token == "" {
			return Who{}, &denied{reason: "the Authorization header is not of the form that Basic authentication has"}
		}
	default:
		return Who{}, &denied{reason: "the Authorization header must be Bearer TOKEN, or Basic with the token as the password"}
	}
	who.Role, err = t.known(r, token, now)
	if err == nil && who.Role == 0 {
		err = &denied{reason: "the token is not known"}
	}
	return who, err
}
