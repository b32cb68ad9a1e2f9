package main

import "net/http"

func init() {
	add(server{
		name: "teapot-10", group: words, limiter: "a teapot", says: "418, no header",
		limit: bucketOf(10, 5), // 10 per second, 5 at once
		handler: func(o *origin) http.Handler {
			b := newTokens(10, 5)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, granted := b.take(1); !granted {
					say(w, http.StatusTeapot, "short and stout", "Content-Type", "text/plain")
					return
				}
				o.work()
				say(w, http.StatusOK, "tea")
			})
		},
	})
}
