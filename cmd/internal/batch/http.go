package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
)

// A web is the template of a request.
type web struct {
	url, method, body string
	headers           []header
	shape             shape
	json              bool // the body is JSON: items are escaped as in its strings
}

type header struct{ name, value string }

func (w *web) addHeader(field string) error {
	name, value, ok := strings.Cut(field, ":")
	if !ok || name == "" {
		return errors.New("want 'Name: value'")
	}
	w.headers = append(w.headers, header{name, strings.TrimSpace(value)})
	return nil
}

// check refuses what no call could ever come of.
func (w web) check() (web, error) {
	if w.method == "" {
		if w.method = http.MethodGet; w.body != "" {
			w.method = http.MethodPost
		}
	}
	w.json = w.body != "" && isJSON(w.body, w.shape)
	all := w.url + w.body
	for _, h := range w.headers {
		all += h.value
	}
	if !hasPlaceholder(all, w.shape.numbered()) {
		return w, errors.New("-url, -body and -header contain no {}, so they would be the same for all items")
	}
	text := "item"
	if strings.HasPrefix(w.url, "{") {
		text = "http://host/item" // the whole address
	}
	if strings.HasPrefix(w.url, "{}") && w.shape.several() {
		return w, errors.New("-n: an address cannot begin with several items; {1} is the first of them")
	}
	req, err := w.request(context.Background(), w.shape.sample(text))
	if err != nil {
		return w, fmt.Errorf("-url: %w", err)
	}
	if !callable(req.URL) {
		return w, fmt.Errorf("-url %s: %s", w.url, wantAddress)
	}
	return w, nil
}

const wantAddress = "want http://host/… or https://host/…"

// callable reports whether u can be called. net/http finds out only when it sends, as if a host had failed.
func callable(u *url.URL) bool {
	return (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// escape makes an item a part of an address that means just the item, unless
// the address begins with it.
func escape(before, value string) string {
	switch {
	case before == "", inHost(before) && !strings.ContainsAny(value, "/?#@\\"):
		return value
	case strings.Contains(before, "?"):
		return url.QueryEscape(value)
	}
	return url.PathEscape(value)
}

// inHost reports whether what follows is, or continues, the host of an address.
func inHost(before string) bool {
	_, host, ok := strings.Cut(before, "://")
	return ok && !strings.ContainsAny(host, "/?#")
}

func (w web) request(ctx context.Context, s subject) (*http.Request, error) {
	var body io.Reader
	if w.body != "" {
		body = strings.NewReader(w.expandBody(s)) // which can be sent again
	}
	req, err := http.NewRequestWithContext(ctx, w.method, expand(w.url, s, escape), body)
	if err != nil {
		return nil, err
	}
	if w.json {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range w.headers {
		if http.CanonicalHeaderKey(h.name) == "Content-Type" {
			req.Header.Del(h.name)
		}
	}
	for _, h := range w.headers {
		value := expand(h.value, s, verbatim)
		if http.CanonicalHeaderKey(h.name) == "Host" {
			req.Host = value
			continue
		}
		req.Header.Add(h.name, value)
	}
	return req, nil
}

func (w web) expandBody(s subject) string {
	escape := verbatim
	if w.json {
		escape = inString
	}
	return expand(w.body, s, escape)
}

// inString escapes a value for a string of JSON. A number stays as it is, also outside of
// strings, and so does any JSON there.
func inString(before, value string) string {
	if quotes := strings.Count(strings.ReplaceAll(strings.ReplaceAll(before, `\\`, ""), `\"`, ""), `"`); quotes%2 == 0 && json.Valid([]byte(value)) {
		return value
	}
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // a string can be encoded
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}

// isJSON reports whether a body is JSON if the items are.
func isJSON(body string, f shape) bool {
	return json.Valid([]byte(expand(body, f.sample("1"), verbatim)))
}

// describe is the request as flags of sluice batch.
func (w web) describe(s subject) string {
	text := w.method + " " + expand(w.url, s, escape)
	for _, h := range w.headers {
		text += " -header " + cli.Quote(h.name+": "+expand(h.value, s, verbatim))
	}
	if w.body != "" {
		text += " -body " + cli.Quote(w.expandBody(s))
	}
	return text
}

func (w web) config() string {
	return fmt.Sprintf("http\x00%s\x00%s\x00%s\x00%q", w.method, w.url, w.body, w.headers)
}

// caller makes the calls of a web. Its client retries, and knows more about
// when than batch could: so the transport passes the gate for each attempt, as
// the parent of the gates of all hosts, and batch only looks on.
type caller struct {
	web
	o         options
	transport *sluicehttp.Transport
	client    *http.Client
	policy    sluice.RetryPolicy
	departing *departing
}

func (w web) start(j *job) (runner, error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = j.o.jobs // all to one host, as a rule
	d := &departing{base: base, timeout: j.o.timeout, maxTime: j.o.maxTime, failures: &j.failures, stops: &j.stops, backlog: &j.backlog}
	transport, err := sluicehttp.New(d, sluicehttp.Config{
		Gate:  sluice.Config{Parent: j.gate, Adaptive: sluice.Adaptive{Peers: j.in.fleet.peers()}},
		Key:   host, // all items are calls of one kind: what one is told holds for all
		Retry: j.o.policy(),

		AlsoRetry: j.o.retryOn.statuses(),
	})
	if err != nil {
		return nil, err
	}
	return &caller{w, j.o, transport, &http.Client{Transport: transport}, j.o.policy(), d}, nil
}

func host(req *http.Request) string { return req.URL.Scheme + "://" + req.URL.Host }

func (*caller) paced() bool { return true }

// call makes the request of s, which the transport tries again until it has a response.
func (c *caller) call(ctx context.Context, t *trip, s subject) (output, error) {
	ctx, report := sluicehttp.WithReport(ctx)
	req, err := c.request(ctx, s)
	if err == nil && !callable(req.URL) {
		err = errors.New(wantAddress)
	}
	if err != nil {
		return output{}, finalError{err} // it would be the same again, and says nothing about a server
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return output{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		failure := fmt.Errorf("%s: %s", req.URL.Redacted(), resp.Status)
		last := report.Last()
		if errors.Is(last.Why, sluice.ErrServerWait) {
			// The item has not failed: the server wants no calls for a long time.
			return output{response: resp.StatusCode}, &sluice.RetryError{Gate: last.Key, Last: failure, Why: last.Why, Attempts: len(last.Attempts), RetryAt: last.RetryAt}
		}
		why := last.Why
		switch why {
		case sluice.ErrBudget, sluicehttp.ErrUnsafe, sluicehttp.ErrReplay: // or -retries would seem to lie
		default:
			why = nil
		}
		failure = fmt.Errorf("%w%s", failure, tried(len(last.Attempts), why))
		if last.Why == nil { // the answer is as good as any: it would be the same again
			failure = finalError{failure}
		}
		return output{response: resp.StatusCode}, failure
	}
	out, err := c.readBody(t, resp, s)
	out.response = resp.StatusCode
	return out, err
}

// A finalError reports to batch that an item has failed for good, even if the batch
// ended while its call was in flight.
type finalError struct{ error }

func (e finalError) Unwrap() []error {
	return []error{e.error, &sluice.RetryError{Last: e.error, Why: sluice.ErrPermanent}}
}

// group is the host that is called.
func (c *caller) group() func(item) string {
	return func(it item) string {
		u, err := url.Parse(expand(c.url, c.shape.subject(it.text, it.seq, 1), escape))
		if err != nil {
			return "" // its call will say so
		}
		return u.Host
	}
}

func (c *caller) learned() []string {
	var lines []string
	c.transport.Stats(func(host string, s sluicehttp.Stats) bool {
		if l := s.Learned; l != nil && l.Throttled > 0 {
			lines = append(lines, fmt.Sprintf("%s throttled %d calls; its limit, as far as is known: %v", host, l.Throttled, l))
		}
		return len(lines) < mostLearned
	})
	slices.Sort(lines)
	return append(lines, c.departing.room.says()...)
}

// mostLearned is of how many hosts learned tells.
const mostLearned = 5

// pauses returns the hosts that asked to be left alone, and those whose limit makes calls wait.
func (c *caller) pauses() []pause {
	var all []pause
	c.transport.Stats(func(host string, s sluicehttp.Stats) bool {
		now := time.Now()
		switch {
		case s.PausedUntil.After(now):
			all = append(all, pause{name: host, until: s.PausedUntil, why: s.PausedWhy})
		case s.Pacing > 0 && s.LimitedBy != limits.ByParent && s.NextSlot.Sub(now) > soon:
			why := "limited by: " + string(s.LimitedBy)
			if s.Learned != nil {
				why += "; its limit, as far as is known: " + s.Learned.String()
			}
			all = append(all, pause{name: host, until: s.NextSlot, why: why, next: true})
		}
		return true
	})
	return all
}
