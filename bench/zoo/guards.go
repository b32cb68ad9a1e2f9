package main

import (
	"math"
	"net/http"
)

// Servers whose errors are not refusals, or not only: a client that takes them for such
// becomes slow for nothing, or never stops.
func init() {
	const service = .1
	all := openTo(defaultWorkers, service+2*leastDelay+meanJitter)
	for _, s := range []server{
		{name: "honest-503-5", limiter: "none", says: "no limit; 5 % answered at once by 503", limit: all,
			handler: failing(.05, 0, ok)},
		{name: "honest-503-5-late", limiter: "none", says: "no limit; 5 % answered after their work by 503", limit: all,
			handler: failing(0, .05, ok)},
		{name: "flaky", limiter: "as the league's world of that name", says: "429, no header; 1 % 503 at once, 1 % 503 after their work", limit: bucketOf(30, 30),
			// Lognormal, with a median of 100 ms.
			times: func(_ float64, d *dice) float64 { return min(10, max(.005, .1*math.Exp(d.norm()))) },
			handler: failing(.01, .01, func(o *origin) http.Handler {
				b := newTokens(30, 30)
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, granted := b.take(1); !granted {
						http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
						return
					}
					ok(o).ServeHTTP(w, r)
				})
			})},
		{name: "down", limiter: "none", says: "503, always", limit: limit{kind: down},
			handler: failing(1, 0, ok)},
	} {
		s.group, s.service = guards, service
		add(s)
	}
}

// failing returns a handler of which a share of the calls fails immediately, and another share
// after its work.
func failing(early, late float64, handler func(o *origin) http.Handler) func(*origin) http.Handler {
	return func(o *origin) http.Handler {
		next := handler(o)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case o.chance(early):
				unavailable(w)
			case o.chance(late):
				o.work()
				unavailable(w)
			default:
				next.ServeHTTP(w, r)
			}
		})
	}
}
