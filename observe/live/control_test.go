package live

import (
	"context"
	"iter"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
)

const token = "0123456789abcdef"

// Only a POST of JSON, with the token and not from another origin, changes a gate.
func TestHandler_Change(t *testing.T) {
	twin := mustGate(t, sluice.Config{Name: "twin"})
	shown := func(yield func(sluice.Stats) bool) { yield(sluice.Stats{Name: "shown"}) }
	const pause = `{"start":"START","gate":1,"do":"pause"}`
	for name, c := range map[string]struct {
		body    string
		headers map[string]string // in place of good ones
		status  int
		said    string
		done    string // what the gate shows
	}{
		"pause":              {body: pause, status: 200, said: "g: paused for 1 min", done: "paused until"},
		"pause, long":        {body: `{"start":"START","gate":1,"do":"pause","for":"2h"}`, status: 200, said: "paused for 2 h", done: "paused"},
		"pause, too long":    {body: `{"start":"START","gate":1,"do":"pause","for":"25h"}`, status: 400, said: "at most 24h"},
		"pause, negative":    {body: `{"start":"START","gate":1,"do":"pause","for":"-1s"}`, status: 400, said: "want a time"},
		"resume":             {body: `{"start":"START","gate":1,"do":"resume"}`, status: 200, said: "resumed"},
		"rate":               {body: `{"start":"START","gate":1,"do":"rate","rate":"7/s"}`, status: 200, said: "rate 7/s", done: "7/s"},
		"rate, none":         {body: `{"start":"START","gate":1,"do":"rate","rate":"none"}`, status: 200, said: "rate none"},
		"rate, wrong":        {body: `{"start":"START","gate":1,"do":"rate","rate":"much"}`, status: 400, said: "much"},
		"concurrency":        {body: `{"start":"START","gate":1,"do":"concurrency","limit":3}`, status: 200, said: "at most 3 in flight", done: "of 3 in flight"},
		"concurrency, less":  {body: `{"start":"START","gate":1,"do":"concurrency","limit":-3}`, status: 400, said: "-3"},
		"concurrency, none":  {body: `{"start":"START","gate":1,"do":"concurrency"}`, status: 400, said: "want a limit"},
		"unknown":            {body: `{"start":"START","gate":1,"do":"explode"}`, status: 400, said: "want pause, resume"},
		"by name":            {body: `{"name":"g","do":"pause"}`, status: 200, said: "g: paused", done: "paused"},
		"two of this name":   {body: `{"name":"twin","do":"pause"}`, status: 404, said: "2 gates"},
		"only shown":         {body: `{"name":"shown","do":"pause"}`, status: 404, said: "only be shown"},
		"no name":            {body: `{"name":"x","do":"pause"}`, status: 404, said: "no such gate"},
		"no such gate":       {body: `{"start":"START","gate":9,"do":"pause"}`, status: 404, said: "no such gate"},
		"before the restart": {body: `{"start":"x","gate":1,"do":"pause"}`, status: 404, said: "no such gate"},
		"not JSON":           {body: "pause", status: 400, said: "JSON"},
		"two":                {body: pause + pause, status: 400, said: "one JSON object"},
		"unknown field":      {body: `{"start":"START","gate":1,"do":"pause","why":"x"}`, status: 400, said: "unknown field"},
		"too long":           {body: `{"start":"` + strings.Repeat("x", mostBody) + `"}`, status: 400, said: "too large"},
		"a form":             {body: pause, headers: map[string]string{"Content-Type": "text/plain"}, status: 415},
		"no token":           {body: pause, headers: map[string]string{"Sluice-Token": ""}, status: 403, said: "token"},
		"wrong token":        {body: pause, headers: map[string]string{"Sluice-Token": token + "0"}, status: 403, said: "token"},
		"other site":         {body: pause, headers: map[string]string{"Sec-Fetch-Site": "cross-site"}, status: 403, said: "origin"},
		"same site":          {body: pause, headers: map[string]string{"Sec-Fetch-Site": "same-site"}, status: 403, said: "origin"},
		"other origin":       {body: pause, headers: map[string]string{"Origin": "https://evil.example"}, status: 403, said: "origin"},
		"same origin":        {body: pause, headers: map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "http://example.com"}, status: 200, done: "paused"},
	} {
		t.Run(name, func(t *testing.T) {
			g := mustGate(t, sluice.Config{Name: "g"})
			h := New(FromGates(g, twin, twin), shownOnly(shown))
			h.Token = token
			get(t, h, "/")
			r := httptest.NewRequest("POST", "http://example.com/gates", strings.NewReader(strings.ReplaceAll(c.body, "START", h.start)))
			r.Header.Set("Content-Type", "application/json; charset=utf-8")
			r.Header.Set("Sluice-Token", token)
			for key, value := range c.headers {
				r.Header.Set(key, value)
			}
			before := g.String()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.said) {
				t.Errorf("%d: %s", w.Code, w.Body)
			}
			if after := g.String(); !strings.Contains(after, c.done) || c.done == "" && after != before {
				t.Errorf("before %s, after %s", before, after)
			}
		})
	}
}

// The answer to a change has the one that takes it back, also of a change just before the next
// sample. A limit that is not given is not 0.
func TestHandler_Undo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Name: "g", Rate: sluice.Rate{Count: 10, Per: time.Second, Burst: 5}, Concurrency: 8})
		h := New(FromGates(g))
		h.Token = token
		get(t, h, "/")
		post := func(body string, status int, want string) {
			t.Helper()
			r := httptest.NewRequest("POST", "/", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Sluice-Token", token)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if got := strings.TrimSpace(w.Body.String()); w.Code != status || got != want {
				t.Errorf("%s: %d %s, want %s", body, w.Code, got, want)
			}
		}
		post(`{"name":"g","do":"concurrency","limit":null}`, 400, `{"said":"want a limit, 0 for none"}`)
		post(`{"name":"g","do":"rate","rate":""}`, 400, `{"said":"sluice: rate \"\": want a count and a period, such as \"5/s\" or \"300/20s\""}`)
		post(`{"name":"g","do":"concurrency","limit":0}`, 200, `{"said":"g: no limit in flight","undo":{"do":"concurrency","limit":8}}`)
		post(`{"name":"g","do":"concurrency","limit":8}`, 200, `{"said":"g: at most 8 in flight","undo":{"do":"concurrency","limit":0}}`)
		post(`{"name":"g","do":"rate","rate":"none"}`, 200, `{"said":"g: rate none","undo":{"do":"rate","rate":"10/s burst 5"}}`)
		post(`{"name":"g","do":"rate","rate":"10/s burst 5"}`, 200, `{"said":"g: rate 10/s burst 5","undo":{"do":"rate","rate":"none"}}`)
		if s := g.Stats(); s.Concurrency != 8 || s.Rate.Burst != 5 {
			t.Errorf("%v", s)
		}
		post(`{"name":"g","do":"resume"}`, 200, `{"said":"g: resumed"}`)
		post(`{"name":"g","do":"pause"}`, 200, `{"said":"g: paused for 1 min","undo":{"do":"resume"}}`)
		post(`{"name":"g","do":"pause","for":"2m"}`, 200, `{"said":"g: paused for 2 min"}`) // a resume would end both
		time.Sleep(time.Second)
		post(`{"name":"g","do":"resume"}`, 200, `{"said":"g: resumed","undo":{"do":"pause","for":"1m59s"}}`)
	})
}

// A page without a token can change nothing, even with an empty one.
func TestHandler_ReadOnly(t *testing.T) {
	g := mustGate(t, sluice.Config{Name: "g"})
	h := New(FromGates(g))
	if page := get(t, h, "/").Body.String(); strings.Contains(page, "password") {
		t.Error("the page asks for a token")
	}
	r := httptest.NewRequest("POST", "/", strings.NewReader(`{"start":"`+h.start+`","gate":1,"do":"pause"}`))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 403 || !g.Stats().PausedUntil.IsZero() {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

// Each source changes its gates as far as it can.
func TestControls(t *testing.T) {
	keyed := limits.Must(sluice.NewKeyed(func(string) (*sluice.Gate, error) { return sluice.New(sluice.Config{}) }))
	if err := keyed.Do(bg, "a", func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(New())
	defer s.Close()
	transport := limits.Must(sluicehttp.New(s.Client().Transport))
	defer transport.Close()
	resp, err := transport.RoundTrip(httptest.NewRequest("GET", s.URL, nil))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()

	limit := int64(3)
	for gates, letters := range map[*sampler]string{
		{sources: []iter.Seq[Gate]{FromGates(mustGate(t, sluice.Config{}))}}: "prc",
		{sources: []iter.Seq[Gate]{FromKeyed(keyed)}}:                        "prc",
		{sources: []iter.Seq[Gate]{FromTransport(transport)}}:                "prc",
		{sources: []iter.Seq[Gate]{shownOnly(transport.Gates())}}:            "",
	} {
		now := func() *sluice.Stats { gates.take(time.Now()); return &gates.rows[0].gate.Stats }
		now()
		control := gates.rows[0].gate.Control
		if got := can(control); got != letters {
			t.Errorf("got %q, want %q", got, letters)
		}
		if control == nil {
			continue
		}
		for _, c := range []change{{Do: "pause"}, {Do: "rate", Rate: "7/s"}, {Do: "concurrency", Limit: &limit}} {
			if _, err := c.apply(control, time.Now()); (err == nil) != strings.Contains(letters, c.Do[:1]) {
				t.Errorf("%s: %v", c.Do, err)
			}
		}
		if s := now(); s.PausedUntil.IsZero() || letters == "prc" && (s.Rate.Count != 7 || s.Concurrency != 3) {
			t.Errorf("%s: %v", letters, s)
		}
		if _, err := (change{Do: "resume"}).apply(control, time.Now()); err != nil || !now().PausedUntil.IsZero() {
			t.Errorf("resume: %v", err)
		}
	}
}
