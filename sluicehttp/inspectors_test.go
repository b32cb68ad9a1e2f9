package sluicehttp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
	"github.com/sluice-go/sluice/sluicetest"
)

// wantTries sends a POST that is answered once as said, and checks how often it
// was sent and that an answer which is returned is whole.
func wantTries(t *testing.T, cfg sluicehttp.Config, status int, body string, header []string, tries ...time.Duration) {
	t.Helper()
	cfg.Retry = seconds
	inWorld(t, cfg, layers(sluicetest.On(1, sluicetest.Reply(status, body, header...))), func(w *world) {
		w.Helper()
		got, answer, err := w.do(request(w, bg, "POST", "https://a.test/", strings.NewReader("{}")))
		if err != nil || len(tries) == 1 && (got != status || answer != body) || len(tries) == 2 && got != 200 {
			w.Errorf("%d, %q, %v", got, answer, err)
		}
		w.wantCame(tries...)
	})
}

func TestAWS(t *testing.T) {
	const (
		json10 = "Content-Type: application/x-amz-json-1.0"
		xml    = "Content-Type: application/xml"
	)
	again, once := []time.Duration{0, time.Second}, []time.Duration{0}
	for _, c := range []struct {
		name   string
		status int
		body   string
		header []string
		tries  []time.Duration
	}{
		{"DynamoDB", 400, `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"x"}`, []string{json10}, again},
		{"DynamoDB, an account", 400, `{"__type":"com.amazon.coral.availability#ThrottlingException","message":"Rate of requests exceeds"}`, []string{json10}, again},
		{"JSON, code", 400, `{"code":"Throttling","message":"x"}`, []string{json10}, again},
		{"JSON, Code", 400, `{"Code":"TooManyRequestsException"}`, nil, again},
		{"JSON, a type beside a number", 400, `{"__type":"ThrottlingException","code":400}`, []string{json10}, again},
		{"JSON, a code beside a number", 400, `{"__type":7,"code":"ThrottlingException"}`, []string{json10}, again},
		{"JSON, a code beside a general type", 400, `{"__type":"com.amazon.coral.service#ClientError","code":"ThrottlingException"}`, []string{json10}, again},
		{"JSON, both are others", 400, `{"__type":"ValidationException","code":"Invalid"}`, []string{json10}, once},
		{"a header", 400, "", []string{"X-Amzn-ErrorType: ThrottlingException:http://internal.amazon.com/coral/com.amazon.coral.availability/"}, again},
		{"a header counts more", 400, `{"__type":"ThrottlingException"}`, []string{"X-Amzn-ErrorType: ValidationException"}, once},
		{"S3", 503, `<?xml version="1.0" encoding="UTF-8"?>` + "\n<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>", []string{xml}, again},
		{"EC2", 503, `<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>x</Message></Error></Errors></Response>`, []string{xml}, again},
		{"query", 400, `<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code></Error></ErrorResponse>`, []string{xml}, again},
		{"with a time", 503, `<Error><Code>SlowDown</Code></Error>`, []string{"Retry-After: 7"}, []time.Duration{0, 7 * time.Second}},
		{"another error", 400, `{"__type":"com.amazonaws.dynamodb.v20120810#ValidationException"}`, []string{json10}, once},
		{"another error of S3", 503, `<Error><Code>ServiceUnavailable</Code></Error>`, []string{xml}, once},
		{"only its name", 400, `{"message":"ThrottlingException"}`, nil, once},
		{"cut off", 400, `<Error><Code>SlowDown`, nil, once},
		{"no JSON", 400, `{"__type":"ThrottlingException`, nil, once},
		{"empty", 400, "", nil, once},
		{"fine", 200, `<Error><Code>SlowDown</Code></Error>`, nil, once},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantTries(t, sluicehttp.Config{Inspect: sluicehttp.AWS}, c.status, c.body, c.header, c.tries...)
			keep := sluicehttp.Config{Inspect: sluicehttp.AWS, KeepRefused: true}
			wantTries(t, keep, c.status, c.body, c.header, 0)
		})
	}
}

// Errors that look like Amazon's are read without any configuration, and before what
// is configured, which may think otherwise.
func TestAWS_ByDefault(t *testing.T) {
	const json, xml = `{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException"}`, `<Error><Code>SlowDown</Code></Error>`
	again, once := []time.Duration{0, time.Second}, []time.Duration{0}
	for _, c := range []struct {
		status       int
		body, header string
		tries        []time.Duration
	}{
		{400, json, "Content-Type: application/x-amz-json-1.0", again},
		{400, json, "Content-Type: application/X-AMZ-JSON-1.1; charset=utf-8", again},
		{400, json, "X-Amzn-RequestId: 1", again},
		{503, xml, "X-Amz-Request-Id: 1", again},
		{503, xml, "Content-Type: application/xml", again},
		{503, xml, "Content-Type: text/xml; charset=utf-8", again},
		{400, "", "X-Amzn-ErrorType: TooManyRequestsException", again},
		{400, json, "Content-Type: application/json", once},
		{400, json, "X-Nothing: 1", once},
		{200, json, "Content-Type: application/x-amz-json-1.0", once},
		{404, "<Error><Code>NoSuchKey</Code></Error>", "Content-Type: application/xml", once},
	} {
		for _, cfg := range []sluicehttp.Config{{}, {Inspect: sluicehttp.GitHub}, {Inspect: sluicehttp.AWS}} {
			if cfg.Inspect == nil || len(c.tries) == 2 {
				wantTries(t, cfg, c.status, c.body, []string{c.header}, c.tries...)
			}
		}
		no := func(_ *http.Response, _ func() []byte, said *ratelimit.Info) { said.ShouldRetry = new(false) }
		wantTries(t, sluicehttp.Config{Inspect: no}, c.status, c.body, []string{c.header}, 0)
	}
}

func TestAnthropic(t *testing.T) {
	body := `{"type":"error","error":{"type":%q,"message":"x","details":{"error_code":%q}},"request_id":"req_1"}`
	again, once := []time.Duration{0, time.Second}, []time.Duration{0}
	for _, c := range []struct {
		status     int
		kind, code string
		header     string
		tries      []time.Duration
	}{
		{529, "overloaded_error", "", "", again},
		{503, "overloaded_error", "", "", again},
		{500, "overloaded_error", "", "", again},
		{529, "overloaded_error", "", "Retry-After: 9", []time.Duration{0, 9 * time.Second}},
		{529, "overloaded_error", "", "X-Should-Retry: false", once},
		{429, "rate_limit_error", "", "", again},
		{429, "rate_limit_error", "", "Retry-After: 9", []time.Duration{0, 9 * time.Second}},
		{429, "rate_limit_error", "enforced_spend_limit_reached", "", once},
		{500, "api_error", "", "", once}, // a POST
		{400, "overloaded_error", "", "", once},
		{200, "overloaded_error", "", "", once},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			var header []string
			if c.header != "" {
				header = append(header, c.header)
			}
			wantTries(t, sluicehttp.Config{Inspect: sluicehttp.Anthropic}, c.status, fmt.Sprintf(body, c.kind, c.code), header, c.tries...)
		})
	}
	wantTries(t, sluicehttp.Config{Inspect: sluicehttp.Anthropic}, 503, "no JSON", nil, 0)
}

// One transport for several APIs: each Inspector knows its own, and the later ones
// see what the earlier ones found.
func TestInspectors(t *testing.T) {
	all := sluicehttp.Inspectors(nil, sluicehttp.GitHub, sluicehttp.Google, sluicehttp.GraphQL, nil, sluicehttp.AWS, sluicehttp.Anthropic)
	again := []time.Duration{0, time.Second}
	for _, c := range []struct {
		status int
		body   string
		tries  []time.Duration
	}{
		{403, secondary, []time.Duration{0, time.Minute}},
		{429, `{"error": {"details": [{"retryDelay": "2s"}]}}`, []time.Duration{0, 2 * time.Second}},
		{400, `{"__type":"ThrottlingException"}`, again},
		{503, `<Error><Code>SlowDown</Code></Error>`, again},
		{500, `{"error":{"type":"overloaded_error"}}`, again},
		{400, `{"error":"bad"}`, []time.Duration{0}},
		// Fields of another type than elsewhere hide no others.
		{500, `{"error":{"details":[],"type":"overloaded_error"}}`, again},
		{429, `{"error": {"details": [{"retryDelay": 5}, {"retryDelay": "2s"}]}}`, []time.Duration{0, 2 * time.Second}},
		{403, `{"documentation_url": 7, "message": "You have exceeded a secondary rate limit"}`, []time.Duration{0, time.Minute}},
	} {
		wantTries(t, sluicehttp.Config{Inspect: all}, c.status, c.body, nil, c.tries...)
	}
	wantTries(t, sluicehttp.Config{Inspect: sluicehttp.Inspectors()}, 500, "x", nil, 0)
	var order []string
	note := func(name string) sluicehttp.Inspector {
		return func(_ *http.Response, peek func() []byte, said *ratelimit.Info) {
			order = append(order, fmt.Sprint(name, string(peek()), said.Reason))
			said.Reason += name
		}
	}
	three := []sluicehttp.Inspector{note("a"), note("b"), note("c")}
	cfg := sluicehttp.Config{Inspect: sluicehttp.Inspectors(three...)}
	three[0] = nil // is the caller's
	wantTries(t, cfg, 404, "x", nil, 0)
	if got := fmt.Sprint(order); got != "[ax bxa cxab]" {
		t.Error(got)
	}
}
