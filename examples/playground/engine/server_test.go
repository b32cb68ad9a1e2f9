package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestUpstream(t *testing.T) {
	for _, test := range []struct {
		name   string
		server Server
		calls  []float64 // when they start
		want   []string  // when the reply is back, what it is, and its Retry-After
	}{
		{
			name:   "no limit",
			server: Server{RTT: .04, Takes: []Step{{0, .1}, {1, .5}}},
			calls:  []float64{0, 0, 1},
			want:   []string{"140ms served", "140ms served", "1.54s served"},
		},
		{
			name:   "a bucket, and refusals that say how long in whole seconds",
			server: Server{Limit: []Step{{0, 2}}, Hint: true},
			calls:  []float64{0, 0, 0, .5, .6, 9, 9, 9},
			want: []string{"0s served", "0s served", "0s refused 1s", "500ms served", "600ms refused 1s",
				"9s served", "9s served", "9s refused 1s"},
		},
		{
			name:   "without a hint",
			server: Server{Limit: []Step{{0, .5}}},
			calls:  []float64{0, 0},
			want:   []string{"0s served", "0s refused -1ns"},
		},
		{
			name:   "a slow limit becomes quick: half a token by 1 s, and the rest at 10/s",
			server: Server{Limit: []Step{{0, .5}, {1, 10}}, Hint: true},
			calls:  []float64{0, .9, 1.04, 1.06},
			want:   []string{"0s served", "900ms refused 1s", "1.04s refused 1s", "1.06s served"},
		},
		{
			name:   "a wait of more than a second is rounded up",
			server: Server{Limit: []Step{{0, .4}}, Hint: true},
			calls:  []float64{0, 0},
			want:   []string{"0s served", "0s refused 3s"},
		},
		{
			name:   "closed from 1 s to 4.5 s",
			server: Server{Closed: [2]float64{1, 4.5}, Hint: true},
			calls:  []float64{.9, 1, 4.2, 4.5},
			want:   []string{"900ms served", "1s refused 4s", "4.2s refused 1s", "4.5s served"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClock()
				u := newUpstream(test.server, c)
				got := make([]string, len(test.calls))
				for i, at := range test.calls {
					c.at(seconds(at), func() {
						u.call(func(r reply) {
							got[i] = c.now().String() + " served"
							if r.outcome == refused {
								got[i] = c.now().String() + " refused " + r.retryAfter.String()
							}
						})
					})
				}
				c.run(time.Minute)
				for i, want := range test.want {
					if got[i] != want {
						t.Errorf("call %d at %g s: %q, want %q", i, test.calls[i], got[i], want)
					}
				}
			})
		})
	}
}
