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

func TestColly(t *testing.T) {
	limit := sluicetest.Limit{Count: 1, Per: time.Second, Burst: 1}
	server(t, func(ctx context.Context, base http.RoundTripper) {
		c, err := collector(base)
		if err != nil {
			t.Fatal(err)
		}
		c.OnError(func(r *colly.Response, err error) { t.Error(r.StatusCode, err) })
		for n := range 30 {
			if err := c.Visit(fmt.Sprintf("https://site.test/%d", n)); err != nil {
				t.Error(err)
			}
		}
		c.Wait()
	}, sluicetest.Enforce(limit), sluicetest.Reply(200, "<html></html>", "Content-Type: text/html"))
}
