package sluicehttp_test

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// A filling is a bucket.
type filling struct {
	rate, size, level float64
	at                time.Time
}

// take takes one at now, and reports whether there was one.
func (b *filling) take(now time.Time) bool {
	if b.at.IsZero() {
		b.level = b.size
	}
	b.level, b.at = min(b.size, b.level+b.rate*now.Sub(b.at).Seconds()), now
	if b.level < 1 {
		return false
	}
	b.level--
	return true
}

// say says what remains, as throttled does.
func (b *filling) say(h http.Header) {
	h.Set("X-RateLimit-Limit", strconv.Itoa(int(b.size)))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(int(b.level)))
	h.Set("X-RateLimit-Reset", "1")
}

// A bucket whose responses say what remains is used without a throttled call after the first burst: 300 calls at 50/s
// with a burst of 10 take 6.7 s at least, as each throttled call costs a second. A header that is not true of the limit
// makes them no slower than none does; one of a bucket that limits nothing makes them slower for some seconds.
func TestTransport_Refill(t *testing.T) {
	search := sluicehttp.Config{Gate: sluice.Config{Adaptive: sluice.Adaptive{Search: true}}}
	for _, c := range []struct {
		name      string
		cfg       sluicehttp.Config
		says      func() func(real *filling, h http.Header)
		most      time.Duration
		throttled int // at most
	}{
		{"no header", sluicehttp.Config{}, nil, 9 * time.Second, 27},
		{"true", sluicehttp.Config{}, func() func(*filling, http.Header) { return (*filling).say }, 7500 * ms, 22},
		{"true, search", search, func() func(*filling, http.Header) { return (*filling).say }, 7500 * ms, 2},
		{"true, disabled", sluicehttp.Config{Published: sluicehttp.Published{Disabled: true}}, func() func(*filling, http.Header) { return (*filling).say }, 9 * time.Second, 27},
		{"every other response", sluicehttp.Config{}, func() func(*filling, http.Header) {
			n := 0
			return func(b *filling, h http.Header) {
				if n++; n%2 == 0 {
					b.say(h)
				}
			}
		}, 9 * time.Second, 27},
		{"of two other buckets", sluicehttp.Config{}, func() func(*filling, http.Header) {
			n, other := 0, [2]filling{{rate: 15, size: 10}, {rate: 15, size: 10}}
			return func(b *filling, h http.Header) {
				n++
				of := &other[n/3%2]
				of.take(b.at)
				of.say(h)
			}
		}, 9 * time.Second, 27},
		{"always full", sluicehttp.Config{}, func() func(*filling, http.Header) {
			return func(_ *filling, h http.Header) { (&filling{size: 10, level: 9}).say(h) }
		}, 9 * time.Second, 27},
		{"of a bucket that limits nothing", sluicehttp.Config{}, func() func(*filling, http.Header) {
			other := filling{rate: 12, size: 10}
			return func(b *filling, h http.Header) {
				other.take(b.at)
				other.say(h)
			}
		}, 18 * time.Second, 27},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bucket := &filling{rate: 50, size: 10}
			srv := &limiter{random: rand.New(rand.NewPCG(1, 2))}
			say := func(*filling, http.Header) {}
			if c.says != nil {
				say = c.says()
			}
			srv.grant = func(now time.Time, h http.Header) bool {
				ok := bucket.take(now)
				if say(bucket, h); !ok {
					h.Set("Retry-After", "1")
				}
				return ok
			}
			inWorld(t, c.cfg, layers(sluicetest.Handler(srv)), func(w *world) {
				w.calls(32, 300)
				t.Logf("%v, %d throttled", w.now(), srv.refused)
				if c.cfg.Published.Disabled && w.now() < 8*time.Second {
					t.Errorf("300 calls took only %v: what remains was used", w.now())
				}
				if w.now() > c.most || srv.refused > c.throttled {
					t.Errorf("300 calls took %v, %d were throttled", w.now(), srv.refused)
				}
			})
		})
	}
}

// A tardy server grants a call and answers after that time.
type tardy struct {
	*limiter
	by time.Duration
}

func (s tardy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.between(4*ms, 6*ms)
	s.mu.Lock()
	granted := s.grant(time.Now(), w.Header())
	if s.sent++; !granted {
		s.refused++
	}
	s.mu.Unlock()
	if !granted {
		s.between(4*ms, 6*ms)
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	s.between(s.by*8/10, s.by*12/10)
	s.between(4*ms, 6*ms)
}

// A response that comes after more calls than the bucket holds says nothing of it: 1,500 calls at 50/s with a burst of 10,
// answered after a second, took 40 s and 270 were throttled. Without the header it is 36 s, and seven.
func TestTransport_Refill_Late(t *testing.T) {
	for seed := range uint64(6) {
		bucket := &filling{rate: 50, size: 10}
		srv := tardy{&limiter{random: rand.New(rand.NewPCG(1, seed))}, time.Second}
		srv.grant = func(now time.Time, h http.Header) bool {
			granted := bucket.take(now)
			if bucket.say(h); !granted {
				h.Set("Retry-After", "1")
			}
			return granted
		}
		inWorld(t, sluicehttp.Config{}, layers(sluicetest.Handler(srv)), func(w *world) {
			w.calls(400, 1500)
			if w.now() > 38*time.Second || srv.refused > 20 {
				t.Errorf("%d: 1,500 calls took %v, %d were throttled", seed, w.now(), srv.refused)
			}
		})
	}
}
