package sluicehttp

import (
	"bytes"
	"net/http"
	"strings"
)

// aws knows the APIs of Amazon Web Services and compatible ones, such as other object stores. They
// also throttle with the statuses 400 and 503 and an error code, as in aws-sdk-go-v2 and MinIO.
// Such a request is retried whatever its method.
func aws(a *answer) {
	if a.resp.StatusCode < 400 {
		return
	}
	codes := []string{a.resp.Header.Get("X-Amzn-Errortype")}
	if codes[0] == "" {
		codes = awsCodesIn(a.peek())
	}
	for _, code := range codes {
		if code = awsCode(code); !awsThrottle(code) {
			a.other = a.other || code != ""
			continue
		}
		a.throttled(code)
		if a.said.ShouldRetry == nil {
			a.said.ShouldRetry = new(true)
		}
		return
	}
}

// awsThrottle reports whether code means a throttle.
func awsThrottle(code string) bool {
	switch code {
	case "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottledException",
		"TooManyRequestsException", "ProvisionedThroughputExceededException",
		"TransactionInProgressException", "RequestLimitExceeded", "BandwidthLimitExceeded",
		"LimitExceededException", "RequestThrottled", "SlowDown", "PriorRequestNotComplete",
		"EC2ThrottledException":
		return true
	case "SlowDownRead", "SlowDownWrite", "TooManyRequests": // MinIO
		return true
	}
	return false
}

// ofAmazon reports whether resp, an error of a media type, is one that aws should look at, whatever
// the configuration.
func ofAmazon(resp *http.Response, kind string) bool {
	for _, name := range []string{"X-Amzn-Errortype", "X-Amzn-Requestid", "X-Amz-Request-Id"} {
		if len(resp.Header[name]) > 0 {
			return true
		}
	}
	return strings.HasPrefix(kind, "application/x-amz-json") || kind == "application/xml" || kind == "text/xml"
}

// awsCode returns a code without its namespace and URL:
// "com.amazonaws.dynamodb.v20120810#ThrottlingException:http://…".
func awsCode(s string) string {
	s, _, _ = strings.Cut(s, ":")
	if i := strings.LastIndexByte(s, '#'); i >= 0 {
		s = s[i+1:]
	}
	return strings.TrimSpace(s)
}

// awsCodesIn returns the codes in the body of an error. JSON may have two, one of them general
// or a number. XML is searched, not parsed: the element has no attributes, and its depth
// differs between services.
func awsCodesIn(body []byte) []string {
	body = bytes.TrimSpace(body)
	if bytes.HasPrefix(body, []byte("{")) {
		var answer struct {
			Type string `json:"__type"`
			Code string `json:"code"` // or Code: encoding/json accepts both
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
