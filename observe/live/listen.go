package live

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Listen serves the page at its own address, for programs without an HTTP server, until stop is
// called. url is where the page is. The address is as of [net.Listen], such as "localhost:8080", or
// "localhost:0" for a free port; without a host, as in ":8080", it is localhost and not all
// interfaces.
//
// On a loopback address only requests that name a loopback address or localhost are answered. A
// Token of fewer than 16 bytes is an error.
func (h *Handler) Listen(address string) (url string, stop func(), err error) {
	if h.Token != "" && !h.changes() {
		return "", nil, fmt.Errorf("live: the Token has fewer than %d bytes", leastToken)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", nil, fmt.Errorf("live: %w", err)
	}
	if host == "" {
		host = "localhost"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return "", nil, fmt.Errorf("live: %w", err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	if local(l.Addr().String()) { // else a web page whose name changes its address could read this one
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !local(r.Host) {
				http.Error(w, "live: want a request to localhost", http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	s.RegisterOnShutdown(h.Close)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // until stop
	}()
	stop = func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if s.Shutdown(ctx) != nil {
			_ = s.Close()
		}
		<-done
	}
	return "http://" + l.Addr().String() + "/", stop, nil
}

// local reports whether the host of host:port, or of host, is this machine.
func local(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	if n := len(host); n > 2 && host[0] == '[' && host[n-1] == ']' {
		host = host[1 : n-1]
	}
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}
