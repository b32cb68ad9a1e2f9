package recipes

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/gocolly/colly/v2"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

func collector(base http.RoundTripper) (*colly.Collector, error) {
	// begin colly
	transport, err := sluicehttp.New(base, sluicehttp.Config{Gate: sluice.Config{
		Concurrency: 2,                                       // for each host
		Rate:        sluice.Rate{Count: 1, Per: time.Second}, // in place of colly.LimitRule
	}})
	if err != nil {
		return nil, err
	}
	c := colly.NewCollector(colly.Async(true))
	c.WithTransport(transport)
	c.SetRequestTimeout(time.Hour) // includes the queue; 10 s by default
	// end colly
	return c, nil
}

// Three hosts, each with a limit of its own; one asks for a minute.
func TestColly(t *testing.T) {
	byHost := func(r *http.Request) string { return r.Host }
	limit := sluicetest.Limit{Count: 1, Per: time.Second, Key: byHost}
	hosts := []string{"a.test", "b.test", "busy.test"}
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		c, err := collector(base)
		if err != nil {
			t.Fatal(err)
		}
		c.OnError(func(r *colly.Response, err error) { t.Error(r.StatusCode, err) })
		for n := range 30 {
			for _, host := range hosts {
				if err := c.Visit(fmt.Sprintf("https://%s/%d", host, n)); err != nil {
					t.Error(err)
				}
			}
		}
		c.Wait()
	}, sluicetest.Enforce(limit), sluicetest.Host("busy.test", sluicetest.On(10, sluicetest.Status(429, "Retry-After: 60"))),
		sluicetest.Reply(200, "<html></html>", "Content-Type: text/html"))
	promised{ok: 90, failed: 1}.check(t, seen)
	for _, host := range hosts {
		if err := seen.Host(host).CheckSpacing(time.Second); err != nil {
			t.Error(err)
		}
	}
	took(t, seen.Host("a.test"), 29*time.Second, 29*time.Second)
	took(t, seen.Host("busy.test"), 89*time.Second, 90*time.Second) // a pause ends up to a second late
}
