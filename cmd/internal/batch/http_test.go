//go:build unix

package batch

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
)

// An api is a server that counts what it is asked.
type api struct {
	*httptest.Server
	mu    sync.Mutex
	asked map[string]int
}

func serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, times int)) *api {
	t.Helper()
	a := &api{asked: make(map[string]int)}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.asked[r.URL.String()]++
		times := a.asked[r.URL.String()]
		a.mu.Unlock()
		answer(w, r, times)
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *api) want(t *testing.T, asked map[string]int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !maps.Equal(a.asked, asked) {
		t.Errorf("asked %v, want %v", a.asked, asked)
	}
}

// Items are put in and escaped, a 404 is not repeated, a 503 is.
func TestBinaryURL(t *testing.T) {
	a := serve(t, func(w http.ResponseWriter, r *http.Request, times int) {
		switch {
		case r.URL.Path == "/gone":
			http.NotFound(w, r)
		case r.URL.Path == "/busy" && times == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			fmt.Fprintf(w, "%s %s", r.Header.Get("X-Item"), r.URL)
		}
	})
	dir := t.TempDir()
	args := []string{"-ordered", "-backoff", "1ms", "-header", "X-Item: {#}", "-log", "run.jsonl", "-url", a.URL + "/{}?n={}"}
	r := runIn(t, dir, "a&b\ngone\nbusy\n", args...)
	r.want(t, 1, "1 /a&b?n=a%26b\n3 /busy?n=busy\n", "gone failed: http://127.0.0.1:", "404 Not Found\n", "2 ok, 1 failed, 1 retries; ")
	want := map[string]int{"/a&b?n=a%26b": 1, "/gone?n=gone": 1, "/busy?n=busy": 2}
	a.want(t, want)
	for _, l := range readLog(t, dir) {
		if attempts := map[string]int{"a&b": 1, "gone": 1, "busy": 2}[l.Key]; l.Attempts != attempts || l.Sent.Before(l.Intended) {
			t.Errorf("%+v, want %d attempts", l, attempts)
		}
	}
	runIn(t, dir, "a&b\ngone\nbusy\n", append([]string{"-resume"}, args...)...).want(t, 1, "", "3 skipped")
	a.want(t, want)
}

// The body and the method; a POST is not sent twice, unless the server refused it.
func TestBinaryPost(t *testing.T) {
	a := serve(t, func(w http.ResponseWriter, r *http.Request, times int) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.Method != http.MethodPost || string(body) != `{"id":"`+r.URL.Path[1:]+`"}`:
			w.WriteHeader(http.StatusBadRequest)
		case r.URL.Path == "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		case r.URL.Path == "/refused" && times == 1:
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			fmt.Fprint(w, string(body))
		}
	})
	r := runIn(t, t.TempDir(), "x\nbroken\nrefused\n", "-ordered", "-backoff", "1ms", "-method", "POST", "-body", `{"id":"{}"}`, "-url", a.URL+"/{}")
	r.want(t, 1, "{\"id\":\"x\"}\n{\"id\":\"refused\"}\n", "broken failed: ", "500 Internal Server Error")
	a.want(t, map[string]int{"/x": 1, "/broken": 1, "/refused": 2})
}

// A Retry-After holds all of them, by no less than it says.
func TestBinaryRetryAfter(t *testing.T) {
	var mu sync.Mutex
	var refused time.Time
	a := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		mu.Lock()
		defer mu.Unlock()
		if refused.IsZero() {
			refused = time.Now()
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		if early := time.Second - time.Since(refused); early > 0 {
			t.Errorf("%s comes %v too early", r.URL, early)
		}
	})
	runIn(t, t.TempDir(), "a\nb\nc\n", "-jobs", "1", "-url", a.URL+"/{}").want(t, 0, "", "3 ok, 0 failed, 1 retries; p95: late < ")
}

// Interrupted, calls in flight that fail for good have failed, and those that
// would have been tried again are unfinished.
func TestBinaryURLInterruptedFailures(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	a := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		arrived <- struct{}{}
		<-release
		if r.URL.Path == "/busy" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		http.NotFound(w, r)
	})
	dir := t.TempDir()
	p := start(t, dir, "-jobs", "2", "-log", "run.jsonl", "-url", a.URL+"/{}")
	fmt.Fprint(p.stdin, "busy\ngone\n")
	<-arrived
	<-arrived
	p.signal(t, syscall.SIGTERM)
	p.stderr.until("interrupted: ")
	close(release)
	if status := p.wait(t); status != 130 || !strings.Contains(p.stderr.String(), "0 ok, 1 failed, 1 unfinished; ") {
		t.Errorf("status %d, stderr\n%s", status, p.stderr)
	}
	if log := readLog(t, dir); len(log) != 1 || log[0].Key != "gone" || log[0].State != "failed" {
		t.Errorf("the log has %+v", log)
	}
}

// Fewer attempts than were asked for need a reason: the retry budget of a host
// that fails all the time, or a request that may have been done already.
func TestBinaryNotRetried(t *testing.T) {
	a := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) { w.WriteHeader(http.StatusInternalServerError) })
	items := strings.Repeat("a\n", 30)
	r := runIn(t, t.TempDir(), items, "-jobs", "1", "-backoff", "1ms", "-aside", "0", "-url", a.URL+"/{}")
	r.want(t, 1, "", "a failed: http://127.0.0.1:", "/a: 500 Internal Server Error (4 attempts)\n", "/a: 500 Internal Server Error (not retried: "+sluice.ErrBudget.Error()+")\n")
	r = runIn(t, t.TempDir(), "a\n", "-method", "POST", "-backoff", "1ms", "-url", a.URL+"/{}")
	r.want(t, 1, "", "/a: 500 Internal Server Error (not retried: the request may not be sent twice)\n")
}

// A dead host holds up nobody, and its items do not wait for their turn to be refused a
// connection.
func TestBinaryDeadHost(t *testing.T) {
	a := serve(t, func(http.ResponseWriter, *http.Request, int) {})
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close() // nobody listens there now
	var items strings.Builder
	for i := range 100 {
		fmt.Fprintf(&items, "%s/%d\nhttp://%s/%d\n", a.URL, i, dead.Addr(), i)
	}
	dir := t.TempDir()
	r := runIn(t, dir, items.String(), "-jobs", "4", "-backoff", "10ms", "-log", "run.jsonl", "-url", "{}")
	r.want(t, 1, "", "100 ok, 100 failed, ", dead.Addr().String()+" is set aside, too many attempts in a row have failed: dial tcp "+dead.Addr().String()+": connect: connection refused\n",
		"not tried: too many failed before it (-aside)\n", dead.Addr().String()+" still fails")
	tried := 0
	for i, l := range readLog(t, dir) {
		if l.State == "failed" && l.Attempts > 0 {
			tried++
		}
		if l.State == "ok" && i > 130 {
			t.Errorf("%s is number %d", l.Key, i)
		}
	}
	if tried > 20 {
		t.Errorf("%d items of the dead host were tried", tried)
	}
}

// An address that cannot be called fails for good: the job neither stops for many of them, to be resumed in vain, nor
// sets anything aside.
func TestBinaryBadAddresses(t *testing.T) {
	for bad, why := range map[string]string{
		"http://127.0.0.1:bad":   `invalid port ":bad`,
		"ftp://127.0.0.1/":       "want http://host/…",
		"/":                      "want http://host/…",
		"127.0.0.1:1/":           "first path segment in URL cannot contain colon",
		"http:///":               "want http://host/…",
		"http://127.0.0.1:1\x7f": "invalid control character in URL",
	} {
		var items strings.Builder
		for i := range 40 {
			fmt.Fprintf(&items, "%s%d\n", bad, i)
		}
		r := runIn(t, t.TempDir(), items.String(), "-jobs", "1", "-url", "{}")
		r.want(t, 1, "", "0 ok, 40 failed", why)
		if strings.Contains(r.stderr, "aside") {
			t.Errorf("%s: %.300s", bad, r.stderr)
		}
	}
}

// A server that wants to be left alone for longer stops the job. Nothing has
// failed, and it can be resumed.
func TestBinaryServerWait(t *testing.T) {
	var calls atomic.Int64
	a := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		if calls.Add(1) > 1 {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	dir := t.TempDir()
	r := runIn(t, dir, "a\nb\nc\nd\n", "-jobs", "1", "-log", "run.jsonl", "-url", a.URL+"/{}")
	// The message is that of b, which got the response, or of c, which finds the gate paused.
	r.want(t, 3, "", "1 ok, 0 failed, ", "ended early: ", "ended early: http://127.0.0.1:", ": the server asks for too long a wait, ", "429 Too Many Requests", "come back at ", "resume it, with the same input, by\n")
	if log := readLog(t, dir); len(log) != 1 || calls.Load() != 2 {
		t.Errorf("the log has %+v, after %d calls", log, calls.Load())
	}
}

// Interrupted: the call in flight is finished, to the end of its body, and
// those that wait for the rate are not made.
func TestBinaryURLInterrupted(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	a := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		fmt.Fprint(w, "begin ")
		w.(http.Flusher).Flush()
		arrived <- struct{}{}
		<-release
		fmt.Fprintln(w, "end")
	})
	dir := t.TempDir()
	in := filepath.Join(dir, "items")
	if err := os.WriteFile(in, []byte("a\nb\nc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, "-in", in, "-rate", "1/h", "-jobs", "3", "-url", a.URL+"/{}")
	<-arrived
	p.signal(t, syscall.SIGTERM)
	p.stderr.until("interrupted: ")
	close(release)
	if status := p.wait(t); status != 130 || p.stdout.String() != "begin end\n" || !strings.Contains(p.stderr.String(), "1 ok, 0 failed, 2 unfinished; ") {
		t.Errorf("status %d, stdout %q, stderr\n%s", status, p.stdout, p.stderr)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.asked) != 1 {
		t.Errorf("asked %v", a.asked)
	}
}

// Interrupted while a server wants to be left alone for a day: the call is in
// no attempt, and is not waited for.
func TestBinaryURLInterruptedInAPause(t *testing.T) {
	arrived := make(chan struct{}, 100)
	a := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		w.Header().Set("Retry-After", "86400")
		w.WriteHeader(http.StatusTooManyRequests)
		arrived <- struct{}{}
	})
	p := start(t, t.TempDir(), "-jobs", "1", "-max-wait", "48h", "-url", a.URL+"/{}")
	fmt.Fprint(p.stdin, "a\nb\n")
	<-arrived
	p.signal(t, syscall.SIGINT)
	if status := p.wait(t); status != 130 || !strings.Contains(p.stderr.String(), " unfinished") {
		t.Errorf("status %d, stderr\n%s", status, p.stderr)
	}
}

// Nobody has to say how often a server may be called.
func TestBinaryURL_RateAuto(t *testing.T) {
	limit, err := leaky.New(sluice.Rate{Count: 200, Per: time.Second, Burst: 10})
	if err != nil {
		t.Fatal(err)
	}
	a := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		if !limit.Take(1).Allowed() {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	var items strings.Builder
	for i := range 100 {
		fmt.Fprintln(&items, i)
	}
	runIn(t, t.TempDir(), items.String(), "-rate", "auto", "-quiet", "-url", a.URL+"/{}").
		want(t, 0, "", "100 ok, 0 failed", "its limit, as far as is known: ")
}

// A body that stalls or is cut is asked for again, as often as -retries says, but no POST is. The
// others are served meanwhile, and the job ends.
func TestBinaryURL_BrokenBodies(t *testing.T) {
	ended := make(chan struct{})
	a := serve(t, func(w http.ResponseWriter, r *http.Request, times int) {
		kind, often, _ := strings.Cut(r.URL.Path[1:], "-")
		if often == "once" && times > 1 || kind == "fine" {
			fmt.Fprint(w, r.URL.Path)
			return
		}
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, "begins")
		if w.(http.Flusher).Flush(); kind == "stall" {
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		}
		panic(http.ErrAbortHandler)
	})
	defer close(ended)
	items := "stall-once\nstall-ever\ncut-once\ncut-ever\nfine\n"
	args := []string{"-ordered", "-backoff", "1ms", "-timeout", "300ms", "-retries", "2", "-url", a.URL + "/{}"}
	r := runIn(t, t.TempDir(), items, args...)
	r.want(t, 1, "/stall-once\n/cut-once\n/fine\n",
		"stall-ever failed: reading "+a.URL+"/stall-ever: nothing came for 300ms (-timeout) (3 attempts)",
		"cut-ever failed: reading "+a.URL+"/cut-ever: unexpected EOF (3 attempts)", "3 ok, 2 failed")
	a.want(t, map[string]int{"/stall-once": 2, "/stall-ever": 3, "/cut-once": 2, "/cut-ever": 3, "/fine": 1})

	runIn(t, t.TempDir(), "cut-post\n", append([]string{"-method", "POST"}, args...)...).want(t, 1, "", "unexpected EOF")
	a.want(t, map[string]int{"/stall-once": 2, "/stall-ever": 3, "/cut-once": 2, "/cut-ever": 3, "/fine": 1, "/cut-post": 1})
}

// -max-time bounds a request to the end of its body, however busy it is, and -timeout does not.
func TestBinaryURL_MaxTime(t *testing.T) {
	a := serve(t, func(w http.ResponseWriter, r *http.Request, times int) {
		if times > 1 {
			fmt.Fprint(w, "done")
			return
		}
		if r.URL.Path == "/body" {
			fmt.Fprint(w, "begins")
			w.(http.Flusher).Flush()
		}
		for r.Context().Err() == nil {
			time.Sleep(time.Millisecond)
			if r.URL.Path == "/body" {
				fmt.Fprint(w, ".")
				w.(http.Flusher).Flush()
			}
		}
	})
	args := []string{"-ordered", "-backoff", "1ms", "-max-time", "200ms", "-url", a.URL + "/{}"}
	runIn(t, t.TempDir(), "body\nheader\n", args...).want(t, 0, "done\ndone\n", "2 ok, 0 failed, 2 retries")
	a.mu.Lock()
	clear(a.asked)
	a.mu.Unlock()
	runIn(t, t.TempDir(), "body\nheader\n", append([]string{"-retries", "0"}, args...)...).
		want(t, 1, "", "reading "+a.URL+"/body: not complete after 200ms (-max-time)\n", "header failed: not complete after 200ms (-max-time)\n")
}

// A redirect that is followed is no retry, and what is retried behind it is one.
func TestBinaryURL_Redirects(t *testing.T) {
	a := serve(t, func(w http.ResponseWriter, r *http.Request, times int) {
		switch {
		case r.URL.Path != "/0":
			http.Redirect(w, r, fmt.Sprint("/", r.URL.Path[1]-'1'), http.StatusFound)
		case times == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	dir := t.TempDir()
	r := runIn(t, dir, "5\n", "-backoff", "1ms", "-log", "run.jsonl", "-url", a.URL+"/{}")
	r.want(t, 0, "", "1 ok, 0 failed, 1 retries; ")
	a.want(t, map[string]int{"/5": 1, "/4": 1, "/3": 1, "/2": 1, "/1": 1, "/0": 2})
	if log := readLog(t, dir); len(log) != 1 || log[0].Attempts != 2 {
		t.Errorf("the log has %+v", log)
	}
}

// A body that is too long is refused by its length, before it is read; without one it is cut
// short. -max-body moves the bound.
func TestBinaryURL_MaxBody(t *testing.T) {
	ended := make(chan struct{})
	defer close(ended)
	a := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		switch r.URL.Path {
		case "/known":
			w.Header().Set("Content-Length", "70000000") // and it never comes
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-ended
		case "/unknown":
			for r.Context().Err() == nil {
				w.Write(make([]byte, 1<<16))
			}
		default:
			io.WriteString(w, strings.Repeat("x", 1024))
		}
	})
	dir := t.TempDir()
	long := ": the response is longer than "
	args := []string{"-retries", "0", "-results", "r", "-url", a.URL + "/{}"}
	runIn(t, dir, "known\nunknown\nfine\n", args...).want(t, 1, "", "known failed: "+a.URL+"/known"+long+"64M (-max-body)", "unknown failed: "+a.URL+"/unknown"+long+"64M", "1 ok, 2 failed")
	runIn(t, dir, "a\n", append([]string{"-max-body", "1023"}, args...)...).want(t, 1, "", long+"1023 (-max-body)")
	runIn(t, dir, "a\n", append([]string{"-max-body", "1K"}, args...)...).want(t, 0, "", "1 ok")
	runIn(t, dir, "a\n", append([]string{"-method", "HEAD", "-max-body", "1"}, args...)...).want(t, 0, "", "1 ok")
	files, err := filepath.Glob(filepath.Join(dir, "r", "*.part"))
	if err != nil || len(files) > 0 {
		t.Errorf("left %v, %v", files, err)
	}
}

// With -results a body is in its file as it came, and a long one goes there, whatever room there
// is for temporary files.
func TestBinaryURL_Results(t *testing.T) {
	bodies := map[string]string{"/short": "\x89PNG", "/long": strings.Repeat("long", 1<<20)}
	a := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) { io.WriteString(w, bodies[r.URL.Path]) })
	dir := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(dir, "missing"))
	runIn(t, dir, "short\nlong\n", "-max-body", "0", "-results", "r", "-url", a.URL+"/{}").want(t, 0, "", "2 ok")
	for name, path := range map[string]string{"1.out": "/short", "2.out": "/long"} {
		if got, err := os.ReadFile(filepath.Join(dir, "r", name)); err != nil || string(got) != bodies[path] {
			t.Errorf("%s has %d bytes, %v", name, len(got), err)
		}
	}
}

// If there are too few file handles for -jobs, fewer calls are made at once, and none fails.
func TestBinaryURL_FewHandles(t *testing.T) {
	a := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		w.Header().Set("Connection", "close")
		time.Sleep(10 * time.Millisecond)
	})
	r := runLimited(t, 30, numbers(200), "-jobs", "100", "-retries", "0", "-rate", "100000/s", "-url", a.URL+"/{}")
	r.want(t, 0, "", "200 ok, 0 failed", "fewer than -jobs ran at once")
}

// A server that sends more than a response makes package net/http print something. It is a line of
// sluice batch, once.
func TestBinaryURL_Unsolicited(t *testing.T) {
	a := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
		time.Sleep(time.Millisecond)
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
		time.Sleep(10 * time.Millisecond)
	})
	r := runIn(t, t.TempDir(), numbers(20), "-jobs", "1", "-rate", "100/s", "-url", a.URL+"/{}")
	for line := range strings.Lines(r.stderr) {
		if !strings.HasPrefix(line, "sluice batch: ") {
			t.Errorf("line %q", line)
		}
	}
	if n := strings.Count(r.stderr, "Unsolicited response"); n != 1 {
		t.Errorf("%d lines in\n%s", n, r.stderr)
	}
}

// -retry-on adds statuses to those that are retried.
func TestBinaryURL_RetryOn(t *testing.T) {
	a := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		switch r.URL.Path {
		case "/unimplemented":
			w.WriteHeader(http.StatusNotImplemented)
		case "/gone":
			w.WriteHeader(http.StatusGone)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	args := []string{"-jobs", "1", "-retries", "1", "-backoff", "1ms", "-url", a.URL + "/{}"}
	runIn(t, t.TempDir(), "missing\n", args...).want(t, 1, "")
	a.want(t, map[string]int{"/missing": 1})
	runIn(t, t.TempDir(), "missing\ngone\nunimplemented\n", append([]string{"-retry-on", "404,5xx"}, args...)...).want(t, 1, "", "3 failed")
	a.want(t, map[string]int{"/missing": 3, "/gone": 1, "/unimplemented": 1})
}

// -timeout bounds the silence before the header of a response.
func TestBinaryURL_NoResponse(t *testing.T) {
	a := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() })
	runIn(t, t.TempDir(), "a\n", "-backoff", "1ms", "-retries", "1", "-timeout", "100ms", "-url", a.URL+"/{}").
		want(t, 1, "", "a failed: no response within 100ms (-timeout) (2 attempts)\n")
	a.want(t, map[string]int{"/a": 2})
}
