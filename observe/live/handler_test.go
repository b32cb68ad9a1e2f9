package live

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
)

var bg = context.Background()

func mustGate(t *testing.T, cfg sluice.Config) *sluice.Gate {
	t.Helper()
	g, err := sluice.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func get(t *testing.T, h http.Handler, url string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", url, nil))
	return w
}

// The page has every gate, escaped and without secrets, under any path, and a policy that
// allows nothing inline and nothing from elsewhere.
func TestHandler_Page(t *testing.T) {
	paused := mustGate(t, sluice.Config{Name: "</td><script>x</script>", Concurrency: 8})
	paused.PauseUntil(time.Now().Add(time.Hour), "see https://u:secret@host/?key=secret")
	keyed := limits.Must(sluice.NewKeyed(func(key int) (*sluice.Gate, error) {
		return sluice.New(sluice.Config{Rate: sluice.Rate{Count: 5, Per: time.Second}})
	}))
	if err := keyed.Do(bg, 17, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	named := func(yield func(sluice.Stats) bool) { yield(sluice.Stats{Name: "from an exporter"}) }
	h := New(FromGates(paused), FromKeyed(keyed), shownOnly(named))
	for _, path := range []string{"/", "/debug/gates", "/debug/gates/"} {
		w := get(t, h, path)
		page := w.Body.String()
		for _, part := range []string{
			"&lt;/td&gt;&lt;script&gt;x&lt;/script&gt;", "No call waits; the next would wait for the pause (see https://host/), until ", "0 of 8",
			">17<", "5/s asked", "from an exporter", "3 of 3 gates are shown", "Nothing to do: no calls arrive.",
			`<script src="?asset=js" defer>`,
		} {
			if !strings.Contains(page, part) {
				t.Errorf("%s: no %s", path, part)
			}
		}
		for _, part := range []string{"secret", "<script>", "style=", "onclick", "://cdn", "Token"} {
			if strings.Contains(page, part) {
				t.Errorf("%s has %s", path, part)
			}
		}
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none';") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("policy: %s", policy)
		}
	}
	if page := get(t, h, "/?q=EXPORTER&sort=name").Body.String(); !strings.Contains(page, "1 of 1 gates") || !strings.Contains(page, `value="EXPORTER"`) {
		t.Errorf("search: %s", page)
	}
	if page := get(t, New(), "/").Body.String(); !strings.Contains(page, "No gates yet.") {
		t.Errorf("empty: %s", page)
	}
}

func TestHandler_Requests(t *testing.T) {
	h := New()
	for _, c := range []struct {
		method, path string
		status       int
		kind         string
	}{
		{"GET", "/?asset=css", 200, "text/css; charset=utf-8"},
		{"GET", "/?asset=js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/?asset=icon", 200, "image/svg+xml"},
		{"GET", "/?asset=../doc.go", 404, "text/plain; charset=utf-8"},
		{"HEAD", "/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/?events", 200, ""},
		{"PUT", "/", 405, "text/plain; charset=utf-8"},
		{"POST", "/", 403, "application/json"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || w.Header().Get("Content-Type") != c.kind || c.method == "HEAD" && w.Body.Len() > 0 {
			t.Errorf("%s %s: %d, %v, %d bytes", c.method, c.path, w.Code, w.Header(), w.Body.Len())
		}
	}
}

// A token that can be guessed changes nothing, and Listen says so.
func TestHandler_BadInput(t *testing.T) {
	h := New(FromGates(mustGate(t, sluice.Config{Name: "g"})))
	h.Token = "fifteen letters"
	if _, _, err := h.Listen("localhost:0"); err == nil || !strings.HasPrefix(err.Error(), "live: ") {
		t.Errorf("Listen: %v", err)
	}
	if w := get(t, h, "/"); strings.Contains(w.Body.String(), `type="password"`) {
		t.Error("the page asks for the token")
	}
	r := httptest.NewRequest("POST", "/", strings.NewReader(`{"name": "g", "do": "pause", "for": "1m"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Sluice-Token", h.Token)
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "16 bytes") {
		t.Errorf("a change: %d %s", w.Code, w.Body)
	}
	h.Every = -1
	if h.every() != 100*time.Millisecond {
		t.Error(h.every())
	}
	defer func() {
		if recover() == nil {
			t.Error("a nil sequence is accepted")
		}
	}()
	New(nil)
}

// sent is a message as a viewer reads it.
type sent struct {
	message
	Gates []view `json:"gates"`
}

// A stream is one viewer's connection.
type stream struct {
	t    *testing.T
	resp *http.Response
	from *bufio.Reader
}

func watch(t *testing.T, url string) *stream {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	return &stream{t, resp, bufio.NewReader(resp.Body)}
}

func (s *stream) next() (m sent) {
	s.t.Helper()
	data, err := s.from.ReadString('\n')
	end, _ := s.from.ReadString('\n')
	text, ok := strings.CutPrefix(data, "data: ")
	if err == nil && ok && end == "\n" {
		err = json.Unmarshal([]byte(text), &m)
	}
	if err != nil || !ok {
		s.t.Fatalf("%q, %q: %v", data, end, err)
	}
	return m
}

// Two viewers with two queries share each sample, over a server whose WriteTimeout is shorter
// than the time between two samples. When the last of them leaves, nothing runs.
func TestHandler_Events(t *testing.T) {
	a, b := mustGate(t, sluice.Config{Name: "a"}), mustGate(t, sluice.Config{Name: "b"})
	h := New(FromGates(a, b))
	h.Every = 100 * time.Millisecond
	s := httptest.NewUnstartedServer(h)
	s.Config.WriteTimeout = 50 * time.Millisecond
	s.Start()
	defer s.Close()

	both, one := watch(t, s.URL+"?events=1"), watch(t, s.URL+"?events=1&q=b")
	for i := range 4 {
		if m := both.next(); len(m.Gates) != 2 || m.Matching != 2 || m.Start != h.start || m.Every != 100 || i > 1 && m.Gates[0].Pace < 0 {
			t.Errorf("%+v", m)
		}
		if m := one.next(); len(m.Gates) != 1 || m.Gates[0].Name != "b" {
			t.Errorf("%+v", m)
		}
	}
	if kind := both.resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("Content-Type is %s", kind)
	}
	both.resp.Body.Close()
	one.next()
	one.resp.Body.Close()
	s.Close() // waits for both
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ticking != nil || len(h.viewers) != 0 || h.sampler.known != nil {
		t.Errorf("still %d viewers, %d gates", len(h.viewers), len(h.sampler.known))
	}
}

// Without Close, Shutdown would wait for the viewers.
func TestHandler_Close(t *testing.T) {
	h := New()
	s := httptest.NewServer(h)
	defer s.Close()
	s.Config.RegisterOnShutdown(h.Close)
	v := watch(t, s.URL+"?events=1")
	defer v.resp.Body.Close()
	v.next()
	ctx, cancel := context.WithTimeout(bg, 30*time.Second)
	defer cancel()
	if err := s.Config.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(v.from); err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	h.Close()
	if w := get(t, h, "/?events=1"); w.Code != 503 {
		t.Errorf("events after Close: %d", w.Code)
	}
	if w := get(t, h, "/"); w.Code != 200 {
		t.Errorf("the page after Close: %d", w.Code)
	}
}

func TestHandler_MaxViewers(t *testing.T) {
	h := New()
	h.MaxViewers = 1
	s := httptest.NewServer(h)
	defer s.Close()
	v := watch(t, s.URL+"?events=1")
	defer v.resp.Body.Close()
	v.next()
	if w := get(t, h, "/?events=1"); w.Code != 503 {
		t.Errorf("a second viewer: %d", w.Code)
	}
}

// A viewer that does not read misses messages, and gets the newest.
func TestHandler_SlowViewer(t *testing.T) {
	var s sluice.Stats
	samples := 0
	h := New(of(func() []sluice.Stats { samples++; return []sluice.Stats{s} }))
	stop := make(chan struct{})
	slow, fast := &viewer{query: parseQuery(nil), next: make(chan []byte, 1)}, &viewer{query: parseQuery(nil), next: make(chan []byte, 1)}
	h.viewers[slow], h.viewers[fast] = struct{}{}, struct{}{}
	for i := range 3 {
		s.Waiting = int64(i)
		h.publish(noon.Add(time.Duration(i)*time.Second), stop)
		if text := string(<-fast.next); !strings.Contains(text, fmt.Sprintf(`"waiting":"%d"`, i)) {
			t.Errorf("message %d: %s", i, text)
		}
	}
	if text := string(<-slow.next); !strings.Contains(text, `"waiting":"2"`) || len(slow.next) > 0 {
		t.Errorf("the slow one gets %s", text)
	}
	if samples != 3 {
		t.Errorf("%d samples for 3 ticks and 2 viewers", samples)
	}
	close(stop)
	h.publish(noon, stop)
	if len(fast.next) > 0 {
		t.Error("a message after the end")
	}
}

// What a server says about its limits is in the details.
func TestTransport(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "5000")
		w.Header().Set("X-RateLimit-Remaining", "4210")
		w.Header().Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Add(90*time.Minute).Unix()))
	}))
	defer s.Close()
	transport := limits.Must(sluicehttp.New(s.Client().Transport))
	defer transport.Close()
	resp, err := (&http.Client{Transport: transport}).Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	page := get(t, New(FromTransport(transport)), "/").Body.String()
	if !strings.Contains(page, s.URL) || !strings.Contains(page, "4,210 of 5,000 requests remain") || !strings.Contains(page, "new in 1 h") {
		t.Errorf("%s", page)
	}
}

// Any name becomes valid JSON on one line, and the same text in HTML.
func FuzzNames(f *testing.F) {
	f.Add("api", "key", "why")
	f.Add("</script>\u2028", "a\n\ndata: x", "\xff\x00\"'&<")
	f.Fuzz(func(t *testing.T, name, key, reason string) {
		h := New(func(yield func(Gate) bool) {
			yield(Gate{Key: key, Stats: sluice.Stats{Name: name, PausedUntil: time.Now().Add(time.Hour), PausedWhy: reason}})
		})
		h.sampler.take(time.Now())
		text := string(h.encode(parseQuery(nil)))
		data, ok := strings.CutPrefix(text, "data: ")
		var m sent
		if err := json.Unmarshal([]byte(data), &m); err != nil || !ok || strings.Count(text, "\n") != 2 || strings.Contains(text, "\r") {
			t.Fatalf("%q: %v", text, err)
		}
		page := get(t, h, "/").Body.String()
		if strings.Count(page, "<script") != 1 || strings.Count(page, "<tr ") != 3 {
			t.Errorf("%s", page)
		}
		if m.Gates[0].Name == "" {
			t.Error("no name")
		}
	})
}

// shownOnly returns a sequence of gates that the page can only show.
func shownOnly(stats iter.Seq[sluice.Stats]) iter.Seq[Gate] {
	return func(yield func(Gate) bool) {
		for s := range stats {
			if !yield(Gate{Stats: s}) {
				return
			}
		}
	}
}
