package sluicetest

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
)

// A Layer is middleware: it takes the next handler and returns one that calls it, answers on its
// own, or breaks something.
//
// The layers of this package work only in a [Server] and panic elsewhere. A Layer may be used
// several times; each use counts for itself.
type Layer func(next http.Handler) http.Handler

// stack makes one layer of several, the first one outermost.
func stack(layers []Layer) Layer {
	for i, layer := range layers {
		if layer == nil {
			panic(fmt.Sprintf("sluicetest: layer %d is nil", i+1))
		}
	}
	return func(next http.Handler) http.Handler {
		for i := len(layers) - 1; i >= 0; i-- {
			next = layers[i](next)
		}
		return next
	}
}

// Handler answers every request with h. It panics if h is nil.
func Handler(h http.Handler) Layer {
	if h == nil {
		panic("sluicetest: nil handler")
	}
	return func(http.Handler) http.Handler { return h }
}

// When passes a request through layers if match returns true for it, and around them if
// not. n counts from 1 the requests that reach this condition. It panics if match or a
// layer is nil.
//
// Conditions nest: Host("a.test", On(3, Cut())).
func When(match func(n int, r *http.Request) bool, layers ...Layer) Layer {
	if match == nil {
		panic("sluicetest: nil condition")
	}
	inner := stack(layers)
	return func(next http.Handler) http.Handler {
		var seen atomic.Int64
		through := inner(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if match(int(seen.Add(1)), r) {
				through.ServeHTTP(w, r)
			} else {
				next.ServeHTTP(w, r)
			}
		})
	}
}

// On is When for the n-th request only. It panics if n < 1.
func On(n int, layers ...Layer) Layer {
	mustBePositive("On", n)
	return When(func(i int, _ *http.Request) bool { return i == n }, layers...)
}

// First is When for the first n requests. It panics if n < 1.
func First(n int, layers ...Layer) Layer {
	mustBePositive("First", n)
	return When(func(i int, _ *http.Request) bool { return i <= n }, layers...)
}

// Every is When for every n-th request: n, 2n, 3n and so on. It panics if n < 1.
func Every(n int, layers ...Layer) Layer {
	mustBePositive("Every", n)
	return When(func(i int, _ *http.Request) bool { return i%n == 0 }, layers...)
}

// Host is When for requests to one host: its name, with the port if the URL has one.
func Host(host string, layers ...Layer) Layer {
	return When(func(_ int, r *http.Request) bool { return r.Host == host }, layers...)
}

// Path is When for requests whose path begins with prefix.
func Path(prefix string, layers ...Layer) Layer {
	return When(func(_ int, r *http.Request) bool { return strings.HasPrefix(r.URL.Path, prefix) }, layers...)
}

// Script passes the first request through the first layer, the second through the second
// layer, and so on; nil stands for no layer. Requests after the last layer pass.
//
//	sluicetest.Script(sluicetest.Status(429), nil, sluicetest.Cut())
func Script(layers ...Layer) Layer {
	return func(next http.Handler) http.Handler {
		var seen atomic.Int64
		handlers := make([]http.Handler, len(layers))
		for i, layer := range layers {
			handlers[i] = next
			if layer != nil {
				handlers[i] = layer(next)
			}
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if i := int(seen.Add(1)) - 1; i < len(handlers) {
				handlers[i].ServeHTTP(w, r)
			} else {
				next.ServeHTTP(w, r)
			}
		})
	}
}

func mustBePositive(what string, n int) {
	if n < 1 {
		panic(fmt.Sprintf("sluicetest: %s(%d): requests count from 1", what, n))
	}
}
