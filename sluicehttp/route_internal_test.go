package sluicehttp

import (
	"net/http"
	"net/url"
	"testing"
)

func TestRouteName(t *testing.T) {
	for path, want := range map[string]string{
		"":                                 "GET /",
		"/":                                "GET /",
		"/search":                          "GET /search",
		"/7":                               "GET /{}",
		"/2/tweets/search/recent":          "GET /2/tweets/search/recent",
		"/repos/golang/go/issues/123":      "GET /repos/golang/go/issues/{}",
		"/v1/customers/cus_9s6XKzkNRiz8i3": "GET /v1/customers/{}",
		"/o/123e4567-e89b-12d3-a456-426614174000/x":         "GET /o/{}/x",
		"/commits/da39a3ee5e6b4b0d3255bfef95601890afd80709": "GET /commits/{}",
		"/channels/C012AB3CD/messages":                      "GET /channels/{}/messages",
		"/api/conversations.list":                           "GET /api/conversations.list",
		"/api/v10/oauth2":                                   "GET /api/v10/oauth2",
		"/a/b/c/d/e/f/g/h/i/j":                              "GET /a/b/c/d/e/f/g/h/…",
		"/defaced/facade":                                   "GET /defaced/facade",
		"//x":                                               "GET //x",
	} {
		req := &http.Request{Method: "GET", URL: &url.URL{Scheme: "https", Host: "a.test", Path: path}}
		if got := routeName(req); got != want {
			t.Errorf("%q is route %q, want %q", path, got, want)
		}
		if got := ByRoute(req); got != "https://a.test "+want {
			t.Errorf("ByRoute: %q", got)
		}
	}
}

// The number of a route is that of its name.
func TestRouteOf(t *testing.T) {
	number := func(method, path string) uint64 {
		return routeOf(&http.Request{Method: method, URL: &url.URL{Path: path}}, false)
	}
	same := [][2]string{{"/a/1", "/a/22"}, {"/a/b/c/d/e/f/g/h/i", "/a/b/c/d/e/f/g/h/j"}}
	for _, p := range same {
		if number("GET", p[0]) != number("GET", p[1]) {
			t.Errorf("%s and %s are two routes", p[0], p[1])
		}
	}
	for _, p := range [][2]string{{"/a", "/b"}, {"/a/b", "/ab"}, {"/a/1", "/b/1"}, {"/a", "/a/"}} {
		if number("GET", p[0]) == number("GET", p[1]) {
			t.Errorf("%s and %s are one route", p[0], p[1])
		}
	}
	if number("GET", "/a") == number("POST", "/a") {
		t.Error("methods are one route")
	}
	req := &http.Request{Method: "GET", URL: &url.URL{Path: "/v1/customers/cus_9s6XKzkNRiz8i3"}}
	if n := testing.AllocsPerRun(100, func() { routeOf(req, false) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// With its major parameter, a route is that of one channel, and so is its bucket.
func TestRouteOf_Major(t *testing.T) {
	of := func(path string, major bool) (uint64, string) {
		req := &http.Request{Method: "GET", URL: &url.URL{Path: path}}
		return routeOf(req, major), ofMajor("b", req)
	}
	for _, c := range []struct {
		path, other string
		same        bool // one route with its major parameter
		bucket      string
	}{
		{"/api/v10/channels/123/messages", "/api/v10/channels/124/messages", false, "channels/123 b"},
		{"/api/v10/channels/123/messages/1", "/api/v10/channels/123/messages/2", true, "channels/123 b"},
		{"/api/v10/guilds/123", "/api/v10/guilds/124", false, "guilds/123 b"},
		{"/webhooks/123/abc", "/webhooks/124/abc", false, "webhooks/123 b"},
		{"/guilds/1/channels/2", "/guilds/1/channels/3", true, "guilds/1 b"}, // the first
		{"/users/123", "/users/124", true, "b"},
		{"/channels", "/channels", true, "b"},
	} {
		route, bucket := of(c.path, true)
		if other, _ := of(c.other, true); (route == other) != c.same {
			t.Errorf("%s and %s: one route is %v, want %v", c.path, c.other, route == other, c.same)
		}
		plain, _ := of(c.path, false)
		if other, _ := of(c.other, false); plain != other {
			t.Errorf("%s and %s are two routes without a major parameter", c.path, c.other)
		}
		if bucket != c.bucket {
			t.Errorf("%s: bucket %q, want %q", c.path, bucket, c.bucket)
		}
	}
}
