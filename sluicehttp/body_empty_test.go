package sluicehttp_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// An answer without content gives its permit back with its header. Its body still
// reads to its end, its trailers arrive, and the handler is not interrupted, also
// where HTTP/2 ends the stream later than the header.
func TestTransport_AnswerWithoutContent(t *testing.T) {
	settings := []struct {
		name string
		cfg  func(cfg *sluicehttp.Config, l *lender)
	}{
		{"plain", func(*sluicehttp.Config, *lender) {}},
		{"AttemptTimeout", func(cfg *sluicehttp.Config, _ *lender) { cfg.Retry.AttemptTimeout = time.Second }},
		{"Permits", func(cfg *sluicehttp.Config, l *lender) { cfg.Gate.Semaphore = l }},
		{"both", func(cfg *sluicehttp.Config, l *lender) {
			cfg.Retry.AttemptTimeout, cfg.Gate.Semaphore = time.Second, l
		}},
		{"both, ReleaseAtHeaders", func(cfg *sluicehttp.Config, l *lender) {
			cfg.Retry.AttemptTimeout, cfg.Gate.Semaphore, cfg.ReleaseAtHeaders = time.Second, l, true
		}},
	}
	answers := []struct {
		name, method string
		status       int
		header       string // Content-Length
		retried      bool
	}{
		{"HEAD", "HEAD", 200, "5", false},
		{"no content", "GET", 204, "", false},
		{"no content to a DELETE", "DELETE", 204, "", false},
		{"not modified", "GET", 304, "", false},
		{"empty", "GET", 200, "0", false},
		{"empty, to a POST", "POST", 201, "0", false},
		{"not found", "GET", 404, "0", false},
		{"a failure", "POST", 500, "0", false},
		{"after a retry", "GET", 204, "", true},
	}
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for _, set := range settings {
			for _, a := range answers {
				for _, work := range []time.Duration{0, 5 * time.Second} { // after the header
					for _, use := range []string{"read", "closed", "left"} {
						t.Run(fmt.Sprintf("%s/%s/%s/%v/%s", proto, set.name, a.name, work, use), func(t *testing.T) {
							l := new(lender)
							cfg := sluicehttp.Config{Retry: seconds, Gate: sluice.Config{Concurrency: 1}}
							set.cfg(&cfg, l)
							interrupted := false // net/http itself interrupts a HEAD in HTTP/2
							handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
								if a.header != "" {
									w.Header().Set("Content-Length", a.header)
								}
								w.Header().Set("Trailer", "X-Sum")
								w.WriteHeader(a.status)
								if work > 0 {
									_ = http.NewResponseController(w).Flush()
									select {
									case <-time.After(work):
									case <-r.Context().Done():
										interrupted = a.method != http.MethodHead
									}
								}
								w.Header().Set("X-Sum", "42")
							})
							faults := layers(sluicetest.Handler(handler))
							attempts := 1
							if a.retried {
								faults, attempts = layers(sluicetest.On(1, sluicetest.Status(503)), sluicetest.Handler(handler)), 2
							}
							inWorld(t, cfg, faults, func(w *world) {
								scheme := "http"
								if proto == "HTTP/2.0" {
									scheme = "https"
								}
								resp, err := w.rt.RoundTrip(request(t, bg, a.method, scheme+"://a.test/", nil))
								if err != nil {
									t.Fatal(err)
								}
								if resp.Proto != proto || resp.StatusCode != a.status {
									t.Errorf("%s %d", resp.Proto, resp.StatusCode)
								}
								came := w.now()
								if n := inFlight(w.rt); n != 0 {
									t.Errorf("%d permits are held with the header", n)
								}
								if cfg.Gate.Semaphore != nil && l.released != attempts {
									t.Errorf("%d leases were released, want %d", l.released, attempts)
								}
								switch use {
								case "read":
									body, err := io.ReadAll(resp.Body)
									if err != nil || len(body) != 0 {
										t.Errorf("read %q, %v", body, err)
									}
									http2 := proto == "HTTP/2.0" && a.method != "HEAD"
									if took := w.now() - came; http2 && took != work || !http2 && took != 0 {
										t.Errorf("the end of the body came after %v", took)
									}
									if got := resp.Trailer.Get("X-Sum"); http2 && work > 0 && got != "42" {
										t.Errorf("the trailer is %q", got)
									}
									time.Sleep(work)
									synctest.Wait()
									if interrupted {
										t.Error("the handler was interrupted")
									}
									resp.Body.Close()
								case "closed":
									resp.Body.Close()
								case "left": // the bubble ends only if no goroutine is left
									time.Sleep(work)
									synctest.Wait()
									if interrupted {
										t.Error("the handler was interrupted")
									}
								}
							})
						})
					}
				}
			}
		}
	}
}
