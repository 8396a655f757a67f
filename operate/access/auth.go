package access

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Auth says who makes a request. An error refuses the request with 401; its text goes
// to the log and not to the client. It must be safe for concurrent use.
type Auth interface {
	// Who returns who makes the request, and what they may do.
	Who(r *http.Request) (Who, error)
}

// Func is a function of yours as an Auth. It may stand behind any middleware that you
// have, and read what that leaves in the request's context.
type Func func(r *http.Request) (Who, error)

// Who calls the function.
func (f Func) Who(r *http.Request) (Who, error) { return f(r) }

// ErrNoCredentials means that a request says nothing of who makes it.
var ErrNoCredentials = errors.New("no credentials")

// timed is an Auth that measures time by the clock of its Handler.
type timed interface {
	whoAt(r *http.Request, now time.Time) (Who, error)
}

// denied is a refusal whose reason the client may read.
type denied struct {
	reason string
	cause  error
	wait   time.Duration // until it is worth to ask again; zero: that does not depend on time
}

func (d *denied) Error() string { return d.reason }

func (d *denied) Unwrap() error { return d.cause }

// loopback lets the machine's own users in.
type loopback struct{}

// Loopback lets in, as operators, requests that come from this machine, name it as
// their host, and have passed no proxy. It is meant for a person's own machine: every
// user and every program of the machine may do everything.
func Loopback() Auth { return loopback{} }

// Who refuses all that is not certain to come from here.
func (loopback) Who(r *http.Request) (Who, error) {
	if remote, err := netip.ParseAddr(addressOf(r)); err != nil || !remote.Unmap().IsLoopback() {
		return Who{}, &denied{reason: "only requests from the machine itself are let in, and this one comes from " + plain(addressOf(r), 64) +
			": set a token, or name the header of a proxy that authenticates"}
	}
	if name := proxied(r); name != "" {
		return Who{}, &denied{reason: "only requests from the machine itself are let in, and this one has the header " + name +
			" of a proxy: set a token, or name the header of a proxy that authenticates"}
	}
	return Who{Name: "local", Role: Operator, Way: "loopback"}, nil
}

// proxied names a header that a proxy has added; empty: there is none.
func proxied(r *http.Request) string {
	for name := range r.Header {
		switch canonical := http.CanonicalHeaderKey(name); {
		case strings.HasPrefix(canonical, "X-Forwarded-"), canonical == "Forwarded", canonical == "Via", canonical == "X-Real-Ip":
			return plain(canonical, 64)
		}
	}
	return ""
}

// loopbackHost reports whether a request names this machine as its host: by a loopback
// name or address, or by the address that the connection has here.
func loopbackHost(r *http.Request) bool {
	host := hostOf(r.Host)
	if host == "localhost" {
		return true
	}
	named, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if named.Unmap().IsLoopback() {
		return true
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap() == named.Unmap()
}

// hostOf is a Host header's name, in lower case, without the port and without the
// brackets of an address.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}
