package builtin

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// maxURL bounds a URL, bytes.
const maxURL = 8 << 10

// Origins are the places the job http may post to. The zero value is none.
type Origins struct {
	list []origin
}

// origin is one place: everything at and below a path of one server.
type origin struct {
	scheme, host, port string
	path               string // begins with a slash; with one at its end only what is below it
}

// ParseOrigins reads a list of URLs separated by commas, each a scheme (http or
// https), a host, a port where it is not the scheme's, and a path:
// https://api.example.com/hooks,http://10.0.0.7:8080. A path covers itself and
// what is below it, /hooks/new but not /hooksters; none covers everything. The
// text is to be plain: lower case, no user, no query, nothing escaped, a name
// beyond ASCII in its xn-- form. Empty text is an empty list.
func ParseOrigins(text string) (Origins, error) {
	var o Origins
	if text == "" {
		return o, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		one, err := parseOrigin(part)
		if err != nil {
			return Origins{}, fmt.Errorf("%s: %w", withoutQuery(part), err)
		}
		o.list = append(o.list, one)
	}
	return o, nil
}

// String writes the list as ParseOrigins reads it.
func (o Origins) String() string {
	parts := make([]string, len(o.list))
	for i, one := range o.list {
		parts[i] = one.String()
	}
	return strings.Join(parts, ",")
}

// Empty reports whether nothing is allowed.
func (o Origins) Empty() bool { return len(o.list) == 0 }

func (o origin) String() string {
	return o.scheme + "://" + joinHostPort(o.host, o.port) + o.path
}

func joinHostPort(host, port string) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + port
}

// plain is what a URL of the list may be made of.
var plain = regexp.MustCompile(`^[a-z0-9.:/\[\]A-Z_~!$&'()*+;=-]*$`)

func parseOrigin(text string) (origin, error) {
	if len(text) > maxURL {
		return origin{}, fmt.Errorf("longer than %d bytes", maxURL)
	}
	for _, wrong := range []struct{ piece, say string }{
		{"@", "a user is not allowed here"}, {"?", "a query is not allowed here"}, {"#", "a fragment is not allowed here"},
		{"%", "escaped characters are not allowed here"}, {`\`, "a backslash is not allowed"},
	} {
		if strings.Contains(text, wrong.piece) {
			return origin{}, errors.New(wrong.say)
		}
	}
	if !plain.MatchString(text) {
		return origin{}, errors.New("only ASCII letters, digits and punctuation are allowed; write a name beyond ASCII in its xn-- form")
	}
	scheme, rest, found := strings.Cut(text, "://")
	if host, _, _ := strings.Cut(rest, "/"); !found || scheme != strings.ToLower(scheme) || host != strings.ToLower(host) {
		return origin{}, errors.New("want scheme://host, both in lower case")
	}
	o, _, err := place(text)
	return o, err
}

// place takes a URL apart, and refuses one that two programs could read in
// two ways.
func place(text string) (origin, *url.URL, error) {
	if len(text) > maxURL {
		return origin{}, nil, fmt.Errorf("longer than %d bytes", maxURL)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' || r == '\ufffd' }) {
		return origin{}, nil, errors.New("blanks, control characters and backslashes are not allowed")
	}
	u, err := url.Parse(text)
	if err != nil {
		return origin{}, nil, errors.New("it cannot be read as a URL")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "":
		return origin{}, nil, errors.New("want http://… or https://…")
	case u.User != nil:
		return origin{}, nil, errors.New("a user in the URL is not allowed")
	case u.Fragment != "" || strings.Contains(text, "#"):
		return origin{}, nil, errors.New("a fragment in the URL is not allowed")
	}
	o := origin{scheme: u.Scheme, path: u.Path}
	if o.host, err = plainHost(u.Hostname()); err != nil {
		return origin{}, nil, err
	}
	if o.port, err = plainPort(u); err != nil {
		return origin{}, nil, err
	}
	if o.path == "" {
		o.path = "/"
	}
	if err := plainPath(o.path, u.EscapedPath()); err != nil {
		return origin{}, nil, err
	}
	u.Host = joinHostPort(o.host, o.port)
	if u.Scheme == "http" && o.port == "80" || u.Scheme == "https" && o.port == "443" {
		u.Host = strings.TrimSuffix(u.Host, ":"+o.port)
	}
	return o, u, nil
}

var hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// plainHost returns a host as it is compared: a name in lower case, or an
// address in its one form.
func plainHost(host string) (string, error) {
	if strings.ContainsAny(host, ":") {
		addr, err := netip.ParseAddr(host)
		if err != nil || addr.Zone() != "" {
			return "", errors.New("the host's IPv6 address cannot be read, or has a zone")
		}
		return addr.String(), nil
	}
	host = lowerASCII(host)
	if len(host) > 253 || !hostName.MatchString(host) {
		return "", errors.New("want a host of letters, digits, hyphens and dots, without a dot at its end; a name beyond ASCII in its xn-- form")
	}
	// A last part that is a number makes it an address, which has many forms
	// that libraries read: 2130706433, 0x7f.1, 127.1.
	last := host[strings.LastIndex(host, ".")+1:]
	if _, err := strconv.ParseUint(last, 0, 64); err == nil || strings.HasPrefix(last, "0x") || strings.Trim(last, "0123456789") == "" {
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return "", errors.New("want an IPv4 address as four decimal numbers")
		}
		return addr.String(), nil
	}
	return host, nil
}

// lowerASCII leaves what is not ASCII, such as the Kelvin sign, for the
// pattern to refuse.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

func plainPort(u *url.URL) (string, error) {
	port := u.Port()
	switch {
	case strings.HasSuffix(u.Host, ":"):
		return "", errors.New("a colon without a port")
	case port == "" && u.Scheme == "https":
		return "443", nil
	case port == "":
		return "80", nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || port != strconv.FormatUint(n, 10) {
		return "", errors.New("want a port from 1 to 65535")
	}
	return port, nil
}

// plainPath refuses what a server behind a proxy may read in another way than
// this program: parts that go up, empty parts, escaped slashes, a percent sign
// that is itself escaped, and, escaped or not, what is not printable ASCII:
// blanks that are trimmed, line ends, overlong and full-width forms of dots.
func plainPath(path, escaped string) error {
	lower := strings.ToLower(escaped)
	for _, code := range []string{"%2f", "%5c", "%25", "%2e", "%00"} {
		if strings.Contains(lower, code) {
			return fmt.Errorf("%s in the path is not allowed", code)
		}
	}
	if strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return errors.New("blanks and what is not printable ASCII are not allowed in the path, escaped or not; put them into the query or the body")
	}
	if strings.Contains(path, "//") {
		return errors.New("an empty part of the path is not allowed")
	}
	for part := range strings.SplitSeq(path, "/") {
		if part, _, _ = strings.Cut(part, ";"); part == "." || part == ".." {
			return errors.New(". and .. in the path are not allowed")
		}
	}
	return nil
}

// find returns the URL in its plain form when it is allowed.
func (o Origins) find(text string) (*url.URL, error) {
	asked, u, err := place(text)
	if err != nil {
		return nil, err
	}
	for _, one := range o.list {
		if one.covers(asked) {
			return u, nil
		}
	}
	return nil, errNotAllowed
}

var errNotAllowed = errors.New("it is not allowed")

func (o origin) covers(asked origin) bool {
	if o.scheme != asked.scheme || o.host != asked.host || o.port != asked.port {
		return false
	}
	below := o.path
	if !strings.HasSuffix(below, "/") {
		below += "/"
	}
	return asked.path == o.path || strings.HasPrefix(asked.path, below)
}
