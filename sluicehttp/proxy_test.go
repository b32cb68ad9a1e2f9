package sluicehttp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// A proxy that refuses to connect us is asked once; one that is overloaded or broken
// is asked again, as a server is.
func TestTransport_ProxyRefuses(t *testing.T) {
	for _, c := range []struct {
		status int
		also   []int
		tries  int
	}{
		{407, nil, 1},
		{401, nil, 1},
		{403, nil, 1},
		{404, nil, 1},
		{407, []int{407}, 4},
		{408, nil, 4},
		{429, nil, 4},
		{500, nil, 4},
		{502, nil, 4},
		{503, nil, 4},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(fmt.Sprint(c.status, c.also, scheme), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					proxy := sluicetest.NewServer(sluicetest.Status(c.status))
					defer proxy.Close()
					base := proxy.Transport()
					base.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.test"})
					defer base.CloseIdleConnections()
					cfg := sluicehttp.Config{Retry: seconds, AlsoRetry: c.also}
					cfg.Retry.Throttled = sluice.Constant(time.Second)
					cfg.Gate.Adaptive.Off = true // refused calls would not count as attempts
					rt := mustTransport(t, base, cfg)
					ctx, report := sluicehttp.WithReport(bg)
					resp, err := rt.RoundTrip(request(t, ctx, "GET", scheme+"://a.test/", nil))
					switch {
					case scheme == "https" && err == nil:
						t.Error("there is an answer")
					case scheme == "http" && (err != nil || resp.StatusCode != c.status):
						t.Errorf("got %v, %v", resp, err)
					}
					if n := len(proxy.Record().Requests); n != c.tries {
						t.Errorf("the proxy was asked %d times, want %d", n, c.tries)
					}
					if err != nil && c.tries == 1 && !errors.Is(report.Last().Why, sluice.ErrPermanent) {
						t.Errorf("why: %v", report.Last().Why)
					}
					if resp != nil {
						resp.Body.Close()
					}
				})
			})
		}
	}
}

// A SOCKS proxy that wants other credentials is asked once.
func TestTransport_ProxyRefuses_SOCKS(t *testing.T) {
	for _, chosen := range []byte{0xff, 0x02} { // no method, or a password that is wrong
		synctest.Test(t, func(t *testing.T) {
			dials := 0
			base := &http.Transport{
				Proxy:       http.ProxyURL(&url.URL{Scheme: "socks5", Host: "proxy.test:1080", User: url.UserPassword("a", "b")}),
				DialContext: socks(&dials, chosen),
			}
			rt := mustTransport(t, base, sluicehttp.Config{Retry: seconds})
			if _, err := rt.RoundTrip(request(t, bg, "GET", "http://a.test/", nil)); err == nil {
				t.Error("there is an answer")
			}
			if dials != 1 {
				t.Errorf("%d dials", dials)
			}
		})
	}
}

// socks dials a SOCKS5 proxy (RFC 1928) that chooses a method and then refuses.
func socks(dials *int, chosen byte) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		*dials++
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			greeting := make([]byte, 64)
			server.Read(greeting)
			server.Write([]byte{5, chosen})
			if chosen == 2 {
				server.Read(greeting)
				server.Write([]byte{1, 1})
			}
		}()
		return client, nil
	}
}
