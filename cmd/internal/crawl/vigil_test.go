package crawl

import (
	"net/http"
	"testing"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// drip answers with a byte every so often.
func drip(bytes int, every time.Duration) sluicetest.Layer {
	return sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		for range bytes {
			_, _ = w.Write([]byte("x"))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(every):
			case <-r.Context().Done():
				return
			}
		}
	}))
}

// -timeout bounds silence, in the header and in the body; -max-time bounds the whole. After each
// of three attempts the next one is a second later, or as late as the one before took.
func TestVigil(t *testing.T) {
	for name, test := range map[string]struct {
		page  sluicetest.Layer
		bytes int
		cause string
		took  time.Duration // the attempts on it
	}{
		"slow and steady":   {drip(10, 4*time.Second), 10, "", 40 * time.Second},
		"silent":            {sluicetest.Delay(time.Hour), 0, "no answer within -timeout", 15 * time.Second},
		"stalls":            {sluicetest.Stall(2, time.Hour), 0, "nothing more came within -timeout", 15 * time.Second},
		"drips for ever":    {drip(1_000, 4*time.Second), 0, "not complete within -max-time", 3 * time.Minute},
		"late, then steady": {drip(2, 4900*time.Millisecond), 2, "", 9800 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			layers := []sluicetest.Layer{noRobots, sluicetest.Path("/x", test.page, sluicetest.Reply(200, "0123456789", "Content-Type: text/html")), htmlPage("/", "/x")}
			r := crawl(t, site(layers...), "-timeout", "5s", "-max-time", "1m", "http://a.test/")
			p := r.pages["http://a.test/x"]
			if p.Error != test.cause || p.Bytes != test.bytes && test.cause == "" {
				t.Errorf("%q, %d bytes, want %q, %d", p.Error, p.Bytes, test.cause, test.bytes)
			}
			// The first page and robots.txt take a second each.
			if r.took < test.took || r.took > test.took+10*time.Second {
				t.Errorf("took %v, want about %v", r.took, test.took)
			}
		})
	}
}
