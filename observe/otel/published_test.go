package sluiceotel_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/observe/otel"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
	"github.com/sluice-go/sluice/sluicetest"
)

// What a Transport sees of its servers.
func TestObserver_OfATransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := sluicetest.NewServer(sluicetest.Host("a.test",
			sluicetest.On(2, sluicetest.Status(503)),
			sluicetest.Enforce(sluicetest.Limit{Quota: 10, Window: time.Minute, HeaderStyle: sluicetest.GitHub}),
		))
		defer srv.Close()
		var rt *sluicehttp.Transport
		limits := func(yield func(string, []ratelimit.Limit) bool) { rt.Limits()(yield) }
		e := newExporter(t, sluiceotel.Config{Limits: limits, MaxGates: 2})
		base := srv.Transport()
		defer base.CloseIdleConnections()
		rt, err := sluicehttp.New(base, sluicehttp.Config{OnAttempt: e.ObserveAttempt})
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
		e.ObserveAttempt("http://c.test", sluicehttp.Attempt{}) // no response
		compare(t, e.collect(t), map[string]string{
			"sluice.responses {response} http.response.status_code=200,sluice.gate.name=http://a.test":             "2",
			"sluice.responses {response} http.response.status_code=503,sluice.gate.name=http://a.test":             "1",
			"sluice.responses {response} http.response.status_code=200,sluice.gate.name=http://b.test":             "1",
			"sluice.responses {response} error.type=no_response,sluice.gate.name=other":                            "1",
			"sluice.server.limit  sluice.gate.name=http://a.test,sluice.limit.name=default,sluice.limit.unit=":     "10",
			"sluice.server.remaining  sluice.gate.name=http://a.test,sluice.limit.name=default,sluice.limit.unit=": "8",
		})
	})
}
