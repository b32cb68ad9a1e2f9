package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// A privateError is the error of a connection to an address that is not on the public
// internet.
type privateError struct{ addr netip.Addr }

func (e *privateError) Error() string {
	return fmt.Sprintf("%v is not a public address", e.addr)
}

// reserved are the blocks that are neither private by [netip.Addr] nor public.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // of carriers; clouds have services there
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("2001::/23"), // Teredo and others
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"), // 6to4
	netip.MustParsePrefix("3fff::/20"),
}

var (
	unicast6 = netip.MustParsePrefix("2000::/3")
	nat64    = netip.MustParsePrefix("64:ff9b::/96") // has an IPv4 address in its last 4 bytes
)

// public reports whether addr is on the public internet.
func public(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) {
		b := addr.As16()
		return public(netip.AddrFrom4([4]byte(b[12:])))
	}
	if addr.Is6() && !unicast6.Contains(addr) || !addr.IsGlobalUnicast() || addr.IsPrivate() {
		return false
	}
	for _, block := range reserved {
		if block.Contains(addr) {
			return false
		}
	}
	return true
}

// onlyPublic is a net.Dialer.ControlContext: it is called after the name was resolved, with the
// address that is about to be connected to, so a name cannot resolve to another one afterwards.
func onlyPublic(_ context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !public(to.Addr()) {
		return &privateError{to.Addr()}
	}
	return nil
}

// newBase returns the transport to the server of target. Unless open, it connects only to
// public addresses, or to the proxy that the environment sets for the server.
func newBase(target *url.URL, open bool, headers time.Duration) *http.Transport {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConns, base.MaxIdleConnsPerHost = 0, 256 // it has one host
	base.ResponseHeaderTimeout = headers
	base.MaxResponseHeaderBytes = maxHeader
	if open {
		return base
	}
	proxied := "" // the host and port of a proxy that the user has set
	if via, err := base.Proxy(&http.Request{URL: target}); err == nil && via != nil {
		proxied = hostPort(via)
	}
	free := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	checked := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, ControlContext: onlyPublic}
	base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if proxied != "" && address == proxied {
			return free.DialContext(ctx, network, address)
		}
		return checked.DialContext(ctx, network, address)
	}
	return base
}

// hostPort returns the host and port of a proxy as net/http dials them.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// retryable is a RetryPolicy.Retryable. A refusal of onlyPublic is final.
func retryable(err error) bool {
	_, private := errors.AsType[*privateError](err)
	return !private
}

// A departing tells a call when it is sent and when it is not under way any more, and may have to
// wait again. It is below the gates.
type departing struct{ base http.RoundTripper }

func (d departing) RoundTrip(req *http.Request) (*http.Response, error) {
	c := callOf(req.Context())
	c.depart()
	resp, err := d.base.RoundTrip(req)
	if err != nil || resp.StatusCode >= http.StatusBadRequest {
		c.wait()
	}
	return resp, err
}

func (d departing) CloseIdleConnections() {
	if c, ok := d.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
