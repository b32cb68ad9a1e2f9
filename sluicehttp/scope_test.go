package sluicehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
)

// A site is a server in a bubble, as a base transport: it answers after 10 ms by says, which gets how
// many requests of the path came before, and notes when requests arrived. says returns the status
// and header fields; 0 means no response before the request is cancelled, and -1 a broken connection.
type site struct {
	t     *testing.T
	says  func(path string, n int) (status int, header string)
	begin time.Time

	mu   sync.Mutex
	came map[string][]time.Duration
	all  []string
	busy int
	most int // requests at once
}

const latency = 10 * ms

func newSite(t *testing.T, says func(path string, n int) (int, string)) *site {
	return &site{t: t, says: says, begin: time.Now(), came: map[string][]time.Duration{}}
}

func (s *site) RoundTrip(req *http.Request) (*http.Response, error) {
	path := req.URL.Path
	s.mu.Lock()
	n := len(s.came[path])
	s.came[path] = append(s.came[path], s.now())
	s.all = append(s.all, fmt.Sprint(path, " ", s.now()))
	s.busy++
	s.most = max(s.most, s.busy)
	status, header := s.says(path, n)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.busy--
		s.mu.Unlock()
	}()
	if status == 0 {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	select {
	case <-time.After(latency):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	if status < 0 {
		return nil, errors.New("the connection broke")
	}
	resp := &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("hello")), Request: req}
	for line := range strings.SplitSeq(header, "|") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			resp.Header.Set(name, value)
		}
	}
	return resp, nil
}

func (s *site) now() time.Duration { return time.Since(s.begin) }

// arrivals returns when requests of a path arrived.
func (s *site) arrivals(path string) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.came[path])
}

func (s *site) wantCame(path string, want ...time.Duration) {
	s.t.Helper()
	if got := s.arrivals(path); !slices.Equal(got, want) {
		s.t.Errorf("requests of %s arrived at %v, want %v; all: %v", path, got, want, s.all)
	}
}

func (s *site) total() int { return len(s.log()) }

// log returns the paths that were requested, with the time.
func (s *site) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// A caller makes calls through a transport.
type caller struct {
	*testing.T
	*http.Client
	sync.WaitGroup
}

// get sends a GET, reads the response, and returns its status.
func (c *caller) get(ctx context.Context, path string) (int, error) {
	resp, err := c.Do(request(c.T, ctx, http.MethodGet, "https://api.test"+path, nil))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// want is get for a call that must succeed.
func (c *caller) want(path string) {
	c.Helper()
	if status, err := c.get(bg, path); status != 200 || err != nil {
		c.Errorf("GET %s: %d, %v", path, status, err)
	}
}

// begin starts want.
func (c *caller) begin(path string) { c.Go(func() { c.want(path) }) }

func inSite(t *testing.T, cfg sluicehttp.Config, says func(path string, n int) (int, string), f func(s *site, rt *sluicehttp.Transport, c *caller)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, says)
		rt := mustTransport(t, s, cfg)
		c := &caller{T: t, Client: &http.Client{Transport: rt}}
		f(s, rt, c)
		c.Wait()
		synctest.Wait()
		if n := inFlight(rt); n != 0 {
			t.Errorf("%d in flight in the end", n)
		}
	})
}

// keys returns the keys of the gates of rt.
func keys(rt *sluicehttp.Transport) (all []string) {
	for key := range rt.Stats {
		all = append(all, key)
	}
	return all
}

// once refuses the first n requests of a path with header, and grants all else.
func once(path string, n int, header string) func(string, int) (int, string) {
	return func(p string, before int) (int, string) {
		if p == path && before < n {
			return 429, header
		}
		return 200, ""
	}
}

// What one route is told holds up only that route. Until it is known whose it is, the others ask with
// one call, and then with twice as many for each that is granted.
func TestTransport_Scope_ToldOneRoute(t *testing.T) {
	for name, cfg := range map[string]sluicehttp.Config{
		"no configuration": {},
		"NewGate": {NewGate: func(key string) (*sluice.Gate, error) {
			return sluice.New(sluice.Config{Name: key, Concurrency: 1000})
		}},
		"Cost":     {Cost: one},
		"Spread":   {Published: sluicehttp.Published{Spread: 1}},
		"a rate":   {Gate: sluice.Config{Rate: sluice.Rate{Count: 10_000, Per: time.Second, Burst: 1000}}},
		"observed": {Gate: sluice.Config{Observer: func(sluice.Event) {}}},
		"limited":  {Gate: sluice.Config{MaxWaiting: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			inSite(t, cfg, once("/search", 1, "Retry-After: 30"), func(s *site, rt *sluicehttp.Transport, c *caller) {
				c.want("/items") // a second route is known
				c.begin("/search")
				time.Sleep(latency + ms)
				for range 3 {
					c.begin("/items")
				}
				time.Sleep(3 * latency)
				s.wantCame("/items", 0, 21*ms, 31*ms, 31*ms)
				c.want("/items")
				c.Wait()
				s.wantCame("/search", 10*ms, 30*time.Second+20*ms)
			})
		})
	}
}

// While one route is known the host is paused. When another one comes, the pause becomes that of the
// first, and its callers keep their order.
func TestTransport_Scope_SecondRouteComes(t *testing.T) {
	var mu sync.Mutex
	var order []string
	cfg := sluicehttp.Config{OnAttempt: func(key string, a sluicehttp.Attempt) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, key)
	}}
	inSite(t, cfg, once("/search/9", 1, "Retry-After: 30"), func(s *site, rt *sluicehttp.Transport, c *caller) {
		c.begin("/search/9")
		time.Sleep(latency + ms)
		for i := range 5 {
			c.begin(fmt.Sprint("/search/", i))
			time.Sleep(ms)
		}
		if got := s.total(); got != 1 {
			t.Errorf("%d requests during the pause of the host", got-1)
		}
		c.want("/items")
		s.wantCame("/items", 16*ms)
		c.want("/items")
		c.Wait()
		var left []string
		first := time.Duration(0)
		for path, came := range s.came {
			if strings.HasPrefix(path, "/search/") && (first == 0 || came[len(came)-1] < first) {
				first = came[len(came)-1]
			}
		}
		if first != 30*time.Second+latency {
			t.Errorf("the next search came at %v", first)
		}
		for _, came := range s.log() {
			if path, _, _ := strings.Cut(came, " "); strings.HasPrefix(path, "/search/") {
				left = append(left, path)
			}
		}
		// The first that comes back is at the head, where it cannot be overtaken; two may leave together.
		want := []string{"/search/9", "/search/0", "/search/1", "/search/2", "/search/3", "/search/4"}
		want = slices.DeleteFunc(want, func(path string) bool { return path == left[1] })
		last := first
		for _, path := range want {
			came := s.arrivals(path)
			if came[len(came)-1] < last {
				t.Errorf("searches came in the order %v", left)
			}
			last = came[len(came)-1]
		}
		if !slices.Contains(order, "https://api.test GET /search/{}") {
			t.Errorf("no attempt was made through the gate of the route: %v", order)
		}
	})
}

// A throttle without a time is about its route, too, if others are granted meanwhile, and so is a 503,
// with which nginx throttles.
func TestTransport_Scope_NotTold(t *testing.T) {
	built.SkipRaced(t)
	for _, status := range []int{429, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) { notTold(t, status) })
	}
}

func notTold(t *testing.T, status int) {
	var next time.Time
	says := func(path string, _ int) (int, string) {
		if now := time.Now(); path == "/search" {
			if now.Before(next) {
				return status, ""
			}
			next = now.Add(time.Second)
		}
		return 200, ""
	}
	inSite(t, sluicehttp.Config{}, says, func(s *site, rt *sluicehttp.Transport, c *caller) {
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		failed := 0
		for i := range 20 {
			path := "/items"
			if i < 4 {
				path = "/search"
			}
			c.Go(func() {
				for ctx.Err() == nil {
					switch got, err := c.get(ctx, path); {
					case err == nil && got == status:
						s.mu.Lock()
						failed++
						s.mu.Unlock()
					case err == nil:
						time.Sleep(10 * ms)
					}
				}
			})
		}
		c.Wait()
		items, searches := len(s.arrivals("/items")), len(s.arrivals("/search"))
		// In one run of a hundred the first answers prove nothing, and all wait for the searches for
		// half a minute; in another one the searches are asked five times as often.
		if items < 16*50*60/3 || searches < 50 || searches > 400 || failed > 60 {
			t.Errorf("%d of 48,000 items, and %d searches at 1/s, of which %d failed", items, searches, failed)
		}
		if !slices.Contains(keys(rt), "https://api.test GET /search") {
			t.Errorf("the search is no scope: %v", keys(rt))
		}
	})
}

// If all routes are refused, the limit is the host's, as with one gate for all.
func TestTransport_Scope_NotToldHost(t *testing.T) {
	for _, paths := range []int{2, 10, 1000} {
		t.Run(fmt.Sprint(paths), func(t *testing.T) {
			tokens, last := 10., time.Now()
			says := func(string, int) (int, string) {
				now := time.Now()
				tokens = min(10, tokens+20*now.Sub(last).Seconds())
				if last = now; tokens < 1 {
					return 429, ""
				}
				tokens--
				return 200, ""
			}
			inSite(t, sluicehttp.Config{}, says, func(s *site, rt *sluicehttp.Transport, c *caller) {
				last = s.begin
				for i := range 32 {
					c.Go(func() {
						for k := range 30 {
							c.want("/things/" + plain((i*31+k*7)%paths))
						}
					})
				}
				c.Wait()
				if took := s.now(); took > 56*time.Second { // 48 s at the limit
					t.Errorf("960 calls took %v", took)
				}
				if n := len(keys(rt)); n > 3 {
					t.Errorf("%d gates: %v", n, keys(rt))
				}
			})
		})
	}
}

// In a pause of the whole host, no more than two requests find that out, and it takes about as long as
// with one gate for all: how fast a gate goes on depends on how many calls it had let leave before.
func TestTransport_Scope_HostIsPaused(t *testing.T) {
	for _, paths := range []int{1, 2, 3, 10, 10_000} {
		t.Run(fmt.Sprint(paths), func(t *testing.T) {
			took := map[bool]time.Duration{}
			for _, byHost := range []bool{true, false} {
				begin := time.Now()
				says := func(string, int) (int, string) {
					if since := time.Since(begin); since >= time.Second && since < 31*time.Second {
						return 429, fmt.Sprintf("Retry-After: %d", (31*time.Second-since+time.Second-1)/time.Second)
					}
					return 200, ""
				}
				cfg := sluicehttp.Config{}
				if byHost {
					cfg.Key = func(*http.Request) string { return "all" }
				}
				inSite(t, cfg, func(p string, n int) (int, string) { return says(p, n) }, func(s *site, rt *sluicehttp.Transport, c *caller) {
					begin = time.Now()
					for i := range min(paths, 5) {
						c.want("/things/" + plain(i))
					}
					time.Sleep(time.Second - s.now())
					c.begin("/things/" + plain(0))
					time.Sleep(latency + ms)
					for i := range 64 {
						c.Go(func() {
							for k := range 3 {
								c.want("/things/" + plain((i*31+k*7)%paths))
							}
						})
					}
					time.Sleep(20 * time.Second)
					if got := s.total() - min(paths, 5) - 1; got > 2 {
						t.Errorf("%d requests during the pause of the host, want at most 2: %v", got, s.log())
					}
					c.Wait()
					took[byHost] = s.now()
				})
			}
			if took[false] > took[true]+time.Minute {
				t.Errorf("it took %v; through one gate %v", took[false], took[true])
			}
		})
	}
}

// plain returns a word that is not an id.
func plain(n int) string {
	b := []byte("aaaaa")
	for i := range b {
		b[i] = byte('a' + n%26)
		n /= 26
	}
	return string(b)
}

// A call that asks and is cancelled, fails or hangs hands on to the next.
func TestTransport_Scope_AskerFails(t *testing.T) {
	for _, c := range []struct {
		name    string
		status  int
		timeout time.Duration // of the call that asks
		next    time.Duration // when the next asks
	}{
		{"hangs", 0, time.Hour, 10*time.Second + 20*ms},
		{"is cancelled", 0, 100 * ms, 121 * ms},
		{"breaks", -1, time.Hour, 31 * ms},
		{"500", 500, time.Hour, 31 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			says := func(path string, n int) (int, string) {
				switch {
				case path == "/search" && n == 0:
					return 429, "Retry-After: 60"
				case path == "/odd":
					return c.status, ""
				}
				return 200, ""
			}
			inSite(t, sluicehttp.Config{}, says, func(s *site, rt *sluicehttp.Transport, cl *caller) {
				cl.want("/items")
				cl.begin("/search")
				time.Sleep(latency + ms)
				ctx, cancel := context.WithTimeout(sluicehttp.WithOverrides(bg, sluicehttp.Overrides{NoRetry: true}), c.timeout)
				defer cancel()
				var odd sync.WaitGroup
				odd.Go(func() { _, _ = cl.get(ctx, "/odd") })
				time.Sleep(0)
				synctest.Wait()
				cl.begin("/items")
				cl.begin("/items")
				time.Sleep(20 * time.Second)
				if came := s.arrivals("/items"); len(came) != 3 || came[1] != c.next {
					t.Errorf("items came at %v, the next should ask at %v", came, c.next)
				}
				cancel()
				odd.Wait()
			})
		})
	}
}

// A call that waits until it is asked can be cancelled, and its deadline holds; a call of the route that
// was told to wait fails at once if it has not so much time.
func TestTransport_Scope_Deadlines(t *testing.T) {
	says := func(path string, n int) (int, string) {
		switch {
		case path == "/search" && n == 0:
			return 429, "Retry-After: 60"
		case path == "/odd":
			return 0, ""
		}
		return 200, ""
	}
	inSite(t, sluicehttp.Config{}, says, func(s *site, rt *sluicehttp.Transport, c *caller) {
		c.want("/items")
		c.begin("/search")
		time.Sleep(latency + ms)
		before := s.now()
		ctx, cancel := context.WithTimeout(bg, 59*time.Second)
		defer cancel()
		if _, err := c.get(ctx, "/search"); !errors.Is(err, context.DeadlineExceeded) || !is[*limits.WaitError](err) || s.now() != before {
			t.Errorf("after %v: %v", s.now()-before, err)
		}
		asks, stop := context.WithCancel(bg)
		c.Go(func() { _, _ = c.get(asks, "/odd") })
		synctest.Wait()
		short, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if _, err := c.get(short, "/items"); !errors.Is(err, context.DeadlineExceeded) || s.now() != before+time.Second {
			t.Errorf("after %v: %v", s.now()-before, err)
		}
		stop()
		c.want("/items")
	})
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// A response that names the account or the host pauses all, and so does a wait of more than a minute
// without a limit, if no route is known to have one of its own.
func TestTransport_Scope_NoneAsks(t *testing.T) {
	for _, header := range []string{
		"Retry-After: 30|X-RateLimit-Global: true",
		"Retry-After: 30|X-RateLimit-Scope: global",
		"Retry-After: 90",
	} {
		t.Run(header, func(t *testing.T) {
			inSite(t, sluicehttp.Config{}, once("/search", 1, header), func(s *site, rt *sluicehttp.Transport, c *caller) {
				c.want("/items")
				c.begin("/search")
				time.Sleep(latency + ms)
				c.begin("/items")
				c.Wait()
				if came := s.arrivals("/items"); came[1] < 30*time.Second {
					t.Errorf("a call left at %v", came[1])
				}
			})
		})
	}
}

// An exhausted limit that several routes have shown is that of all; if they have shown others, it is
// clear whose it is. Nobody asks.
func TestTransport_Scope_Shown(t *testing.T) {
	for _, c := range []struct {
		name   string
		other  string // what items show
		paused bool
	}{
		{"the same", "X-RateLimit-Limit: 100|X-RateLimit-Remaining: 1|X-RateLimit-Reset: 30", true},
		{"another", "X-RateLimit-Limit: 900|X-RateLimit-Remaining: 800|X-RateLimit-Reset: 30", false},
		{"another resource", "X-RateLimit-Limit: 100|X-RateLimit-Remaining: 1|X-RateLimit-Reset: 30|X-RateLimit-Resource: items", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			says := func(path string, n int) (int, string) {
				if path == "/items" {
					return 200, c.other
				}
				status := 200
				if n == 1 {
					status = 429
				}
				return status, "X-RateLimit-Limit: 100|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 30"
			}
			inSite(t, sluicehttp.Config{}, says, func(s *site, rt *sluicehttp.Transport, cl *caller) {
				cl.want("/items")
				cl.want("/search")
				cl.begin("/search")
				time.Sleep(latency + ms)
				for range 8 {
					cl.begin("/items")
				}
				cl.Wait()
				came := s.arrivals("/items")[1:]
				for _, at := range came {
					if c.paused && at < 29*time.Second || !c.paused && at > time.Second {
						t.Errorf("items came at %v", came)
						break
					}
				}
			})
		})
	}
}

// With a Cost, a limit that becomes that of a route no longer stops the others, although earlier responses
// to the route have been charged to the limits of the host.
func TestTransport_Scope_PublishedByOneRoute(t *testing.T) {
	says := func(path string, n int) (int, string) {
		if path == "/rename" {
			return 200, fmt.Sprintf("X-RateLimit-Limit: 2|X-RateLimit-Remaining: %d|X-RateLimit-Reset: 946685400|X-RateLimit-Bucket: renames", 1-n)
		}
		return 200, ""
	}
	inSite(t, sluicehttp.Config{Cost: one}, says, func(s *site, rt *sluicehttp.Transport, c *caller) {
		c.want("/messages") // a second route is known
		c.want("/rename")
		c.want("/rename")
		for range 5 {
			c.want("/messages")
		}
		if status, err := c.get(bg, "/rename"); !errors.Is(err, sluice.ErrServerWait) {
			t.Errorf("the third rename: %d, %v", status, err)
		}
	})
}

// If those that follow the first one granted are refused, it was the host's: its gate is paused, and
// for the next waits no call asks.
func TestTransport_Scope_Widens(t *testing.T) {
	var tokens atomic.Int64
	says := func(path string, n int) (int, string) {
		if tokens.Add(-1) < 0 {
			return 429, "Retry-After: 1"
		}
		return 200, ""
	}
	inSite(t, sluicehttp.Config{}, says, func(s *site, rt *sluicehttp.Transport, c *caller) {
		tokens.Store(20)
		stop := make(chan struct{})
		defer close(stop)
		go func() { // 20 per second
			for {
				select {
				case <-time.After(50 * ms):
					tokens.Store(min(20, max(0, tokens.Load())+1))
				case <-stop:
					return
				}
			}
		}()
		for i := range 32 {
			c.Go(func() {
				for k := range 40 {
					c.want("/things/" + plain((i*13+k)%7))
				}
			})
		}
		c.Wait()
		if took := s.now(); took > 100*time.Second { // 63 s at the limit
			t.Errorf("1,280 calls took %v", took)
		}
		if refused := s.total() - 1280; refused > 250 {
			t.Errorf("%d were refused", refused)
		}
	})
}

// The rate and the concurrency of a host are those of all its scopes together.
func TestTransport_Scope_HostLimitsHold(t *testing.T) {
	cfg := sluicehttp.Config{Gate: sluice.Config{Concurrency: 3, Rate: sluice.Rate{Count: 100, Per: time.Second}}}
	says := func(path string, n int) (int, string) {
		if path != "/items" && n%5 == 4 {
			return 429, "Retry-After: 2"
		}
		return 200, ""
	}
	inSite(t, cfg, says, func(s *site, rt *sluicehttp.Transport, c *caller) {
		for i := range 30 {
			c.Go(func() {
				for range 10 {
					c.want([]string{"/items", "/search", "/export"}[i%3])
				}
			})
		}
		c.Wait()
		if s.most > 3 {
			t.Errorf("%d in flight, 3 may be", s.most)
		}
		var all []time.Duration
		for _, came := range s.came {
			all = append(all, came...)
		}
		slices.Sort(all)
		for i := range all[1:] {
			if all[i+1]-all[i] < 10*ms {
				t.Fatalf("calls came at %v and %v, at 100/s", all[i], all[i+1])
			}
		}
	})
}

// A server with many routes, or one that names another bucket in each response, costs bounded memory.
func TestTransport_Scope_Bounded(t *testing.T) {
	for name, says := range map[string]func(path string, n int) (int, string){
		"routes":  func(path string, n int) (int, string) { return 429, "Retry-After: 5" },
		"buckets": nil,
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			if says == nil {
				says = func(string, int) (int, string) {
					calls++
					return 200, fmt.Sprintf("X-RateLimit-Limit: %d|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 5|X-RateLimit-Bucket: %s", calls, strings.Repeat(plain(calls), 100))
				}
			}
			inSite(t, sluicehttp.Config{}, says, func(s *site, rt *sluicehttp.Transport, c *caller) {
				ctx := sluicehttp.WithOverrides(bg, sluicehttp.Overrides{NoRetry: true})
				for i := range 3000 {
					within, cancel := context.WithTimeout(ctx, time.Second)
					_, _ = c.get(within, "/things/"+plain(i))
					cancel()
				}
				gates := 0
				for g := range rt.Gates() {
					if gates++; len(g.Name) > 200 {
						t.Fatalf("a name of %d bytes", len(g.Name))
					}
				}
				if gates > 200 {
					t.Errorf("%d gates", gates)
				}
			})
		})
	}
}

// A server that throttles each of a hundred thousand routes but one, and names another bucket in each
// response, costs no more memory after all of them than after a few thousand.
func TestTransport_Scope_BoundedMemory(t *testing.T) {
	routes, few := 10_000, 3000
	if os.Getenv("SLUICE_FULL") != "" {
		routes = 100_000
	}
	synctest.Test(t, func(t *testing.T) {
		n, hostile := 0, 0
		rt := mustTransport(t, roundTripper(func(req *http.Request) (*http.Response, error) {
			n++
			h := http.Header{"X-Ratelimit-Limit": {"9"}, "X-Ratelimit-Remaining": {strconv.Itoa(1 + n%5)}, "X-Ratelimit-Reset": {"5"}, "X-Ratelimit-Bucket": {plain(n) + strings.Repeat("b", n%500)}}
			status := 200
			if req.URL.Path != "/ok" {
				hostile++
				status = 429
				h.Set("Retry-After", "60")
			}
			return &http.Response{StatusCode: status, ProtoMajor: 1, Header: h, Body: http.NoBody, Request: req}, nil
		}), sluicehttp.Config{})
		paths := []string{"/things/%s", "/%[1]s/%[1]s/%[1]s", "/a%%2f%s/..", "/%s?" + strings.Repeat("q=1&", 100), "/" + strings.Repeat("long/", 200) + "%s"}
		var after uint64
		for i := range 2 * routes {
			path := "/ok"
			if i%2 == 1 {
				path = fmt.Sprintf(paths[i%len(paths)], plain(i/2))
			}
			ctx, cancel := context.WithTimeout(sluicehttp.WithOverrides(bg, sluicehttp.Overrides{NoRetry: true}), 2*time.Second)
			req, err := http.NewRequestWithContext(ctx, "GET", "http://site.test"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := rt.RoundTrip(req); err == nil {
				resp.Body.Close()
			}
			cancel()
			time.Sleep(100 * ms)
			if i%4 == 0 { // or a gate that has learned sends nearly none
				time.Sleep(2 * time.Minute)
			}
			if i == 2*few {
				after = heap()
			}
		}
		if grown := int64(heap()) - int64(after); grown > 2<<20 {
			t.Errorf("%d routes take %d kB more than %d", routes, grown>>10, few)
		}
		if hostile < routes/4 {
			t.Errorf("only %d requests were sent to routes that are throttled", hostile)
		}
	})
}

// heap returns how many bytes are in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// With a key of the user there are no scopes, and another host is not concerned.
func TestTransport_Scope_OwnKeys(t *testing.T) {
	for name, cfg := range map[string]sluicehttp.Config{
		"Key":       {Key: func(*http.Request) string { return "all" }},
		"Overrides": {},
		"Semaphore": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, once("/search", 1, "Retry-After: 30"))
				ctx := bg
				switch name {
				case "Overrides":
					ctx = sluicehttp.WithOverrides(bg, sluicehttp.Overrides{Key: "mine"})
				case "Semaphore":
					cfg.Gate.Semaphore = countless{}
				}
				rt := mustTransport(t, s, cfg)
				c := &caller{T: t, Client: &http.Client{Transport: rt}}
				_, _ = c.get(ctx, "/items")
				c.Go(func() { _, _ = c.get(ctx, "/search") })
				time.Sleep(latency + ms)
				_, _ = c.get(ctx, "/items")
				if came := s.arrivals("/items"); came[1] < 30*time.Second {
					t.Errorf("items came at %v", came)
				}
				c.Wait()
			})
		})
	}
}

// countless is a semaphore without a limit.
type countless struct{}

func (countless) Acquire(context.Context, int64, time.Duration) (limits.Lease, error) {
	return countlessLease{}, nil
}

type countlessLease struct{}

func (countlessLease) Release()              {}
func (countlessLease) Lost() <-chan struct{} { return nil }

// Resume of the host ends the pauses of its routes, too; Close ends all waits.
func TestTransport_Scope_ResumeClose(t *testing.T) {
	says := func(path string, n int) (int, string) {
		switch {
		case path == "/search" && n == 0:
			return 429, "Retry-After: 60"
		case path == "/odd":
			return 0, ""
		}
		return 200, ""
	}
	for _, end := range []string{"Resume", "Close"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, says)
				rt := mustTransport(t, s, sluicehttp.Config{})
				c := &caller{T: t, Client: &http.Client{Transport: rt}}
				c.want("/items")
				ctx, cancel := context.WithCancel(bg)
				var errs [2]error
				c.Go(func() { _, errs[0] = c.get(bg, "/search") })
				time.Sleep(latency + ms)
				c.Go(func() { _, _ = c.get(ctx, "/odd") })
				synctest.Wait()
				c.Go(func() { _, errs[1] = c.get(bg, "/items") })
				time.Sleep(ms)
				before := s.now()
				if end == "Close" {
					rt.Close()
				} else if !rt.Resume("https://api.test") {
					t.Error("the host has no gate")
				}
				time.Sleep(time.Second)
				synctest.Wait()
				switch {
				case end == "Close":
					// The search returns the refusal that it has.
					if errs[0] != nil || !errors.Is(errs[1], limits.ErrClosed) {
						t.Errorf("after Close: %v", errs)
					}
				default:
					s.wantCame("/search", 10*ms, before)
					s.wantCame("/items", 0, before)
				}
				cancel()
				c.Wait()
				if err := rt.Shutdown(bg); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Stats name the scope that holds a call up.
func TestTransport_Scope_Stats(t *testing.T) {
	inSite(t, sluicehttp.Config{}, once("/2/search", 1, "Retry-After: 30"), func(s *site, rt *sluicehttp.Transport, c *caller) {
		c.want("/items/7")
		c.begin("/2/search")
		time.Sleep(latency + ms)
		c.want("/items/8")
		found := map[string]sluice.Stats{}
		rt.Stats(func(key string, s sluicehttp.Stats) bool {
			found[key] = s.Stats
			return true
		})
		if s := found["https://api.test GET /2/search"]; s.Pacing+s.Waiting != 1 || s.PausedUntil.IsZero() {
			t.Errorf("the route: %v", s)
		}
		if s := found["https://api.test"]; s.Waiting != 0 || !s.PausedUntil.IsZero() {
			t.Errorf("the host: %v", s)
		}
		if !rt.PauseUntil("https://api.test GET /2/search", time.Now().Add(time.Minute), "wanted") {
			t.Error("the route has no gate")
		}
		c.Wait()
		if came := s.arrivals("/2/search"); came[1] != time.Minute+31*ms {
			t.Errorf("the route came at %v", came)
		}
	})
}

// A server that bans whoever calls too often, for longer with each call, bans all routes: their waits
// do not make each other longer without end.
func TestTransport_Scope_Bans(t *testing.T) {
	for _, paths := range []int{1, 2, 10, 1000} {
		t.Run(fmt.Sprint(paths), func(t *testing.T) {
			tokens, last, banned := 20., time.Time{}, time.Time{}
			says := func(string, int) (int, string) {
				now := time.Now()
				if !last.IsZero() {
					tokens = min(20, tokens+now.Sub(last).Seconds()*20)
				}
				last = now
				if now.Before(banned) || tokens < 1 {
					banned = now.Add(30 * time.Second)
					return 429, "Retry-After: 30"
				}
				tokens--
				return 200, ""
			}
			inSite(t, sluicehttp.Config{Retry: sluice.RetryPolicy{MaxElapsed: time.Hour}}, says, func(s *site, rt *sluicehttp.Transport, c *caller) {
				for i := range 64 {
					c.Go(func() {
						for k := range 50 {
							c.want("/things/" + plain((i*31+k*7)%paths))
						}
					})
				}
				c.Wait()
				if took := s.now(); took > 8*time.Minute { // 160 s without a ban
					t.Errorf("3,200 calls at 20/s took %v, %d were refused", took, s.total()-3200)
				}
			})
		})
	}
}

// A fixedWindow accepts n calls per window, which begins with a call.
type fixedWindow struct {
	n    int
	per  time.Duration
	used int
	end  time.Time
}

func (w *fixedWindow) take(now time.Time) bool {
	if !now.Before(w.end) {
		w.used, w.end = 0, now.Add(w.per)
	}
	if w.used >= w.n {
		return false
	}
	w.used++
	return true
}

// A server that names the bucket of each response counts for each channel, as Discord does: 5 messages in 5 s,
// and 50 calls in a second for all. A channel that is used up does not delay the others, and each window is
// used in full.
func TestTransport_Scope_Buckets(t *testing.T) {
	const channels, messages = 10, 20 // of each
	global, windows := &fixedWindow{n: 50, per: time.Second}, map[string]*fixedWindow{}
	says := func(path string, _ int) (int, string) {
		now := time.Now()
		rest := func(w *fixedWindow) float64 { return w.end.Sub(now).Seconds() }
		if !global.take(now) {
			return 429, fmt.Sprintf("Retry-After: %d|X-RateLimit-Global: true|X-RateLimit-Scope: global", int(rest(global))+1)
		}
		w := windows[path]
		if w == nil {
			w = &fixedWindow{n: 5, per: 5 * time.Second}
			windows[path] = w
		}
		ok := w.take(now)
		header := fmt.Sprintf("X-RateLimit-Limit: 5|X-RateLimit-Remaining: %d|X-RateLimit-Reset-After: %.3f|X-RateLimit-Bucket: 80c17d2f203122d9", w.n-w.used, rest(w))
		if !ok {
			return 429, header + fmt.Sprintf("|Retry-After: %d|X-RateLimit-Scope: user", int(rest(w))+1)
		}
		return 200, header
	}
	inSite(t, sluicehttp.Config{}, says, func(s *site, rt *sluicehttp.Transport, c *caller) {
		for i := range channels * messages {
			c.begin(fmt.Sprintf("/api/v10/channels/%d/messages", 100+i%channels))
		}
		c.Wait()
		// 15 s at best; the gate of the host learns a rate meanwhile: 16 to 18 s mostly, up to 24 in 400 runs. It took 35 s when
		// channels shared a gate.
		if took := s.now(); took > 28*time.Second {
			t.Errorf("%d messages took %v", channels*messages, took)
		}
		if n := s.total(); n > 2*channels*messages {
			t.Errorf("%d requests", n)
		}
		named := 0
		for _, key := range keys(rt) {
			for i := range channels {
				if key == fmt.Sprintf("https://api.test channels/%d 80c17d2f203122d9", 100+i) {
					named++
				}
			}
		}
		if named != channels {
			t.Errorf("%d of %d channels have a gate: %v", named, channels, keys(rt))
		}
	})
}
