package sluicetest

import (
	"io"
	"net/http"
	"time"
)

// Stream answers r with server-sent events, for use in a [Handler]. It sends the header immediately
// and the events evenly over d, written as on the wire without the empty line:
//
//	sluicetest.Stream(w, r, 4*time.Second, `data: {"text":"Hi"}`, `data: [DONE]`)
//
// The header has the fields that the handler has set, and Content-Type: text/event-stream. Stream
// returns the number of events that were sent before the client gave up or the server was closed.
func Stream(w http.ResponseWriter, r *http.Request, d time.Duration, events ...string) (sent int) {
	x := exchangeOf(r)
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	if rc.Flush() != nil {
		return 0
	}
	start := time.Now()
	for i, event := range events {
		// Of the whole, so that the times of a long stream do not drift.
		due := time.Duration(float64(d) / float64(len(events)) * float64(i+1))
		if i == len(events)-1 {
			due = d
		}
		if !x.waited(due - time.Since(start)) {
			return i
		}
		if _, err := io.WriteString(w, event+"\n\n"); err != nil || rc.Flush() != nil {
			return i
		}
	}
	return len(events)
}
