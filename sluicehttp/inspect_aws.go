package sluicehttp

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// AWS is an [Inspector] for the APIs of Amazon Web Services and compatible ones, such
// as other object stores. They also throttle with the statuses 400
// (ThrottlingException, ProvisionedThroughputExceededException) and 503 (SlowDown,
// RequestLimitExceeded), and name the error in the header or in a body of JSON or XML.
// AWS takes the same errors for throttles as aws-sdk-go-v2 does by default. The server
// has not processed such a request, so it is sent again whatever its method. AWS reads
// the body of answers from 400 on that have no X-Amzn-ErrorType.
//
// By default every Transport uses AWS for answers that look like errors of Amazon: from
// 400 on with one of the fields X-Amzn-ErrorType, X-Amzn-RequestId and
// X-Amz-Request-Id, or with the media type application/x-amz-json or XML. As
// Config.Inspect it is used for all answers from 400 on.
func AWS(resp *http.Response, peek func() []byte, said *ratelimit.Snapshot) {
	if resp.StatusCode < 400 {
		return
	}
	codes := []string{resp.Header.Get("X-Amzn-Errortype")}
	if codes[0] == "" {
		codes = awsCodesIn(peek())
	}
	for _, code := range codes {
		if code = awsCode(code); !awsThrottle(code) {
			continue
		}
		said.Throttled, said.Reason = true, code
		if said.ShouldRetry == ratelimit.Unset {
			said.ShouldRetry = ratelimit.Yes
		}
		return
	}
}

// awsThrottle reports whether code is that of a throttle.
func awsThrottle(code string) bool {
	switch code {
	case "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottledException",
		"TooManyRequestsException", "ProvisionedThroughputExceededException",
		"TransactionInProgressException", "RequestLimitExceeded", "BandwidthLimitExceeded",
		"LimitExceededException", "RequestThrottled", "SlowDown", "PriorRequestNotComplete",
		"EC2ThrottledException":
		return true
	}
	return false
}

// ofAmazon reports whether resp is an error that AWS should look at, whatever the
// configuration. An SDK of theirs got 463 of 1,000 objects through a transport that did
// not know SlowDown, and 976 alone.
func ofAmazon(resp *http.Response) bool {
	if resp.StatusCode < 400 {
		return false
	}
	for _, name := range []string{"X-Amzn-Errortype", "X-Amzn-Requestid", "X-Amz-Request-Id"} {
		if len(resp.Header[name]) > 0 {
			return true
		}
	}
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	return strings.HasPrefix(kind, "application/x-amz-json") || kind == "application/xml" || kind == "text/xml"
}

// awsCode returns a code without what may stand around it:
// "com.amazonaws.dynamodb.v20120810#ThrottlingException:http://…".
func awsCode(s string) string {
	s, _, _ = strings.Cut(s, ":")
	if i := strings.LastIndexByte(s, '#'); i >= 0 {
		s = s[i+1:]
	}
	return strings.TrimSpace(s)
}

// awsCodesIn returns the codes in the body of an error. JSON may have two, of which
// one may be general or a number. XML is searched and not parsed: the element has no
// attributes, and is deeper in some services than in others.
func awsCodesIn(body []byte) []string {
	body = bytes.TrimSpace(body)
	if bytes.HasPrefix(body, []byte("{")) {
		var answer struct {
			Type string `json:"__type"`
			Code string `json:"code"` // or Code: encoding/json takes both
		}
		if !decode(body, &answer) {
			return nil
		}
		return []string{answer.Type, answer.Code}
	}
	_, after, _ := bytes.Cut(body, []byte("<Code>"))
	code, _, ok := bytes.Cut(after, []byte("</Code>"))
	if !ok {
		return nil
	}
	return []string{string(code)}
}
