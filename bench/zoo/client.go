package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// A caller makes one call by way of a client and returns nil if it was granted, and an
// *answer if the client has come back with one that is no success.
type caller func(ctx context.Context, item int) error

// An answer is a response that is no success.
type answer struct {
	status     int
	retryAfter string
}

func (a *answer) Error() string { return fmt.Sprintf("the client gave up: status %d", a.status) }

// A client is one way to call a server. Where the functions return said, it tells what the
// client believes at the end.
type client struct {
	name    string
	about   string
	listed  bool // in the default list
	workers int  // 0: as -workers says
	http    func(t *target) (do caller, said func() string)
	grpc    func(t *target) (do caller, said func() string) // nil: it has no gRPC
}

// A target is what a client is to call.
type target struct {
	url     string
	tap     *tap
	server  *server
	trace   func(string) // nil: do not
	cleanup func(func())
}

func silent() string { return "" }

// get makes calls by way of an http.Client.
func (t *target) get(c *http.Client) caller {
	r := t.server.request
	return func(ctx context.Context, item int) error {
		var body io.Reader
		if r.body != nil {
			body = bytes.NewReader([]byte(r.body(item)))
		}
		req, err := http.NewRequestWithContext(ctx, cmp.Or(r.method, http.MethodGet), t.url+cmp.Or(r.path, "/"), body)
		if err != nil {
			return err
		}
		if r.contentType != "" {
			req.Header.Set("Content-Type", r.contentType)
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
		if t.server.refused(resp.StatusCode, text) {
			return &answer{resp.StatusCode, resp.Header.Get("Retry-After")}
		}
		return nil
	}
}

// chooseClients returns the clients of a comma-separated list. a+b are two that share the
// limit of a server.
func chooseClients(list string) (chosen [][]*client, err error) {
	if list == "" {
		for i := range clients {
			if clients[i].listed {
				chosen = append(chosen, []*client{&clients[i]})
			}
		}
		return chosen, nil
	}
	for _, names := range strings.Split(list, ",") {
		var together []*client
		for _, name := range strings.Split(names, "+") {
			i := slices.IndexFunc(clients, func(c client) bool { return c.name == name })
			if i < 0 {
				return nil, fmt.Errorf("no client is called %s: -list", name)
			}
			together = append(together, &clients[i])
		}
		chosen = append(chosen, together)
	}
	return chosen, nil
}

func namesOf(together []*client) string {
	var names []string
	for _, c := range together {
		names = append(names, c.name)
	}
	return strings.Join(names, "+")
}
