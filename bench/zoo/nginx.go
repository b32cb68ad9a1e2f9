package main

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// nginx as it comes says 503 for limit_req and for limit_conn, and nothing in the header. The
// real one is among the daemons; this one runs in a bubble, and gets POSTs, too.
func init() {
	for _, s := range []server{
		nginxReq("nginx-503-20", 20, 20, request{}),
		nginxReq("nginx-503-20b0", 20, 0, request{}),
		{name: "nginx-503-post", once: true},
		{name: "nginx-503-post-declared", declared: true},
		nginxConn("nginx-conn-503-10", 10),
	} {
		if s.handler == nil {
			as := nginxReq(s.name, 20, 20, request{http.MethodPost, "/", "application/json", item})
			as.once, as.declared = s.once, s.declared
			s = as
		}
		s.group = words
		add(s)
	}
}

func item(n int) string { return `{"item":` + strconv.Itoa(n) + `}` }

func nginxReq(name string, rate, burst int, r request) server {
	return server{name: name, limiter: "nginx limit_req, nodelay (as a handler)", says: "503, no header", limit: bucketOf(float64(rate), float64(burst+1)), request: r,
		handler: func(o *origin) http.Handler {
			zone := &zone{rate: int64(rate) * 1000, burst: int64(burst) * 1000}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !zone.take(time.Now().UnixMilli()) {
					unavailable(w)
					return
				}
				ok(o).ServeHTTP(w, r)
			})
		}}
}

// A zone counts as ngx_http_limit_req_module does, in thousandths of a call and milliseconds.
type zone struct {
	mu          sync.Mutex
	rate, burst int64 // thousandths of a call, per second and in all
	excess      int64
	last        int64 // ms
	used        bool
}

func (z *zone) take(now int64) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if !z.used {
		z.used, z.last = true, now
		return true
	}
	excess := max(0, z.excess-z.rate*max(0, now-z.last)/1000+1000)
	if excess > z.burst {
		return false
	}
	z.excess, z.last = excess, now
	return true
}

func nginxConn(name string, n int) server {
	return server{name: name, limiter: "nginx limit_conn (as a handler)", says: "503, no header", limit: inFlightOf(float64(n), .1), service: .1,
		handler: func(o *origin) http.Handler {
			busy := make(chan struct{}, n)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case busy <- struct{}{}:
					defer func() { <-busy }()
					ok(o).ServeHTTP(w, r)
				default:
					unavailable(w)
				}
			})
		}}
}

// unavailable is the 503 of nginx.
func unavailable(w http.ResponseWriter) {
	say(w, http.StatusServiceUnavailable, "<html>\r\n<head><title>503 Service Temporarily Unavailable</title></head>\r\n<body>\r\n"+
		"<center><h1>503 Service Temporarily Unavailable</h1></center>\r\n<hr><center>nginx/1.26.3</center>\r\n</body>\r\n</html>\r\n",
		"Server", "nginx/1.26.3", "Content-Type", "text/html")
}
