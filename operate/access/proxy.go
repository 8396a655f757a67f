package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
)

// ProxyConfig says what a proxy that authenticates writes into the requests that it
// passes on. The proxy must remove these headers from what clients send.
type ProxyConfig struct {
	User           string   // the header with the user's name, such as X-Forwarded-User
	Groups         string   // the header with the user's groups, separated by commas; empty: none
	Operators      []string // names of users who are operators; all others are viewers
	OperatorGroups []string // names of groups whose members are operators, too
	SecretHeader   string   // the header with the secret, such as X-Durable-Proxy
	Secret         string   // what only the proxy knows: at least 16 bytes
}

// proxy trusts the headers of a proxy that knows a secret.
type proxy struct {
	ProxyConfig

	guard *guard // of the secret
}

// Proxy lets in whom a proxy in front has authenticated. A request without the proxy's
// secret is refused: it has come past the proxy. Wrong secrets are counted as wrong tokens
// are, but they do not keep a network out from which the right one has come.
func Proxy(config ProxyConfig) Auth { return proxy{config, newGuard(unbounded)} }

func (p proxy) check() error {
	switch {
	case p.User == "" || p.SecretHeader == "":
		return errors.New("a proxy needs the names of the headers with the user and with the secret")
	case len(p.Secret) < minSecret:
		return errShort("the proxy's secret")
	case len(p.OperatorGroups) > 0 && p.Groups == "":
		return errors.New("groups of operators need the name of the header with the user's groups")
	}
	return nil
}

// Who reads the proxy's headers.
func (p proxy) Who(r *http.Request) (Who, error) { return p.whoAt(r, time.Now()) }

func (p proxy) whoAt(r *http.Request, now time.Time) (Who, error) {
	if err := p.passed(r, now); err != nil {
		return Who{}, err
	}
	users := r.Header.Values(p.User)
	if len(users) != 1 || plain(users[0], maxName) == "" {
		return Who{}, &denied{reason: "the proxy has not said in the header " + p.User + " who asks", cause: ErrNoCredentials}
	}
	who := Who{Name: users[0], Role: Viewer, Way: "proxy"}
	if slices.Contains(p.Operators, users[0]) || slices.ContainsFunc(p.groups(r), func(group string) bool { return slices.Contains(p.OperatorGroups, group) }) {
		who.Role = Operator
	}
	return who, nil
}

// passed refuses a request that has not passed the proxy.
func (p proxy) passed(r *http.Request, now time.Time) error {
	given := r.Header.Values(p.SecretHeader)
	if len(given) == 1 {
		role := Role(0)
		if same(given[0], p.Secret) {
			role = Operator // of whatever user
		}
		err := p.guard.check(r, given[0], role, now)
		if err != nil || role != 0 {
			return err
		}
	}
	return &denied{reason: "the request has not come through the proxy: it lacks the header " + p.SecretHeader +
		" with the proxy's secret", cause: ErrNoCredentials}
}

// groups are those of which the proxy says that the user is a member.
func (p proxy) groups(r *http.Request) (groups []string) {
	if p.Groups == "" {
		return nil
	}
	for group := range strings.SplitSeq(strings.Join(r.Header.Values(p.Groups), ","), ",") {
		if group = strings.TrimSpace(group); group != "" {
			groups = append(groups, group)
		}
	}
	return groups
}

// same compares two secrets in a time that does not depend on them.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
