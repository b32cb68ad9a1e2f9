package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// A window grants most calls in each window, which begins with the first call.
type window struct {
	most int
	per  time.Duration
	used int
	end  time.Time
}

func (w *window) take(now time.Time) bool {
	if !now.Before(w.end) {
		w.end, w.used = now.Add(w.per), 0
	}
	if w.used >= w.most {
		return false
	}
	w.used++
	return true
}

func (w *window) left() int { return w.most - w.used }

// A bucket grants rate calls per second, and burst after a rest.
type bucket struct {
	rate, burst float64
	used        float64
	last        time.Time
}

func (b *bucket) take(now time.Time) (wait time.Duration) {
	if !b.last.IsZero() {
		b.used = max(0, b.used-now.Sub(b.last).Seconds()*b.rate)
	}
	b.last = now
	if b.used+1 > b.burst {
		return time.Duration((b.used + 1 - b.burst) / b.rate * float64(time.Second))
	}
	b.used++
	return 0
}

func seconds(d time.Duration) string { return fmt.Sprint(int(d.Seconds()) + 1) }

func refuse(wait time.Duration) answer {
	return answer{status: 429, header: map[string]string{"Retry-After": seconds(wait)}}
}

// x has 15 searches and 900 lookups per 15 min.
func x() handler {
	search, lookup := &window{most: 15, per: 15 * time.Minute}, &window{most: 900, per: 15 * time.Minute}
	return func(r *http.Request, now time.Time) answer {
		w := lookup
		if strings.HasPrefix(r.URL.Path, "/2/tweets/search") {
			w = search
		}
		ok := w.take(now)
		a := answer{work: 30 * time.Millisecond, header: map[string]string{
			"X-Rate-Limit-Limit": fmt.Sprint(w.most), "X-Rate-Limit-Remaining": fmt.Sprint(w.left()), "X-Rate-Limit-Reset": fmt.Sprint(w.end.Unix()),
		}}
		if !ok {
			a.status, a.work = 429, 0
		}
		return a
	}
}

// discord allows two renames of a channel in 10 min, and 5 messages in 5 s for each channel.
func discord() handler {
	rename, channels := &window{most: 2, per: 10 * time.Minute}, map[string]*window{}
	return func(r *http.Request, now time.Time) answer {
		w := rename
		if r.Method == http.MethodPost {
			if channels[r.URL.Path] == nil {
				channels[r.URL.Path] = &window{most: 5, per: 5 * time.Second}
			}
			w = channels[r.URL.Path]
		}
		ok := w.take(now)
		after := fmt.Sprintf("%.3f", w.end.Sub(now).Seconds())
		a := answer{work: 30 * time.Millisecond, header: map[string]string{
			"X-RateLimit-Limit": fmt.Sprint(w.most), "X-RateLimit-Remaining": fmt.Sprint(w.left()), "X-RateLimit-Reset-After": after,
			"X-RateLimit-Bucket": fmt.Sprint("bucket", w.most),
		}}
		if !ok {
			a.status, a.work = 429, 0
			a.header["Retry-After"], a.header["X-RateLimit-Scope"] = seconds(w.end.Sub(now)), "user"
		}
		return a
	}
}

// github has 30 searches per minute and 5,000 other requests per hour, and names the limit.
func github() handler {
	search, core := &window{most: 30, per: time.Minute}, &window{most: 5000, per: time.Hour}
	return func(r *http.Request, now time.Time) answer {
		w, name := core, "core"
		if strings.HasPrefix(r.URL.Path, "/search") {
			w, name = search, "search"
		}
		ok := w.take(now)
		a := answer{work: 30 * time.Millisecond, header: map[string]string{
			"X-RateLimit-Limit": fmt.Sprint(w.most), "X-RateLimit-Remaining": fmt.Sprint(w.left()), "X-RateLimit-Reset": fmt.Sprint(w.end.Unix()),
			"X-RateLimit-Resource": name,
		}}
		if !ok {
			a.status, a.work = 403, 0
		}
		return a
	}
}

// slack has 20 lists and 100 lookups per minute, and a message per second.
func slack() handler {
	list, info, chat := &window{most: 20, per: time.Minute}, &window{most: 100, per: time.Minute}, &bucket{rate: 10, burst: 10}
	return func(r *http.Request, now time.Time) answer {
		a := answer{work: 10 * time.Millisecond}
		switch {
		case strings.HasSuffix(r.URL.Path, "conversations.list"):
			if !list.take(now) {
				return refuse(list.end.Sub(now))
			}
		case strings.HasSuffix(r.URL.Path, "users.info"):
			if !info.take(now) {
				return refuse(info.end.Sub(now))
			}
		default:
			if wait := chat.take(now); wait > 0 {
				return refuse(wait)
			}
		}
		return a
	}
}

// search has a search per second, and items without a limit.
func search(told bool) func() handler {
	return func() handler {
		b := &bucket{rate: 1, burst: 5}
		return func(r *http.Request, now time.Time) answer {
			if r.URL.Path == "/search" {
				if wait := b.take(now); wait > 0 && told {
					return refuse(0)
				} else if wait > 0 {
					return answer{status: 429}
				}
			}
			return answer{work: 20 * time.Millisecond}
		}
	}
}

// host has one limit for all routes: a window of a minute, whose rest it tells.
func host() handler {
	w := &window{most: 600, per: time.Minute}
	return func(r *http.Request, now time.Time) answer {
		if !w.take(now) {
			return refuse(w.end.Sub(now))
		}
		return answer{work: 20 * time.Millisecond}
	}
}

// rate has one rate for all routes, and says to come back in a second if told.
func rate(told bool) func() handler {
	return func() handler {
		b := &bucket{rate: 50, burst: 50}
		return func(r *http.Request, now time.Time) answer {
			switch {
			case b.take(now) == 0:
				return answer{work: 20 * time.Millisecond}
			case told:
				return refuse(0)
			}
			return answer{status: 429}
		}
	}
}

// shown has one window for all routes, which each response shows.
func shown() handler {
	w := &window{most: 600, per: time.Minute}
	return func(r *http.Request, now time.Time) answer {
		ok := w.take(now)
		a := answer{work: 20 * time.Millisecond, header: map[string]string{
			"X-RateLimit-Limit": "600", "X-RateLimit-Remaining": fmt.Sprint(w.left()), "X-RateLimit-Reset": seconds(w.end.Sub(now)),
		}}
		if !ok {
			a.status, a.work = 429, 0
		}
		return a
	}
}

// bans has a rate for all routes. Who exceeds it is refused for 30 s, and longer by each request meanwhile.
func bans() handler {
	b, until := &bucket{rate: 20, burst: 20}, time.Time{}
	return func(r *http.Request, now time.Time) answer {
		if now.Before(until) || b.take(now) > 0 {
			until = now.Add(30 * time.Second)
			return refuse(30 * time.Second)
		}
		return answer{work: 20 * time.Millisecond}
	}
}

func paths(n int) func(i int) (string, string, string) {
	return func(i int) (string, string, string) {
		return "GET", fmt.Sprintf("/things/%s", word(i*7919%n)), "all"
	}
}

// word returns a word that is not an id.
func word(n int) string {
	b := []byte("aaaaa")
	for i := range b {
		b[i] = byte('a' + n%26)
		n /= 26
	}
	return string(b)
}

var worlds = func() []world {
	all := []world{
		{name: "X: 15 searches and 900 lookups per 15 min", server: x, calls: 300, every: 50 * time.Millisecond, call: func(i int) (string, string, string) {
			if i < 20 {
				return "GET", fmt.Sprint("/2/tweets/search/recent?i=", i), "search"
			}
			return "GET", fmt.Sprint("/2/users/x?i=", i), "lookup"
		}},
		{name: "Discord: a channel is renamed twice", server: discord, calls: 300, every: 50 * time.Millisecond, call: func(i int) (string, string, string) {
			if i < 2 {
				return "PATCH", "/api/v10/channels/7", "rename"
			}
			return "POST", fmt.Sprintf("/api/v10/channels/%d/messages?i=%d", i%10, i), "message"
		}},
		{name: "GitHub: search and core", server: github, calls: 300, every: 50 * time.Millisecond, call: func(i int) (string, string, string) {
			if i < 40 {
				return "GET", fmt.Sprint("/search/issues?i=", i), "search"
			}
			return "GET", fmt.Sprint("/repos/o/r/issues?i=", i), "core"
		}},
		{name: "Slack: three methods at once", server: slack, calls: 240, call: func(i int) (string, string, string) {
			switch i % 4 {
			case 0:
				return "POST", "/api/conversations.list", "list"
			case 1, 2:
				return "POST", "/api/users.info", "info"
			}
			return "POST", "/api/chat.postMessage", "chat"
		}},
	}
	for _, told := range []bool{true, false} {
		name := "items beside a search of 1/s"
		if told {
			name += ", Retry-After: 1"
		}
		all = append(all, world{name: name, server: search(told), works: 68, lasts: 5 * time.Minute, call: func(i int) (string, string, string) {
			if i%68 < 4 {
				return "GET", "/search", "search"
			}
			return "GET", "/items", "items"
		}})
	}
	for _, w := range []world{
		{name: "host: 600 per minute, told", server: host},
		{name: "host: 50/s, Retry-After: 1", server: rate(true)},
		{name: "host: 50/s", server: rate(false)},
		{name: "host: 600 per minute, shown", server: shown},
		{name: "host: 20/s, bans of 30 s", server: bans},
	} {
		for _, n := range []int{1, 2, 10, 1000, 10_000} {
			w := w
			w.name += fmt.Sprintf(", %d paths", n)
			w.knocks, w.works, w.lasts, w.call = true, 64, 10*time.Minute, paths(n)
			all = append(all, w)
		}
	}
	return all
}()
