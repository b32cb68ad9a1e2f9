package main

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
)

// soakTransport checks the number of requests in flight, and that none is sent during a Retry-After.
func soakTransport(s *soak, t *tally) {
	const most = 4
	base := &http.Transport{MaxIdleConnsPerHost: most}
	var l net.Listener
	host, rate, slack := "", 60., 300*time.Millisecond // calls that were admitted before it came
	if s.bubble {
		p := newPipes()
		l, base.DialContext = p, p.dial
		host, rate, slack = "soak.test", 3, time.Millisecond
	} else {
		var err error
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.breaks("%v", err)
			return
		}
		host = l.Addr().String()
	}
	v := serve(s, l, rate, 400)
	defer v.close()
	w := &watch{base: base, tally: t, most: most, slack: slack}
	parent := limits.Must(sluice.New(sluice.Config{Name: "parent", Concurrency: most}))
	transport := limits.Must(sluicehttp.New(w, sluicehttp.Config{Gate: sluice.Config{Parent: parent}}))
	defer base.CloseIdleConnections()
	c := &http.Client{Transport: transport}
	s.workers(8, 401, func(r *rand.Rand) {
		for !s.over() {
			ctx, cancel := context.WithCancel(context.Background())
			if r.IntN(10) == 0 {
				ctx, cancel = context.WithTimeout(context.Background(), time.Duration(r.Int64N(int64(time.Second))))
			}
			t.ended(get(ctx, c, "http://"+host+"/"))
			cancel()
			if s.bubble {
				s.sleep(2 * time.Second)
			}
		}
	})
	if n := w.inFlight.Load(); n != 0 {
		t.breaks("afterwards %d requests are in flight", n)
	}
	if stats := parent.Stats(); stats.InFlight != 0 || stats.Waiting != 0 {
		t.breaks("afterwards %d are in flight in the parent and %d wait", stats.InFlight, stats.Waiting)
	}
	t.note("%d requests reached the server", v.requests.Load())
}
