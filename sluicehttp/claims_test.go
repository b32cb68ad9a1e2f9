package sluicehttp_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// A limiter is a server that limits requests as a library of others does, with the headers of that
// library. It is 4 to 6 ms away and works for 5 to 30 ms.
type limiter struct {
	grant func(now time.Time, h http.Header) bool

	mu            sync.Mutex
	random        *rand.Rand
	sent, refused int
	last          time.Time // when a request was granted
}

func (s *limiter) between(least, most time.Duration) {
	s.mu.Lock()
	d := least + time.Duration(s.random.Float64()*float64(most-least))
	s.mu.Unlock()
	time.Sleep(d)
}

func (s *limiter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.between(4*ms, 6*ms)
	s.mu.Lock()
	now := time.Now()
	ok := s.grant(now, w.Header())
	s.sent++
	if ok {
		s.last = now
	} else {
		s.refused++
	}
	s.mu.Unlock()
	if ok {
		s.between(5*ms, 30*ms)
	}
	s.between(4*ms, 6*ms)
	if !ok {
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// whole returns d in whole seconds, rounded up.
func whole(d time.Duration) string {
	return strconv.Itoa(int((d + time.Second - 1) / time.Second))
}

// An npmWindow begins with a request and ends after its length: express-rate-limit 8.2,
// @fastify/rate-limit 11.2, koa-ratelimit 6.0 with their stores in memory.
type npmWindow struct {
	n    int
	per  time.Duration
	used int
	end  time.Time
}

func (l *npmWindow) take(now time.Time) (remaining int, left time.Duration, ok bool) {
	if !l.end.After(now) {
		l.used, l.end = 0, now.Add(l.per)
	}
	l.used++
	return max(0, l.n-l.used), l.end.Sub(now), l.used <= l.n
}

func (l *npmWindow) express(now time.Time, h http.Header) bool {
	remaining, left, ok := l.take(now)
	h.Set("RateLimit", fmt.Sprintf(`"20-in-1sec"; r=%d; t=%s`, remaining, whole(left)))
	h.Set("RateLimit-Policy", fmt.Sprintf(`"20-in-1sec"; q=%d; w=%s; pk=:ZWE3OTNlYzhmNzM5:`, l.n, whole(l.per)))
	if !ok {
		h.Set("Retry-After", whole(left))
	}
	return ok
}

func (l *npmWindow) fastify(now time.Time, h http.Header) bool {
	remaining, left, ok := l.take(now)
	h.Set("X-RateLimit-Limit", strconv.Itoa(l.n))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(remaining))
	h.Set("X-RateLimit-Reset", whole(left))
	if !ok {
		h.Set("Retry-After", whole(left))
	}
	return ok
}

// legacy is express-rate-limit with the fields that it sends by default: its Reset is the time of the end, rounded up.
func (l *npmWindow) legacy(now time.Time, h http.Header) bool {
	remaining, left, ok := l.take(now)
	h.Set("X-RateLimit-Limit", strconv.Itoa(l.n))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(remaining))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(l.end.Add(time.Second-1).Unix(), 10))
	if !ok {
		h.Set("Retry-After", whole(left))
	}
	return ok
}

// The Reset of ulule/limiter is the time of the end, rounded down, and it has no Retry-After.
func (l *npmWindow) ulule(now time.Time, h http.Header) bool {
	remaining, _, ok := l.take(now)
	h.Set("X-RateLimit-Limit", strconv.Itoa(l.n))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(remaining))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(l.end.Unix(), 10))
	return ok
}

// The Reset of koa-ratelimit is exact, but the Date to compare it with is not, and its
// Retry-After is rounded down.
func (l *npmWindow) koa(now time.Time, h http.Header) bool {
	remaining, left, ok := l.take(now)
	h.Set("X-RateLimit-Limit", strconv.Itoa(l.n))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(remaining))
	h.Set("X-RateLimit-Reset", strconv.FormatFloat(float64(l.end.UnixMicro())/1e6, 'f', -1, 64))
	if !ok {
		h.Set("Retry-After", strconv.Itoa(int(left/time.Second)))
	}
	return ok
}

// aligned has windows that begin with each second.
func aligned(n int, retryAfter bool) func(time.Time, http.Header) bool {
	var second time.Time
	used := 0
	return func(now time.Time, h http.Header) bool {
		if s := now.Truncate(time.Second); s != second {
			second, used = s, 0
		}
		used++
		left := second.Add(time.Second).Sub(now)
		h.Set("X-RateLimit-Limit", strconv.Itoa(n))
		h.Set("X-RateLimit-Remaining", strconv.Itoa(max(0, n-used)))
		h.Set("X-RateLimit-Reset", whole(left))
		if used > n && retryAfter {
			h.Set("Retry-After", whole(left))
		}
		return used <= n
	}
}

// anyWindow has n in a window of a second that begins with the first call after the one before.
func anyWindow(n int) func(time.Time, http.Header) bool {
	var end time.Time
	used := 0
	return func(now time.Time, h http.Header) bool {
		if !now.Before(end) {
			end, used = now.Add(time.Second), 0
		}
		used++
		h.Set("X-RateLimit-Limit", strconv.Itoa(n))
		h.Set("X-RateLimit-Remaining", strconv.Itoa(max(0, n-used)))
		h.Set("X-RateLimit-Reset", whole(end.Sub(now)))
		if used > n {
			h.Set("Retry-After", whole(end.Sub(now)))
		}
		return used <= n
	}
}

// gcra is throttled/throttled 2.15: its Reset is when the bucket is full, its limit the burst.
func gcra(rate float64, burst int) func(time.Time, http.Header) bool {
	interval := time.Duration(float64(time.Second) / rate)
	tolerance := interval * time.Duration(burst)
	var tat time.Time
	return func(now time.Time, h http.Header) bool {
		if tat.Before(now) {
			tat = now
		}
		next := tat.Add(interval)
		wait := next.Add(-tolerance).Sub(now)
		if wait <= 0 {
			tat = next
		}
		full := tat.Sub(now)
		h.Set("X-RateLimit-Limit", strconv.Itoa(burst))
		h.Set("X-RateLimit-Remaining", strconv.Itoa(int((tolerance-full)/interval)))
		h.Set("X-RateLimit-Reset", whole(full))
		if wait > 0 {
			h.Set("Retry-After", whole(wait))
		}
		return wait <= 0
	}
}

// limitd is auth0/limitd: a bucket that says when it is full, in seconds since 1970, and nothing else.
func limitd(rate, burst float64) func(time.Time, http.Header) bool {
	level, at := burst, time.Time{}
	return func(now time.Time, h http.Header) bool {
		if !at.IsZero() {
			level = min(burst, level+rate*now.Sub(at).Seconds())
		}
		at = now
		ok := level >= 1
		if ok {
			level--
		}
		full := now.Add(time.Duration((burst - level) / rate * float64(time.Second)))
		h.Set("X-RateLimit-Limit", strconv.Itoa(int(burst)))
		h.Set("X-RateLimit-Remaining", strconv.Itoa(int(level)))
		h.Set("X-RateLimit-Reset", strconv.FormatInt(full.Add(time.Second-1).Unix(), 10))
		return ok
	}
}

// tollbooth is didip/tollbooth 7: the limit is the rate, Reset is always 1, and there is no
// Retry-After.
func tollbooth(rate float64, burst int) func(time.Time, http.Header) bool {
	level, at := float64(burst), time.Time{}
	return func(now time.Time, h http.Header) bool {
		if !at.IsZero() {
			level = min(float64(burst), level+rate*now.Sub(at).Seconds())
		}
		at = now
		ok := level >= 1
		if ok {
			level--
		}
		h.Set("RateLimit-Limit", strconv.Itoa(int(rate)))
		h.Set("RateLimit-Reset", "1")
		h.Set("RateLimit-Remaining", strconv.Itoa(int(level)))
		return ok
	}
}

// httprate is go-chi/httprate 0.16: a sliding count over two windows, and the end of the present
// one as its Reset, which is rounded down.
func httprate(n int, per time.Duration) func(time.Time, http.Header) bool {
	var begin time.Time
	var before, used int
	return func(now time.Time, h http.Header) bool {
		if begin.IsZero() {
			begin = now
		}
		for now.Sub(begin) >= per {
			begin, before, used = begin.Add(per), used, 0
		}
		share := 1 - float64(now.Sub(begin))/float64(per)
		count := int(math.Round(float64(before)*share + float64(used)))
		ok := count+1 <= n
		if ok {
			used, count = used+1, count+1
		} else {
			h.Set("Retry-After", whole(per))
		}
		h.Set("X-RateLimit-Limit", strconv.Itoa(n))
		h.Set("X-RateLimit-Reset", strconv.FormatInt(begin.Add(per).Unix(), 10))
		h.Set("X-RateLimit-Remaining", strconv.Itoa(n-count))
		return ok
	}
}

// linear is a leaky bucket with the headers of Linear: of n requests in per, and when it is full.
func linear(n float64, per time.Duration) func(time.Time, http.Header) bool {
	level, at := n, time.Time{}
	return func(now time.Time, h http.Header) bool {
		if !at.IsZero() {
			level = min(n, level+n*now.Sub(at).Seconds()/per.Seconds())
		}
		at = now
		ok := level >= 1
		if ok {
			level--
		}
		full := now.Add(time.Duration((n - level) / n * float64(per)))
		h.Set("X-RateLimit-Requests-Limit", strconv.Itoa(int(n)))
		h.Set("X-RateLimit-Requests-Remaining", strconv.Itoa(int(level)))
		h.Set("X-RateLimit-Requests-Reset", strconv.FormatInt(full.UnixMilli(), 10))
		return ok
	}
}

// What is left of a limit if headers are believed only as far as they prove true.
func TestTransport_Claims(t *testing.T) {
	told := func(count int64) sluicehttp.Config {
		return sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: count, Per: time.Second}}}
	}
	npm := func() *npmWindow { return &npmWindow{n: 20, per: time.Second} }
	second := time.Second
	for _, c := range []struct {
		name    string
		grant   func() func(time.Time, http.Header) bool
		cfg     sluicehttp.Config
		calls   int
		ideal   time.Duration // at the limit
		least   float64       // of the ideal
		refused float64       // of all, at most
	}{
		// x/time/rate with cenkalti/backoff gets 92 % of these three.
		{"express, told", func() func(time.Time, http.Header) bool { return npm().express }, told(20), 520, 25 * second, .93, 0},
		{"fastify, told", func() func(time.Time, http.Header) bool { return npm().fastify }, told(20), 520, 25 * second, .93, 0},
		{"koa, told", func() func(time.Time, http.Header) bool { return npm().koa }, told(20), 520, 25 * second, .91, .01},
		{"express", func() func(time.Time, http.Header) bool { return npm().express }, sluicehttp.Config{}, 520, 25 * second, .86, .05},
		{"koa", func() func(time.Time, http.Header) bool { return npm().koa }, sluicehttp.Config{}, 520, 25 * second, .86, .05},
		// Short windows become the rate: see window.go.
		{"fastify", func() func(time.Time, http.Header) bool { return npm().fastify }, sluicehttp.Config{}, 520, 25 * second, .90, .05},
		{"50 a second", func() func(time.Time, http.Header) bool { return aligned(50, true) }, sluicehttp.Config{}, 3000, 60 * second, .95, .02},
		{"50 a second, soon", func() func(time.Time, http.Header) bool { return anyWindow(50) }, sluicehttp.Config{}, 500, 9 * second, .82, .15},
		// Responses come too unevenly to see each time which call takes the last unit: see last.go. Without that 90.9 % here.
		{"50 a second, any window", func() func(time.Time, http.Header) bool { return anyWindow(50) }, sluicehttp.Config{}, 3000, 59 * second, .94, .01},
		// What is published is no window of a second. As one it was used for an hour.
		{"a reset that is always a second", func() func(time.Time, http.Header) bool { return always("1", 50, 10*second) }, sluicehttp.Config{}, 250, 40 * second, .60, .15},
		{"the same, told 20", func() func(time.Time, http.Header) bool { return always("1", 50, 10*second) }, told(20), 250, 40 * second, .60, .15},
		{"nothing ever remains", func() func(time.Time, http.Header) bool { return neverRemains(276, 14) }, sluicehttp.Config{}, 3000, 11 * second, .55, .1},
		{"200 a second", func() func(time.Time, http.Header) bool { return anyWindow(200) }, sluicehttp.Config{}, 12000, 60 * second, .95, .01},
		{"20 in 2 s", func() func(time.Time, http.Header) bool { return (&npmWindow{n: 20, per: 2 * second}).fastify }, sluicehttp.Config{}, 520, 50 * second, .88, .05},
		// Each window ends without a throttled call, and the next one begins at full speed.
		{"100 in 20 s", func() func(time.Time, http.Header) bool { return (&npmWindow{n: 100, per: 20 * second}).express }, sluicehttp.Config{}, 400, 60 * second, .95, .006},
		{"200 a minute", func() func(time.Time, http.Header) bool { return (&npmWindow{n: 200, per: 60 * second}).express }, sluicehttp.Config{}, 400, 60 * second, .95, .003},
		// Without headers 60.7 s.
		{"a true rate", func() func(time.Time, http.Header) bool { return aligned(50, false) }, told(50), 3000, 60 * second, 60. / 62, .001},
		{"a true rate, Retry-After", func() func(time.Time, http.Header) bool { return aligned(50, true) }, told(50), 3000, 60 * second, 60. / 62, .001},
		// The same, but the windows begin with a call, see last.go.
		{"a true rate, any window", func() func(time.Time, http.Header) bool { return anyWindow(50) }, told(50), 3000, 60 * second, 60. / 62, 0},
		{"throttled", func() func(time.Time, http.Header) bool { return gcra(20, 5) }, sluicehttp.Config{}, 6005, 300 * second, .85, .03},
		{"throttled, told", func() func(time.Time, http.Header) bool { return gcra(20, 5) }, told(20), 6005, 300 * second, .99, 0},
		{"throttled, burst of 1", func() func(time.Time, http.Header) bool { return gcra(20, 1) }, sluicehttp.Config{}, 6001, 300 * second, .85, .03},
		// Only the reset shows that it is a bucket, and it is full after a few roundings. Each burst had waited for that: 88 %.
		{"limitd", func() func(time.Time, http.Header) bool { return limitd(2, 10) }, sluicehttp.Config{}, 190, 90 * second, .95, .18},
		{"tollbooth", func() func(time.Time, http.Header) bool { return tollbooth(20, 5) }, sluicehttp.Config{}, 6005, 300 * second, .85, .03},
		{"tollbooth, told", func() func(time.Time, http.Header) bool { return tollbooth(20, 5) }, told(20), 6005, 300 * second, .99, 0},
		{"httprate", func() func(time.Time, http.Header) bool { return httprate(20, second) }, sluicehttp.Config{}, 2400, 120 * second, .95, .03},
		// It refuses only the first calls at 20/s, for which the gate then goes a little slower.
		{"httprate, told", func() func(time.Time, http.Header) bool { return httprate(20, second) }, told(20), 2400, 120 * second, .95, .01},
		// The same where published limits are counted.
		{"express, counted", func() func(time.Time, http.Header) bool { return npm().express }, sluicehttp.Config{Cost: one}, 520, 25 * second, .88, .02},
		{"throttled, counted", func() func(time.Time, http.Header) bool { return gcra(20, 5) }, sluicehttp.Config{Cost: one}, 2405, 120 * second, .50, .03},
		{"Linear, counted", func() func(time.Time, http.Header) bool { return linear(1500, time.Hour) }, sluicehttp.Config{Cost: one}, 1700, 480 * second, .80, .1},
		{"Linear", func() func(time.Time, http.Header) bool { return linear(1500, time.Hour) }, sluicehttp.Config{}, 1700, 480 * second, .80, .1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.calls > 3000 {
				if testing.Short() {
					t.Skip("five minutes at 20/s")
				}
				built.SkipRaced(t)
			}
			t.Parallel()
			srv := &limiter{random: rand.New(rand.NewPCG(1, 2))}
			inWorld(t, c.cfg, layers(sluicetest.Handler(srv)), func(w *world) {
				time.Sleep(234 * ms) // no server begins with a second
				begin := time.Now()
				srv.grant = c.grant()
				w.calls(32, c.calls)
				share := c.ideal.Seconds() / srv.last.Sub(begin).Seconds()
				refused := float64(srv.refused) / float64(srv.sent)
				t.Logf("%.1f %% of the limit, %.1f %% refused", 100*share, 100*refused)
				if share < c.least || refused > c.refused {
					t.Errorf("%.1f %% of the limit, %.2f %% refused; want %.0f, at most %.1f", 100*share, 100*refused, 100*c.least, 100*c.refused)
				}
			})
		})
	}
}

// At a configured rate that is the published one, no call is throttled, also where windows begin with a call, so that the
// call after the last one comes a moment too early or too late, and responses come unevenly.
func TestTransport_Claims_ConfiguredRate(t *testing.T) {
	built.SkipRaced(t)
	for name, c := range map[string]struct {
		rate, calls int
		took        time.Duration // until the last call, at most
		grant       func(l *npmWindow) func(time.Time, http.Header) bool
	}{
		// x/time/rate with cenkalti/backoff needs 27.1 s in the mean, and 3 % are throttled. With one throttled call 27.7 s.
		"20 a second, a reset as a time":      {20, 521, 27 * time.Second, func(l *npmWindow) func(time.Time, http.Header) bool { return l.legacy }},
		"20 a second, a reset in seconds":     {20, 521, 27 * time.Second, func(l *npmWindow) func(time.Time, http.Header) bool { return l.fastify }},
		"50 a second, a reset in seconds":     {50, 1000, 20700 * ms, func(l *npmWindow) func(time.Time, http.Header) bool { return l.fastify }},
		"50 a second, a reset that is stated": {50, 1000, 20700 * ms, func(l *npmWindow) func(time.Time, http.Header) bool { return l.express }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(8) {
				srv := &limiter{random: rand.New(rand.NewPCG(1, seed))}
				cfg := sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: int64(c.rate), Per: time.Second}}}
				inWorld(t, cfg, layers(sluicetest.Handler(srv)), func(w *world) {
					time.Sleep(time.Duration(34+125*seed) * ms) // the server begins at any time of a second
					begin := time.Now()
					srv.grant = c.grant(&npmWindow{n: c.rate, per: time.Second})
					w.calls(32, c.calls)
					if took := srv.last.Sub(begin); took > c.took || srv.refused > 0 {
						t.Errorf("seed %d: %v, %d throttled; want at most %v and none", seed, took, srv.refused, c.took)
					}
				})
			}
		})
	}
}

// always grants n in each window of per, and says a reset and a Retry-After of after, in any state.
func always(after string, n int, per time.Duration) func(time.Time, http.Header) bool {
	var end time.Time
	used := 0
	return func(now time.Time, h http.Header) bool {
		if !now.Before(end) {
			used, end = 0, now.Add(per)
		}
		used++
		h.Set("X-RateLimit-Limit", strconv.Itoa(n))
		h.Set("X-RateLimit-Remaining", strconv.Itoa(max(0, n-used)))
		h.Set("X-RateLimit-Reset", after)
		if used > n {
			h.Set("Retry-After", after)
		}
		return used <= n
	}
}

// neverRemains is a bucket of rate that holds burst and says that nothing remains.
func neverRemains(rate, burst float64) func(time.Time, http.Header) bool {
	have, last := burst, time.Time{}
	return func(now time.Time, h http.Header) bool {
		if !last.IsZero() {
			have = min(burst, have+rate*now.Sub(last).Seconds())
		}
		last = now
		h.Set("X-RateLimit-Limit", fmt.Sprint(burst))
		h.Set("X-RateLimit-Remaining", "0")
		h.Set("X-RateLimit-Reset", "1")
		if have < 1 {
			return false
		}
		have--
		return true
	}
}

// Two maxima under one name are limits of two routes: that nothing remains of one holds up neither.
// A changed maximum is one limit, after some responses.
func TestTransport_Claims_TwoMaxima(t *testing.T) {
	says := func(most, remaining int) sluicetest.Layer {
		return sluicetest.Status(200, fmt.Sprintf("X-Rate-Limit-Limit: %d", most), fmt.Sprintf("X-Rate-Limit-Remaining: %d", remaining), "X-Rate-Limit-Reset: 900")
	}
	for name, cfg := range map[string]sluicehttp.Config{"pause": {}, "cost": {Cost: one}} {
		t.Run(name, func(t *testing.T) {
			l := layers(
				sluicetest.Path("/search", sluicetest.Script(says(15, 1), says(15, 0))),
				sluicetest.Path("/items", says(900, 850)),
				sluicetest.Path("/all", says(900, 0)))
			inWorld(t, cfg, l, func(w *world) {
				for _, path := range []string{"items", "search", "search", "items", "items"} {
					w.wantGet("http://a.test/"+path, 200)
				}
				if w.now() != 0 {
					t.Errorf("an exhausted limit of one route held up the other for %v", w.now())
				}
				for range 33 { // the first limit is forgotten
					w.wantGet("http://a.test/items", 200)
				}
				w.wantGet("http://a.test/all", 200)
				if w.now() != 0 {
					t.Errorf("held up for %v", w.now())
				}
				if _, _, err := w.get(bg, "http://a.test/all"); !errors.Is(err, sluice.ErrServerWait) {
					t.Errorf("after its only limit was exhausted: %v", err)
				}
				if w.wantGet("http://a.test/items", 200); w.now() != 0 {
					t.Errorf("held up for %v by the limit of another route", w.now())
				}
			})
		})
	}
}

// A call that asks whether a window has ended goes alone; the others follow its response. Without
// a rate the pause is one nanosecond, after which calls begin slowly.
func TestTransport_Claims_OneAsks(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  sluicehttp.Config
		late time.Duration
	}{"pause": {late: 1}, "cost": {cfg: sluicehttp.Config{Cost: one}}} {
		t.Run(name, func(t *testing.T) {
			says := func(remaining int) sluicetest.Layer {
				return sluicetest.Status(200, "X-RateLimit-Limit: 9", fmt.Sprint("X-RateLimit-Remaining: ", remaining), "X-RateLimit-Reset: 1")
			}
			for answer, remaining := range map[string]int{"another window": 8, "refuted": 0} {
				t.Run(answer, func(t *testing.T) {
					l := layers(sluicetest.Delay(100*ms), sluicetest.Script(says(0), says(remaining)), says(0))
					inWorld(t, c.cfg, l, func(w *world) {
						w.wantGet("http://a.test/", 200)
						var wg sync.WaitGroup
						for range 3 {
							wg.Go(func() { w.wantGet("http://a.test/", 200) })
						}
						wg.Wait()
						w.wantCame(0, 100*ms+c.late, 200*ms+c.late, 200*ms+c.late)
					})
				})
			}
		})
	}
}

// A refusal by a bucket whose fields do not say that it is one, and which does not say when to
// retry but when it is full, is over when there is one more.
func TestTransport_Claims_RefusedByABucket(t *testing.T) {
	says := func(status, remaining int, full string) sluicetest.Layer {
		return sluicetest.Status(status, "X-RateLimit-Limit: 20", fmt.Sprint("X-RateLimit-Remaining: ", remaining), "X-RateLimit-Reset: "+full)
	}
	script := sluicetest.Script(says(200, 10, "5.1"), says(200, 9, "5.6"), says(200, 8, "6.1"), says(200, 7, "6.6"), says(200, 6, "7.1"), says(429, 0, "9.5"))
	inWorld(t, sluicehttp.Config{Retry: seconds}, layers(script), func(w *world) {
		for range 6 {
			w.wantGet("http://a.test/", 200)
		}
		w.wantCame(0, 0, 0, 0, 0, 0, 475*ms)
		if stats(t, w.rt).Learned == nil {
			t.Error("a bucket has taught nothing")
		}
	})
}

// A server that always says that nothing remains for an hour, and grants all calls: no call fails unasked.
// If it does throttle, two calls have asked, and the others fail immediately.
func TestTransport_ExhaustedForTooLong(t *testing.T) {
	lie := sluicetest.Header("X-RateLimit-Limit: 5000", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 3600")
	for name, c := range map[string]struct {
		then     sluicetest.Layer
		good     int64 // of 40 calls by 8 workers
		requests int
	}{
		"granted":   {sluicetest.Reply(200, "ok"), 40, 40},
		"throttled": {sluicetest.Reply(429, "no"), 8, 10},
	} {
		t.Run(name, func(t *testing.T) {
			then := sluicetest.When(func(n int, _ *http.Request) bool { return n > 8 }, c.then)
			inWorld(t, sluicehttp.Config{}, layers(sluicetest.Delay(50*ms), lie, then, sluicetest.Reply(200, "ok")), func(w *world) {
				good, took := w.callsOf(40, 8, "GET")
				if requests := len(w.srv.Record().Requests); good != c.good || requests != c.requests || took > 10*time.Second {
					t.Errorf("%d of 40 with %d requests in %v, want %d with %d", good, requests, took, c.good, c.requests)
				}
			})
		})
	}
}
