package sluicehttp_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/sluice-go/sluice/sluicehttp"
)

// All spellings of one server share its gate, and no others do.
func TestTransport_Key_Spellings(t *testing.T) {
	servers := map[string][]string{
		"http://example.test": {
			"http://example.test/", "http://example.test", "http://EXAMPLE.test/", "HTTP://Example.Test/", "http://example.test:80/", "http://example.test./",
			"http://example.test.:80/", "http://example.test:/", "http://example.test:080/", "http://example.test:0000080/",
			"http://user:password@example.test/", "http://example.test/path?query#fragment",
			"http://ｅｘａｍｐｌｅ.test/", "http://example。test/", "http://example.test。/",
		},
		"https://example.test":      {"https://example.test/", "https://example.test:443/", "https://example.test.:0443/"},
		"https://example.test:80":   {"https://example.test:80/", "https://example.test:080/"},
		"http://example.test:443":   {"http://example.test:443/", "http://EXAMPLE.test.:0443/"},
		"http://example.test:8080":  {"http://example.test:8080/", "http://Example.test:08080"},
		"http://xn--bcher-kva.test": {"http://bücher.test/", "http://BÜCHER.test/", "http://xn--bcher-kva.test/", "http://XN--BCHER-KVA.test:80", "http://bu\u0308cher.test./"},
		"http://[::1]":              {"http://[::1]/", "http://[0:0:0:0:0:0:0:1]/", "http://[0000::0001]:80/", "http://[::1]:"},
		"http://[2001:db8::a]:8080": {"http://[2001:db8::a]:8080/", "http://[2001:DB8:0::A]:8080/", "http://[2001:0db8:0000:0000:0000:0000:0000:000a]:08080/"},
		"http://127.0.0.1":          {"http://127.0.0.1/", "http://[::ffff:127.0.0.1]/", "http://[::FFFF:7f00:1]:80/", "http://127.0.0.1./"},
		"http://127.0.0.1:8080":     {"http://127.0.0.1:8080/"},
		"http://[fe80::1%eth0]":     {"http://[fe80::1%25eth0]/", "http://[FE80:0::1%25eth0]:80/"},
		"http://[fe80::1%ETH0]":     {"http://[fe80::1%25ETH0]/"},
		"http://a_b.test":           {"http://a_b.test/", "http://A_B.test/"},
		"http://a.test":             {"http://a.test"},
	}
	for want, urls := range servers {
		for _, u := range urls {
			rt := mustTransport(t, instant{header: http.Header{}}, sluicehttp.Config{})
			for range 2 { // the second time it is the most recent
				if _, err := rt.RoundTrip(request(t, bg, "GET", u, nil)); err != nil {
					t.Errorf("%s: %v", u, err)
				}
			}
			if _, err := rt.RoundTrip(request(t, bg, "GET", urls[0], nil)); err != nil {
				t.Errorf("%s: %v", want, err)
			}
			gates := make(map[string]uint64)
			rt.Stats(func(key string, s sluicehttp.Stats) bool {
				gates[key] = s.Granted
				return true
			})
			if len(gates) != 1 || gates[want] != 3 {
				t.Errorf("%s: gates %v, want %s", u, gates, want)
			}
		}
	}
}

// A host that no server can have gets some key, and no panic.
func TestTransport_Key_InvalidHosts(t *testing.T) {
	for _, host := range []string{"", ".", "..", ":", ":80", "[", "[]", "]", "[::1", "::1", "a.test:http", "a.test:-1", "a b", "\xff", "[\xff]", "%", "xn--\u0000", "a:b:c", "[::1]x"} {
		rt := mustTransport(t, instant{header: http.Header{}}, sluicehttp.Config{})
		req := &http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: host}, Header: http.Header{}}
		if _, err := rt.RoundTrip(req); err != nil {
			t.Errorf("%q: %v", host, err)
		}
		stats(t, rt)
	}
}

func BenchmarkKey(b *testing.B) {
	for _, host := range []string{"api.example.com", "api.example.com:8080", "API.example.com", "bücher.example.com"} {
		b.Run(host, func(b *testing.B) {
			u := &url.URL{Scheme: "http", Host: host}
			b.ReportAllocs()
			for b.Loop() {
				sluicehttp.KeyOf(u)
			}
		})
	}
}
