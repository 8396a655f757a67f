package builtin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// gate decides to which addresses a name may lead.
type gate struct {
	refusePrivate bool
}

// newClient makes the client of the job http. It keeps connections, goes
// through no proxy, follows no redirect and unpacks nothing.
func newClient(g gate) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            g.dial,
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    10 * time.Second,
			MaxIdleConnsPerHost:    16,
			IdleConnTimeout:        30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// dial connects, unless the address that the host has now is one that only a
// list that says it may lead to. The address is examined when the connection
// is made, so a name that changes its address between two looks gains nothing.
func (g gate) dial(ctx context.Context, network, hostport string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: 10 * time.Second, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		return g.check(host, address)
	}}
	return dialer.DialContext(ctx, network, hostport)
}

// addressError is an address that a host must not have.
type addressError struct {
	host    string
	address netip.Addr
	kind    string
}

func (e *addressError) Error() string {
	return fmt.Sprintf("%s has the address %s, %s, which is refused unless the list says the address itself", e.host, e.address, e.kind)
}

// check refuses to connect to a special address by a name. A list that says the
// address itself, or localhost, means it.
func (g gate) check(host, address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("the address %s cannot be read", address)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil // the list says it: the host has been compared with it
	}
	addr := innermost(to.Addr().WithZone("").Unmap())
	if host == "localhost" && addr.IsLoopback() {
		return nil
	}
	kind := special(addr)
	if kind == "" && g.refusePrivate && (addr.IsPrivate() || shared.Contains(addr)) {
		kind = "of a private network"
	}
	if kind != "" {
		return &addressError{host: host, address: to.Addr(), kind: kind}
	}
	return nil
}

// shared are addresses of carriers and some clouds.
var shared = netip.MustParsePrefix("100.64.0.0/10") //nolint:gochecknoglobals // never changes

// innermost returns the IPv4 address inside one that is translated, or carried,
// on its way.
func innermost(addr netip.Addr) netip.Addr {
	if !addr.Is6() {
		return addr
	}
	b := addr.As16()
	isatap := b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(addr), netip.MustParsePrefix("::/96").Contains(addr) && b[12] != 0, isatap:
		return netip.AddrFrom4([4]byte(b[12:]))
	case netip.MustParsePrefix("2002::/16").Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6]))
	default:
		return addr
	}
}

// refusedPrefixes are addresses that are not those of a server somewhere.
var refusedPrefixes = []struct { //nolint:gochecknoglobals // a constant table
	prefix netip.Prefix
	kind   string
}{
	{netip.MustParsePrefix("169.254.169.254/32"), inCloud},
	{netip.MustParsePrefix("169.254.170.0/24"), inCloud}, // of containers and pods at AWS
	{netip.MustParsePrefix("100.100.100.200/32"), inCloud},
	{netip.MustParsePrefix("168.63.129.16/32"), inCloud},
	{netip.MustParsePrefix("192.0.0.0/24"), inCloud}, // of the IETF; Oracle answered at 192.0.0.192
	{netip.MustParsePrefix("fd00:ec2::/32"), inCloud},
	{netip.MustParsePrefix("fd20:ce::/64"), inCloud},
	{netip.MustParsePrefix("0.0.0.0/8"), "of the machine itself"},
	{netip.MustParsePrefix("240.0.0.0/4"), "that is reserved"}, // broadcast among them
	{netip.MustParsePrefix("64:ff9b:1::/48"), "that is translated"},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "that is translated"},
	{netip.MustParsePrefix("2001::/32"), "that is carried by others"}, // Teredo
}

const inCloud = "where a cloud answers with credentials"

// special names what kind of address is not the address of a server somewhere.
func special(addr netip.Addr) string {
	for _, refused := range refusedPrefixes {
		if refused.prefix.Contains(addr) {
			return refused.kind
		}
	}
	switch {
	case addr.IsLoopback() || addr.IsUnspecified():
		return "of the machine itself"
	case addr.IsLinkLocalUnicast():
		return "of the link"
	case addr.IsMulticast():
		return "of many"
	default:
		return ""
	}
}
