package sluicehttp

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// # How does an unknown server throttle with status 200?
//
// With an envelope: an object that has a code and a message, and no data.
//
//	{"code": 40100, "message": "Too many requests. Please retry in some time.", "request_id": "…", "data": {}}
//	    https://business-api.tiktok.com/portal/docs
//	{"error": 29, "message": "Rate Limit Exceeded - Your IP has made too many requests in a short period"}
//	    https://www.last.fm/api/errorcodes
//	{"Note": "Thank you for using Alpha Vantage! Our standard API call frequency is 5 calls per minute and …"}
//	    https://www.alphavantage.co/support
//
// Such a response is short, and its length is known. The same words may be data, as in a log: so an object
// that has any other key is none, nor one with data or that says that all is well. And only a request that
// may be sent twice is sent again.

// brief reports whether resp is JSON that is short enough to be read: its bytes are there or nearly.
func brief(resp *http.Response) bool {
	return 0 < resp.ContentLength && resp.ContentLength <= mostGlanced && shortJSON(resp)
}

// lengths are those of the last brief responses that were fine: one length, and the number of them in a row.
//
// To look at a body takes longer than everything else that a transport does, and many APIs acknowledge each call
// with the same bytes. So after usual responses of one length only one of usualLook of that length is looked at.
type lengths struct{ last atomic.Uint32 } // the length times 256, and the number

const (
	usual     = 8
	usualLook = 64
)

// fine reports whether resp, which is brief, has no words of an envelope, as far as is known. Its body is waited for for
// at most patience.
func (l *lengths) fine(resp *http.Response, patience time.Duration) bool {
	last := l.last.Load()
	n := last & 255
	if last>>8 != uint32(resp.ContentLength) {
		n = 0
	}
	if n >= usual && n < usual+usualLook {
		l.last.Store(last + 1)
		return true
	}
	head := glance(resp, patience, nil)
	for i, b := range head {
		if 'A' <= b && b <= 'Z' {
			head[i] = b + 'a' - 'A'
		}
	}
	switch {
	case hasAny(string(head), limitStems):
		l.last.Store(0)
		return false
	case head != nil:
		l.last.Store(uint32(resp.ContentLength)<<8 | min(n, usual-1) + 1)
	}
	return true
}

// inEnvelope inspects a brief response with status 200 that may be an envelope.
func inEnvelope(a *answer) {
	body := bytes.TrimSpace(a.peek())
	var fields map[string]json.RawMessage
	if !bytes.HasPrefix(body, []byte("{")) || json.Unmarshal(body, &fields) != nil {
		return
	}
	all := failedBeside(fields)
	if isEnvelope(fields) {
		all = append(all, statementsOf(body)...)
	}
	if slices.ContainsFunc(all, func(s statement) bool { return s.tooMany(true) }) {
		a.throttled("the body says so")
		a.waitsFor(all)
	}
}

// isEnvelope reports whether an object with these fields is an envelope that does not say that all is well.
func isEnvelope(fields map[string]json.RawMessage) bool {
	for key, value := range fields {
		if enveloping(words(key), string(value)) {
			continue
		}
		var inner map[string]json.RawMessage
		if words(key) != "response" || json.Unmarshal(value, &inner) != nil || !isEnvelope(inner) {
			return false
		}
	}
	return len(fields) > 0
}

// failedBeside returns the statements of the field errors if there is one beside data that is empty. Then any
// other fields may be there: {"get": "x", "errors": {"rateLimit": "Too many requests."}, "results": 0, "response": []}.
func failedBeside(fields map[string]json.RawMessage) (all []statement) {
	empty := false
	for key, value := range fields {
		empty = empty || isData(words(key)) && enveloping(words(key), string(value))
	}
	if !empty {
		return nil
	}
	for _, s := range statementsOf(fields["errors"]) {
		s.key = "error"
		all = append(all, s)
	}
	return all
}

// isData reports whether key, in lower case, is one for what was asked for.
func isData(key string) bool {
	switch key {
	case "data", "result", "results", "response", "payload":
		return true
	}
	return false
}

// enveloping reports whether a field of an object, whose key is in lower case, as words, is of an envelope that
// does not say that all is well.
func enveloping(key, value string) bool {
	value = strings.ToLower(strings.Trim(value, `"`))
	if isData(key) {
		return slices.Contains([]string{"", "null", "{}", "[]", "false", "0", "error", "fail", "failed", "failure"}, value)
	}
	switch key {
	case "ok", "success", "succeeded":
		return value == "false" || value == "0"
	case "status":
		return !slices.Contains([]string{"200", "ok", "success", "true"}, value) // 0 is a failure for some
	case "request id", "requestid", "trace id", "traceid", "log id", "logid", "id", "time", "timestamp", "ts", "docs", "documentation url", "version":
		return true
	}
	if (&statement{key: key}).explains() || waitField(key) != "" {
		return !slices.Contains([]string{"0", "200", "ok", "success", "true"}, value)
	}
	return false
}
