package sluicetest

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// A Layer stands between the requests and what answers them: it gets what
// comes next and returns a handler that calls it, or answers by itself, or
// breaks something. It has the shape of what is called middleware elsewhere, so
// any function of that shape is a Layer.
//
// Faults, limits and handlers are layers, and so are conditions such as [On] with
// layers in them. The layers of this package work in a [Server] only, and panic
// elsewhere. One Layer may be part of several servers, or of one server twice:
// each of them counts for itself.
type Layer func(next http.Handler) http.Handler

// stack makes one layer of several, the first of them outermost.
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

// Handler lets h answer everything that gets so far, such as the application
// proper, behind the faults and limits. It panics if h is nil.
func Handler(h http.Handler) Layer {
	if h == nil {
		panic("sluicetest: nil handler")
	}
	return func(http.Handler) http.Handler { return h }
}

// When sends requests for which is reports true through layers, and others
// past them. n counts from 1 the requests that get to this condition, in the
// order in which they do. It panics if is or a layer is nil.
//
// Conditions nest: Host("a.test", On(3, Cut())) cuts the third request to that
// host.
func When(is func(n int, r *http.Request) bool, layers ...Layer) Layer {
	if is == nil {
		panic("sluicetest: nil condition")
	}
	inner := stack(layers)
	return func(next http.Handler) http.Handler {
		var seen atomic.Int64
		through := inner(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if is(int(seen.Add(1)), r) {
				through.ServeHTTP(w, r)
			} else {
				next.ServeHTTP(w, r)
			}
		})
	}
}

// On is When for the n-th request alone. It panics if n < 1.
func On(n int, layers ...Layer) Layer {
	mustBePositive("On", n)
	return When(func(i int, _ *http.Request) bool { return i == n }, layers...)
}

// First is When for the first n requests. It panics if n < 1.
func First(n int, layers ...Layer) Layer {
	mustBePositive("First", n)
	return When(func(i int, _ *http.Request) bool { return i <= n }, layers...)
}

// After is When for all requests after the first n. It panics if n < 1.
func After(n int, layers ...Layer) Layer {
	mustBePositive("After", n)
	return When(func(i int, _ *http.Request) bool { return i > n }, layers...)
}

// Every is When for every n-th request: n, 2·n, 3·n and so on. It panics if
// n < 1.
func Every(n int, layers ...Layer) Layer {
	mustBePositive("Every", n)
	return When(func(i int, _ *http.Request) bool { return i%n == 0 }, layers...)
}

// During is When for requests that arrive at from or later, and before to, both
// counted from the making of the server. It panics unless 0 ≤ from < to.
func During(from, to time.Duration, layers ...Layer) Layer {
	if from < 0 || from >= to {
		panic(fmt.Sprintf("sluicetest: During from %v to %v", from, to))
	}
	return When(func(_ int, r *http.Request) bool {
		at := exchangeOf(r).req.Arrived
		return from <= at && at < to
	}, layers...)
}

// Host is When for requests to a host: its name, with the port if the URL has
// one.
func Host(host string, layers ...Layer) Layer {
	return When(func(_ int, r *http.Request) bool { return r.Host == host }, layers...)
}

// Path is When for requests whose path begins with prefix.
func Path(prefix string, layers ...Layer) Layer {
	return When(func(_ int, r *http.Request) bool { return strings.HasPrefix(r.URL.Path, prefix) }, layers...)
}

// Script sends the first request that gets to it through the first layer, the
// second through the second and so on; nil lets that request pass. When the
// script is over all requests pass.
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
