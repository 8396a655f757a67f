package access

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode"
)

// Role is what a person or a program may do. A greater one may do more.
type Role uint8

// The roles. The zero Role may do nothing.
const (
	Viewer   Role = iota + 1 // reads; sees no args and no results
	Operator                 // changes things, too
)

// String is the word for the role.
func (r Role) String() string {
	switch r {
	case Viewer:
		return "viewer"
	case Operator:
		return "operator"
	default:
		return "none"
	}
}

// Who makes a request.
type Who struct {
	Name    string    // as the person or the program is known; empty: not known by name
	Role    Role      // what they may do
	Way     string    // how they came in: token, session, proxy, loopback, or a word of yours
	Address string    // of the connection, without the port; Handler sets it
	Until   time.Time // when that ends; zero: it does not. An answer that lasts ends then

	session string // the id of the session; empty: there is none
}

// maxName bounds the bytes of a name that an audit log shows.
const maxName = 128

// Actor is the name for the audit log: name@address (way).
func (w Who) Actor() string {
	name := plain(w.Name, maxName)
	if name == "" {
		name = w.Role.String()
	}
	actor := name
	if w.Address != "" {
		actor += "@" + plain(w.Address, 64)
	}
	if w.Way != "" {
		actor += " (" + plain(w.Way, 32) + ")"
	}
	return actor
}

// plain is a text without what a terminal or a log would obey, of at most so many bytes.
func plain(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	return text[:lastRune(text, most)]
}

// lastRune is the greatest index up to most at which a rune of the text begins, or the
// text ends.
func lastRune(text string, most int) int {
	if len(text) <= most {
		return len(text)
	}
	for most > 0 && text[most]&0xC0 == 0x80 {
		most--
	}
	return most
}

// WhoFrom returns who makes the request of a context. On paths that are open to
// everyone it is the zero Who.
func WhoFrom(ctx context.Context) Who {
	if v := visited(ctx); v != nil {
		return v.who
	}
	return Who{}
}

// addressOf is where a connection comes from, without the port.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
