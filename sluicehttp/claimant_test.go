package sluicehttp_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// byHeader returns the claimant that a header names, of a class that another one names.
func byHeader(req *http.Request) sluice.Claimant {
	who := sluice.Claimant{Name: req.Header.Get("Tenant"), Class: req.Header.Get("Class")}
	if who.Class == "user" {
		who.ClassWeight = 15
	}
	return who
}

// claim is get for a claimant.
func (w *world) claim(path, class, tenant string) (status int, err error) {
	req := request(w, w.Context(), http.MethodGet, "http://api.example.com"+path, nil)
	req.Header.Set("Class", class)
	req.Header.Set("Tenant", tenant)
	status, _, err = w.do(req)
	return status, err
}

// A user's request waits for at most two intervals behind 600 of a batch of many tenants, which get the
// same, and all that users do not use.
func TestConfig_Claimant(t *testing.T) {
	cfg := sluicehttp.Config{Gate: sluice.Config{Rate: sluice.Rate{Count: 10, Per: time.Second}}, Claimant: byHeader}
	inWorld(t, cfg, nil, func(w *world) {
		var all sync.WaitGroup
		defer all.Wait()
		var mu sync.Mutex
		var order []string
		for i := range 600 {
			tenant := fmt.Sprint("tenant", min(i%100, 5)) // the last one has most
			all.Go(func() {
				if status, err := w.claim("/", "batch", tenant); err != nil || status != 200 {
					w.Errorf("%d, %v", status, err)
				}
				mu.Lock()
				order = append(order, tenant)
				mu.Unlock()
			})
		}
		for range 20 {
			time.Sleep(333 * ms)
			came := time.Now()
			if status, err := w.claim("/", "user", ""); err != nil || status != 200 || time.Since(came) > 200*ms {
				w.Errorf("%d, %v after %v", status, err, time.Since(came))
			}
		}
		waiting := int64(0)
		w.rt.Claimants(func(key string, who sluice.Claimant, s sluice.Stats) bool {
			if key != "http://api.example.com" || who.Class != "user" && who.Class != "batch" {
				w.Errorf("%s: %v", key, who)
			}
			if who.Name != "" {
				waiting += s.Waiting + s.Pacing
			}
			return true
		})
		mu.Lock()
		defer mu.Unlock()
		if int(waiting) != 600-len(order) {
			w.Errorf("%d requests of claimants wait, want %d", waiting, 600-len(order))
		}
		first := order[:30] // six of each
		for i := range 6 {
			n := len(slices.DeleteFunc(slices.Clone(first), func(s string) bool { return s != fmt.Sprint("tenant", i) }))
			if n < 4 || n > 6 {
				w.Errorf("tenant %d is %d times among the first 30: %v", i, n, first)
			}
		}
	})
}

// A throttled request pauses the gate of the server, for all claimants, and names it.
func TestConfig_Claimant_Refused(t *testing.T) {
	pause := sluicetest.On(1, sluicetest.Status(429, "Retry-After: 30"))
	inWorld(t, sluicehttp.Config{Claimant: byHeader}, layers(pause), func(w *world) {
		for i, tenant := range []string{"a", "b", ""} {
			if status, err := w.claim("/", "", tenant); err != nil || status != 200 {
				w.Errorf("%d, %v", status, err)
			}
			if i == 0 && w.now() < 30*time.Second {
				w.Errorf("%v", w.now())
			}
		}
		names := map[string]bool{}
		for s := range w.rt.Gates() {
			names[s.Name] = true
			if s.Admitted != 4 || s.InFlight != 0 || s.Learned == nil {
				w.Errorf("%v", s)
			}
		}
		if len(names) != 1 || !names["http://api.example.com"] {
			w.Errorf("gates %v", names)
		}
	})
}

// A route of its own is found for claimants as without them, and their waiting calls change to it.
func TestConfig_Claimant_Scope(t *testing.T) {
	next := time.Time{}
	var mu sync.Mutex
	limited := sluicetest.Layer(func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if strings.HasPrefix(r.URL.Path, "/search") {
				if time.Now().Before(next) {
					rw.Header().Set("Retry-After", "10")
					rw.WriteHeader(429)
					return
				}
				next = time.Now().Add(10 * time.Second)
			}
			h.ServeHTTP(rw, r)
		})
	})
	inWorld(t, sluicehttp.Config{Claimant: byHeader}, layers(limited), func(w *world) {
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				if status, err := w.claim("/search", "", fmt.Sprint("tenant", i)); err != nil || status != 200 {
					w.Errorf("search: %d, %v", status, err)
				}
			})
		}
		time.Sleep(100 * ms)
		for i := range 100 {
			if status, err := w.claim("/items", "", fmt.Sprint("tenant", i%4)); err != nil || status != 200 {
				w.Errorf("items: %d, %v", status, err)
			}
		}
		if w.now() > 5*time.Second {
			w.Errorf("100 items took %v", w.now())
		}
		all.Wait()
	})
}

// Many claimants are dropped, and so is the gate of a server that had some.
func TestConfig_Claimant_Many(t *testing.T) {
	cfg := sluicehttp.Config{Claimant: byHeader, Keys: sluice.KeyedConfig{MaxKeys: 2, Idle: -1}}
	inWorld(t, cfg, nil, func(w *world) {
		for i := range 3000 {
			if status, err := w.claim("/", "", fmt.Sprint("tenant", i)); err != nil || status != 200 {
				w.Fatalf("%d, %v", status, err)
			}
		}
		for i := range 5 {
			w.wantGet(fmt.Sprintf("http://host%d.example.com/", i), 200)
		}
	})
}

func TestConfig_Claimant_Invalid(t *testing.T) {
	if _, err := sluicehttp.New(nil, sluicehttp.Config{Claimant: byHeader, Gate: sluice.Config{Semaphore: new(lender)}}); err == nil {
		t.Error("no error for a Claimant and a Semaphore")
	}
	rt := mustTransport(t, nil, sluicehttp.Config{Claimant: func(*http.Request) sluice.Claimant { return sluice.Claimant{Weight: -1} }})
	if _, err := rt.RoundTrip(request(t, t.Context(), http.MethodGet, "http://api.example.com/", nil)); err == nil || !strings.Contains(err.Error(), "negative weight") {
		t.Errorf("got %v", err)
	}
}
