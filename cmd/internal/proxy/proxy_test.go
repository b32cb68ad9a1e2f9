package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// echo answers with the request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Server-Timing", "db;dur=1")
	fmt.Fprintf(w, "%s %s://%s%s?%s %q %q", r.Method, map[bool]string{true: "https", false: "http"}[r.TLS != nil], r.Host, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Get("Authorization"), body)
}

func TestProxy_Routes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{}, sluicetest.Handler(http.HandlerFunc(echo)))
		for _, test := range []struct{ method, path, body, want string }{
			{"GET", "/api.github.com/zen", "", `GET https://api.github.com/zen? "Bearer x" ""`},
			{"GET", "/api.github.com", "", `GET https://api.github.com/? "Bearer x" ""`},
			{"POST", "/api.openai.com/v1/embeddings?a=b;c&d=%zz", "{}", `POST https://api.openai.com/v1/embeddings?a=b;c&d=%zz "Bearer x" "{}"`},
			{"GET", "/api/a%2Fb/c%20d//e/", "", `GET http://api.test/v1/a%2Fb/c%20d//e/? "Bearer x" ""`},
			{"GET", "/api", "", `GET http://api.test/v1? "Bearer x" ""`},
			{"PUT", "/other/", "body", `PUT http://other.test/? "Bearer x" "body"`},
		} {
			got := h.call(test.method, test.path, test.body, "Authorization: Bearer x")
			if got.StatusCode != 200 || got.body != test.want {
				t.Errorf("%s: %d %s, want %s", test.path, got.StatusCode, got.body, test.want)
			}
			if s := got.Header.Values("Server-Timing"); len(s) != 2 || s[0] != "db;dur=1" || s[1] != "sluice;dur=0.0" {
				t.Errorf("%s: Server-Timing %q", test.path, s)
			}
		}
		if got := h.call("GET", "/api.example.com/", ""); got.StatusCode != 404 || h.upstream.Record().Requests[len(h.upstream.Record().Requests)-1].Host == "api.example.com" {
			t.Errorf("no route: %d", got.StatusCode)
		}
	})
}

// No caller sees a refusal, although nobody knows the limit.
func TestProxy_WaitsInsteadOfRefusing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{}, sluicetest.Enforce(sluicetest.Limit{Count: 10, Per: 10 * time.Second}))
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() {
				if got := h.call("POST", "/api/x", "body"); got.StatusCode != 200 {
					t.Errorf("%d %s", got.StatusCode, got.body)
				}
			})
		}
		all.Wait()
	})
}

// A wait that is known to be longer than the patience of the caller is refused immediately, with
// the time that is true.
func TestProxy_Patience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{}, sluicetest.On(1, sluicetest.Reply(429, "slow down", "Retry-After: 30")))
		// The first call learns it from the server, whose answer it gets.
		got := h.call("GET", "/api/", "", "Sluice-Patience: 5")
		if got.StatusCode != 429 || got.body != "slow down" || got.took != 0 {
			t.Errorf("first: %d %q after %v", got.StatusCode, got.body, got.took)
		}
		time.Sleep(10 * time.Second)
		got = h.call("GET", "/api/", "", "Sluice-Patience: 5s")
		after := got.Header.Get("Retry-After")
		if got.StatusCode != 429 || (after != "20" && after != "21") || got.took != 0 || got.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("second: %d, Retry-After %s, after %v, %v", got.StatusCode, after, got.took, got.Header)
		}
		var said struct {
			Type, Title, Detail string
			Status              int
			Seconds             int `json:"retry_after"`
		}
		if err := json.Unmarshal([]byte(got.body), &said); err != nil || said.Type != quotaExceeded || said.Status != 429 || fmt.Sprint(said.Seconds) != after || !strings.Contains(said.Detail, "pause") {
			t.Errorf("%s: %+v, %v", got.body, said, err)
		}
		// One with more patience waits, and the response says so.
		got = h.call("GET", "/api/", "")
		if s := got.Header.Get("Server-Timing"); got.StatusCode != 200 || got.took < 20*time.Second || got.took > 21*time.Second || s != fmt.Sprintf(`sluice;dur=%.1f;desc="pause"`, got.took.Seconds()*1000) {
			t.Errorf("third: %d after %v, %s", got.StatusCode, got.took, s)
		}
		if n := len(h.upstream.Record().Requests); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
		for _, bad := range []string{"-1", "soon", "1 day", "NaN", "9999999999999h"} {
			if got := h.call("GET", "/api/", "", "Sluice-Patience: "+bad); got.StatusCode != 400 {
				t.Errorf("patience %q: %d", bad, got.StatusCode)
			}
		}
	})
}

// The patience is for waits: a call that is under way, or whose response is read, is not ended.
func TestProxy_Patience_NotForTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{timeout: time.Hour}, sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(10 * time.Second)
			w.WriteHeader(200)
			http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Second)
			io.WriteString(w, "late")
		})))
		if got := h.call("GET", "/api/", "", "Sluice-Patience: 1"); got.StatusCode != 200 || got.body != "late" || got.took != 20*time.Second {
			t.Errorf("%d %q after %v", got.StatusCode, got.body, got.took)
		}
	})
}

// Retries wait for the rest of the patience, together.
func TestProxy_Patience_OfRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{}, sluicetest.Reply(429, "again", "Retry-After: 4"))
		got := h.call("GET", "/api/", "", "Sluice-Patience: 10")
		if got.StatusCode != 429 || got.took > 10*time.Second || got.took < 4*time.Second || got.body != "again" {
			t.Errorf("%d %q after %v", got.StatusCode, got.body, got.took)
		}
	})
}

// A caller that hangs up gives its place back.
func TestProxy_HangUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{}, sluicetest.On(1, sluicetest.Reply(429, "", "Retry-After: 30")))
		var all sync.WaitGroup
		for i := range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			all.Go(func() {
				_, err := h.try(ctx, "POST", "/api/", "body", fmt.Sprintf("X-Api-Key: %d", i%2))
				if i > 0 && !errors.Is(err, context.Canceled) {
					t.Errorf("call %d: %v", i, err)
				}
			})
			synctest.Wait()
			if i > 0 {
				time.AfterFunc(time.Duration(i)*time.Second, cancel)
			} else {
				defer cancel()
			}
		}
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if n := h.proxy.calls.Load(); n != 1 || len(h.proxy.turns.m) != 0 {
			t.Errorf("%d calls are under way, want 1; %d turns", n, len(h.proxy.turns.m))
		}
		all.Wait()
		if n := len(h.upstream.Record().Requests); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
	})
}

// A call returns all that it holds, however it ends.
func TestProxy_GivesAllBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{}, sluicetest.On(1, sluicetest.Status(500)), sluicetest.On(2, sluicetest.Cut()), sluicetest.On(3, sluicetest.CutBody(1)))
		for range 4 {
			_, _ = h.try(t.Context(), "POST", "/api/", "body")
		}
		synctest.Wait()
		if h.proxy.calls.Load() != 0 || len(h.proxy.turns.m) != 0 || h.proxy.room.InFlight() != 0 {
			t.Errorf("%d calls, %d turns, %d bytes", h.proxy.calls.Load(), len(h.proxy.turns.m), h.proxy.room.InFlight())
		}
	})
}
