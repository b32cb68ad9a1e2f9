package proxy

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/sluiceredis"
	"github.com/sluice-go/sluice/sluicetest"
)

// Two proxies with one store find one limit together, and share it.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := sluiceredis.New(sluiceredis.InProcess(), sluiceredis.Config{})
		if err != nil {
			t.Fatal(err)
		}
		one := build(t, &options{patience: time.Hour, shared: store}, sluicetest.Enforce(sluicetest.Limit{Count: 20, Per: time.Second, Burst: 20}))
		two := build(t, &options{patience: time.Hour, shared: store, base: one.upstream.Transport()})
		var all sync.WaitGroup
		until := time.Now().Add(3 * time.Minute)
		var served [2]atomic.Int64
		for i, h := range []*house{one, two} {
			for range 20 {
				all.Go(func() {
					for time.Now().Before(until) {
						if got := h.call("GET", "/api/", ""); got.StatusCode == 200 && time.Until(until) < 2*time.Minute {
							served[i].Add(1)
						}
					}
				})
			}
		}
		all.Wait()
		one.proxy.closeUpstreams()
		two.proxy.closeUpstreams()
		a, b := served[0].Load(), served[1].Load()
		refused := one.upstream.Record().Throttled()
		if a+b < 20*120*80/100 || min(a, b) < (a+b)*4/10 || refused > 400 {
			t.Errorf("%d and %d calls, want half of %d each; %d were throttled", a, b, 20*120, refused)
		}
	})
}

// A Redis that is away costs no call, and its password is shown nowhere.
func TestShared_Away(t *testing.T) {
	if _, _, err := newShared("http://user:SECRET@x", nil); err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("%v", err)
	}
	store, end, err := newShared("redis://127.0.0.1:1/0", slog.New(slog.DiscardHandler)) // nothing listens there
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	h := build(t, &options{shared: store})
	for range 10 {
		if got := h.call("GET", "/api/", ""); got.StatusCode != 200 {
			t.Errorf("%d", got.StatusCode)
		}
	}
	h.proxy.closeUpstreams()
	if store, _, err := newShared("", nil); store != nil || err != nil {
		t.Errorf("without a URL: %v, %v", store, err)
	}
}
