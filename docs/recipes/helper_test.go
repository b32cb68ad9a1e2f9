package recipes

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice/sluicetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// server runs f in virtual time, with a transport to a server made of layers, and returns
// what the server saw.
func server(t *testing.T, f func(ctx context.Context, base http.RoundTripper), layers ...sluicetest.Layer) (seen sluicetest.Record) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := sluicetest.NewServer(layers...)
		defer s.Close()
		base := s.Transport()
		defer base.CloseIdleConnections()
		f(t.Context(), base)
		seen = s.Record()
	})
	return seen
}

// parallel calls f n times at once. Each call must succeed.
func parallel(t *testing.T, n int, f func() error) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// promised is what a recipe promises its reader about the requests that the server sees.
type promised struct {
	ok      int // requests with a status below 400: one for each call, so that no call is made twice
	refused int // at most so many refused by the limit
	failed  int // exactly so many others

	// A header with which the SDK counts its own attempts, the values that say that it
	// repeats a request, and how many of those there are: 0 if all retries are those of
	// the transport.
	attempts string
	first    string
	repeated int
}

// check fails the test unless the server saw what was promised.
func (p promised) check(t *testing.T, seen sluicetest.Record) {
	t.Helper()
	for _, wrong := range p.broken(seen) {
		t.Error(wrong)
	}
}

// broken returns what the server saw that was not promised.
func (p promised) broken(seen sluicetest.Record) (wrong []string) {
	var ok, refused, failed, repeated int
	for _, r := range seen.Requests {
		switch {
		case r.ThrottledBy != "":
			refused++
		case r.Status >= 200 && r.Status < 400:
			ok++
		default:
			failed++
		}
		if p.attempts != "" && !slices.Contains([]string{p.first, ""}, r.Header.Get(p.attempts)) {
			repeated++
		}
	}
	if ok != p.ok || refused > p.refused || failed != p.failed || repeated != p.repeated {
		wrong = append(wrong, fmt.Sprintf("%d ok, %d refused, %d failed, %d repeated by the SDK; want %d, at most %d, %d and %d",
			ok, refused, failed, repeated, p.ok, p.refused, p.failed, p.repeated))
	}
	if err := seen.CheckRetryAfter(); err != nil {
		wrong = append(wrong, err.Error())
	}
	return wrong
}

// took fails the test unless the last request arrived within these bounds.
func took(t *testing.T, seen sluicetest.Record, least, most time.Duration) {
	t.Helper()
	arrivals := seen.Arrivals()
	if last := arrivals[len(arrivals)-1]; last < least || last > most {
		t.Errorf("the last request arrived at %v, want %v to %v", last, least, most)
	}
}

func TestPromisedCanFail(t *testing.T) {
	asked := http.Header{"Attempt": {"2"}}
	for _, c := range []struct {
		promised promised
		seen     []sluicetest.Request
		broken   bool
	}{
		{promised{ok: 1}, []sluicetest.Request{{Status: 200}}, false},
		{promised{ok: 1}, []sluicetest.Request{{Status: 200}, {Status: 200}}, true},
		{promised{ok: 1}, []sluicetest.Request{{Status: 0}}, true},
		{promised{ok: 1}, []sluicetest.Request{{Status: 200}, {Status: 429, ThrottledBy: "rate"}}, true},
		{promised{ok: 1, refused: 1}, []sluicetest.Request{{Status: 200}, {Status: 429, ThrottledBy: "rate"}}, false},
		{promised{ok: 1, failed: 1}, []sluicetest.Request{{Status: 200}}, true},
		{promised{ok: 1, failed: 1}, []sluicetest.Request{{Status: 503}, {Status: 200}}, false},
		{promised{ok: 1, attempts: "Attempt", first: "1"}, []sluicetest.Request{{Status: 200, Header: asked}}, true},
		{promised{ok: 1, attempts: "Attempt", first: "2"}, []sluicetest.Request{{Status: 200, Header: asked}}, false},
		{promised{ok: 1, attempts: "Attempt", first: "1", repeated: 1}, []sluicetest.Request{{Status: 200, Header: asked}}, false},
	} {
		if got := c.promised.broken(sluicetest.Record{Requests: c.seen}); (len(got) > 0) != c.broken {
			t.Errorf("%+v, %v: %q", c.promised, c.seen, got)
		}
	}
}
