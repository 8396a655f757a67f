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

// newClient makes the client of the job http. It keeps connections, goes
// through no proxy, follows no redirect and unpacks nothing.
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            dial,
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
// list that says it may lead to. The address is looked at when the connection
// is made, so a name that changes its address between two looks gains nothing.
func dial(ctx context.Context, network, hostport string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: 10 * time.Second, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		return checkAddress(host, address)
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

// checkAddress refuses to connect to a special address by a name. Whoever
// wrote the address, or localhost, into the list has meant it.
func checkAddress(host, address string) error {
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
	if kind := special(addr); kind != "" {
		return &addressError{host: host, address: to.Addr(), kind: kind}
	}
	return nil
}

// innermost returns the IPv4 address inside one that is translated on its way.
func innermost(addr netip.Addr) netip.Addr {
	if !addr.Is6() {
		return addr
	}
	b := addr.As16()
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(addr), netip.MustParsePrefix("::/96").Contains(addr) && b[12] != 0:
		return netip.AddrFrom4([4]byte(b[12:]))
	case netip.MustParsePrefix("2002::/16").Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6]))
	default:
		return addr
	}
}

// special names what kind of address is not the address of a server somewhere.
func special(addr netip.Addr) string {
	for _, cloud := range []string{"169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254"} {
		if addr == netip.MustParseAddr(cloud) {
			return "where a cloud answers with credentials"
		}
	}
	switch {
	case addr.IsLoopback() || netip.MustParsePrefix("0.0.0.0/8").Contains(addr) || addr.IsUnspecified():
		return "of the machine itself"
	case addr.IsLinkLocalUnicast():
		return "of the link"
	case addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "of many"
	default:
		return ""
	}
}
