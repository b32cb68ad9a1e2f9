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
		return routeOf(&http.Request{Method: method, URL: &url.URL{Path: path}})
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
	if n := testing.AllocsPerRun(100, func() { routeOf(req) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
