package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// ProxyConfig says what a proxy that authenticates writes into the requests that it
// passes on. The proxy must remove these headers from what clients send.
type ProxyConfig struct {
	User         string   // the header with the user's name, such as X-Forwarded-User
	Groups       string   // the header with the user's groups, separated by commas; empty: none
	Operators    []string // names of users and groups that are operators; all others are viewers
	SecretHeader string   // the header with the secret, such as X-Durable-Proxy
	Secret       string   // what only the proxy knows: at least 16 bytes
}

// proxy trusts the headers of a proxy that knows a secret.
type proxy struct{ ProxyConfig }

// Proxy lets in whom a proxy in front has authenticated. A request without the proxy's
// secret is refused: it has come past the proxy.
func Proxy(config ProxyConfig) Auth { return proxy{config} }

func (p proxy) check() error {
	switch {
	case p.User == "" || p.SecretHeader == "":
		return errors.New("a proxy needs the names of the headers with the user and with the secret")
	case len(p.Secret) < minSecret:
		return errShort("the proxy's secret")
	}
	return nil
}

// Who reads the proxy's headers.
func (p proxy) Who(r *http.Request) (Who, error) {
	given := r.Header.Values(p.SecretHeader)
	if len(given) != 1 || !same(given[0], p.Secret) {
		return Who{}, &denied{reason: "the request has not come through the proxy: it lacks the header " + p.SecretHeader +
			" with the proxy's secret", cause: ErrNoCredentials}
	}
	users := r.Header.Values(p.User)
	if len(users) != 1 || plain(users[0], maxName) == "" {
		return Who{}, &denied{reason: "the proxy has not said in the header " + p.User + " who asks", cause: ErrNoCredentials}
	}
	who := Who{Name: users[0], Role: Viewer, Way: "proxy"}
	if slices.Contains(p.Operators, users[0]) {
		who.Role = Operator
	}
	if p.Groups != "" {
		for group := range strings.SplitSeq(strings.Join(r.Header.Values(p.Groups), ","), ",") {
			if group = strings.TrimSpace(group); group != "" && slices.Contains(p.Operators, group) {
				who.Role = Operator
			}
		}
	}
	return who, nil
}

// same compares two secrets in a time that does not depend on them.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
