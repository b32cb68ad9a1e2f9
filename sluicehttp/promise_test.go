package sluicehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/promise"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// TestPromise runs the cells of the table of promises and features that are about HTTP.
func TestPromise(t *testing.T) {
	promise.Run(t, "sluicehttp", map[string]promise.Setup{
		"http_1":        overHTTP("http://a.test/", false),
		"http_2":        overHTTP("https://a.test/", false),
		"http_cost":     overHTTP("https://a.test/", true),
		"http_route":    overHTTP("http://a.test/things/7", false),
		"http_claimant": overHTTP("http://a.test/claimed", false),
		"real_clock":    overHTTP("http://a.test/", false),
		"http_no_rate": func(tb testing.TB, l promise.Limits) *promise.Subject {
			l.Interval = 0
			return overHTTP("http://a.test/", false)(tb, l)
		},
	})
}

// overHTTP makes subjects whose calls are requests, which leave when they arrive at a
// server in memory. If cost is true, they take tokens besides, of which there are many.
func overHTTP(url string, cost bool) promise.Setup {
	return func(tb testing.TB, l promise.Limits) *promise.Subject {
		desk := &desk{calls: map[string]func() error{}}
		srv := sluicetest.NewServer(sluicetest.Handler(desk))
		base := srv.Transport()
		if l.Policy.MaxServerWait == 0 {
			l.Policy.MaxServerWait = -1 // some pauses here are for an hour
		}
		gates := l.Config()
		if cost {
			gates.Limits = []sluice.Limit{{Unit: "tokens", Limiter: must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 1_000_000}))}}
		}
		gate, err := sluice.New(gates)
		if err != nil {
			tb.Fatal(err)
		}
		cfg := sluicehttp.Config{
			NewGate:   func(string) (*sluice.Gate, error) { return gate, nil },
			Retry:     l.Policy,
			AlsoRetry: []int{409, 520, 521, 522, 523, 524, 525, 526, 527, 528, 529},
		}
		if cost {
			cfg.Cost = func(*http.Request, []byte) sluice.Costs { return sluice.Costs{"tokens": 2} }
			cfg.Usage = func(_ *http.Response, _ []byte, used sluice.Costs) { used["tokens"] = 1 }
		}
		if strings.HasSuffix(url, "/claimed") {
			cfg.Claimant = func(*http.Request) sluice.Claimant { return sluice.Claimant{Name: "a", Class: "user", ClassWeight: 15} }
		}
		rt := mustTransport(tb, base, cfg)
		for _, known := range []string{"http://a.test/other", url} {
			if strings.HasSuffix(url, "/things/7") { // what calls are told is first that of their route
				rt.SeeRoute(request(tb, bg, http.MethodGet, known, nil))
			}
		}
		client := &http.Client{Transport: rt}
		send := func(ctx context.Context, f func() error) error {
			req := request(tb, ctx, http.MethodGet, url, nil)
			number := desk.expect(f)
			defer desk.forget(number)
			req.Header.Set(callHeader, number)
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				return err
			}
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("status %d", resp.StatusCode)
			}
			return nil
		}
		s := &promise.Subject{
			Do: func(ctx context.Context, ask promise.Ask, f func() error) error {
				if ask.Within > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, ask.Within)
					defer cancel()
				}
				return send(sluicehttp.WithOverrides(ctx, sluicehttp.Overrides{NoRetry: true, Cost: ask.N}), f)
			},
			Call: func(ctx context.Context, f func() error) error {
				ctx, report := sluicehttp.WithReport(ctx)
				err := send(ctx, f)
				if why := report.Last().Why; err != nil && why != nil && !errors.Is(err, why) {
					err = fmt.Errorf("%w: %w", why, err)
				}
				return err
			},
			Levels: []*promise.Level{promise.NewLevel("gate", gate)},
			Paced:  l.Interval > 0,
			Coarse: true,
			Remote: true,
			Close: func() {
				base.CloseIdleConnections()
				srv.Close()
			},
		}
		if cfg.Claimant != nil {
			s.Waiting = func() int64 { return promise.OfClaimants(gate) }
		}
		if !l.Real { // where a second takes one
			s.Ways = serverWaits
		}
		return s
	}
}

// serverWaits are the statuses with which a server can set a wait, those for all calls
// first.
var serverWaits = func() (ways []promise.ServerWait) {
	for _, status := range []int{429, 503, 529} {
		ways = append(ways, promise.ServerWait{Status: status})
	}
	for _, status := range []int{408, 409, 425, 500, 502, 504, 520, 521, 522, 523, 524, 525, 526, 527, 528} {
		ways = append(ways, promise.ServerWait{Status: status, Alone: true})
	}
	return ways
}()

const callHeader = "X-Call"

// A desk is the handler of a server that answers each call by a function of its caller.
type desk struct {
	mu    sync.Mutex
	last  int
	calls map[string]func() error
}

func (d *desk) expect(f func() error) (number string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	number = strconv.Itoa(d.last)
	d.calls[number] = f
	return number
}

func (d *desk) forget(number string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.calls, number)
}

func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	f := d.calls[r.Header.Get(callHeader)]
	d.mu.Unlock()
	if f == nil { // its caller has given up
		http.Error(w, "gone", http.StatusGone)
		return
	}
	var wait *promise.ServerWait
	switch err := f(); {
	case err == nil:
		_, _ = io.WriteString(w, "ok")
	case errors.As(err, &wait):
		status := wait.Status
		if status == 0 {
			status = http.StatusTooManyRequests
		}
		seconds := (wait.After + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
		w.WriteHeader(status)
	default:
		w.WriteHeader(http.StatusBadGateway)
	}
}
