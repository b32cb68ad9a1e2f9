package sluiceprom_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	sluiceprom "github.com/sluice-go/sluice/observe/prometheus"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
	"github.com/sluice-go/sluice/sluicetest"
)

const wantOfServer = `
# HELP sluice_responses_total HTTP responses, by status code, attempts without a response included.
# TYPE sluice_responses_total counter
sluice_responses_total{code="0",gate="http://a.test"} 1
sluice_responses_total{code="200",gate="http://a.test"} 2
sluice_responses_total{code="200",gate="http://b.test"} 1
sluice_responses_total{code="503",gate="http://a.test"} 1
# HELP sluice_server_limit Limit that the server publishes.
# TYPE sluice_server_limit gauge
sluice_server_limit{gate="http://a.test",limit="default",unit=""} 10
# HELP sluice_server_remaining What remains of the limit that the server publishes.
# TYPE sluice_server_remaining gauge
sluice_server_remaining{gate="http://a.test",limit="default",unit=""} 8
`

// What a Transport sees of its servers.
func TestCollector_OfATransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(sluicetest.Host("a.test",
			sluicetest.On(2, sluicetest.Status(503)),
			sluicetest.Enforce(sluicetest.Limit{Quota: 10, Window: time.Minute, HeaderStyle: sluicetest.GitHub}),
		))
		defer srv.Close()
		var rt *sluicehttp.Transport
		limits := func(yield func(string, []ratelimit.Limit) bool) { rt.Limits()(yield) }
		c := mustNew(t, sluiceprom.Config{Limits: limits, MaxGates: 2})
		base := srv.Transport()
		defer base.CloseIdleConnections()
		rt, err := sluicehttp.New(base, sluicehttp.Config{OnAttempt: c.ObserveAttempt})
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{"a", "a", "b"} {
			resp, err := (&http.Client{Transport: rt}).Get("http://" + host + ".test/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		c.ObserveAttempt("http://a.test", sluicehttp.Attempt{}) // no response
		names := []string{"sluice_responses_total", "sluice_server_limit", "sluice_server_remaining"}
		if err := testutil.CollectAndCompare(c, strings.NewReader(wantOfServer), names...); err != nil {
			t.Error(err)
		}
		// Gates without their own label: their responses are counted, their limits are not.
		for range 3 {
			c.ObserveAttempt("http://c.test", sluicehttp.Attempt{Status: 200})
		}
		if got := gather(t, c); got["responses_total 200 other"] != 3 {
			t.Errorf("%v", got)
		}
	})
}
