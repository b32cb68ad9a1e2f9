package sluicehttp

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// # How does an unknown server say that there were too many calls?
//
// In words, in an error whose status may mean anything. They are in a string of JSON, between two tags
// of a page or of XML, or in a line of plain text, with the key or the tag before it: a statement. Its
// sentences decide:
//
//	403  <title>SEC.gov | Request Rate Threshold Exceeded</title>
//	     https://www.sec.gov/about/webmaster-frequently-asked-questions
//	400  {"error": {"message": "(#4) Application request limit reached", "type": "OAuthException", "code": 4}}
//	     https://developers.facebook.com/docs/graph-api/overview/rate-limiting
//	500  {"fault": {"faultstring": "Spike arrest violation. Allowed rate : 10ps", …}}
//	     https://docs.apigee.com/api-platform/develop/comparing-quota-spike-arrest-and-concurrent-rate-limit-policies
//
// A list of whole phrases had missed every second provider that was looked up, so a sentence counts
// that has a word for the limit and a word for being above it. Three things look similar and are not:
// the name of a field, such as "rate_limit_exceeded": false; an error about the input, which may
// repeat the words of the caller, and therefore statuses of invalid requests count only under a key
// for messages; and a quota of days or of a plan.
const (
	mostWords      = 4 << 10 // bytes: who throttles says so at the beginning, if not in its title
	mostStatements = 64
)

// Words for too many calls, for a limit of calls, for being above it, for an input that is wrong, for
// a limit that ends in hours at the earliest, and for one that ends soon. They are in lower case, with
// blanks for underscores and hyphens and between the words of camelCase.
var (
	tooManyWords = []string{
		"too many visits", "too many concurrent", "too many simultaneous",
		"rate limited", "ratelimited", "rate limit error", "ratelimit: error", "reduce your request rate",
		"request rate threshold exceeded", "throttled out", "was throttled", "were throttled", "being throttled",
		"requests throttled", "request throttled", "throttle violation", "over qps", "over queries per second",
		"request too frequent", "requests too frequent", "access too frequent", "too frequently", "trigger frequency limit",
		"requests too fast", "requests too quickly", "please slow down", "too much request weight", "call limited", "out of rate limit",
		"request rate is large", "request rate too large", "过于频繁", "太频繁", "频率超限", "限流",
		"user flow control", "api flow control", "api call frequency is", "spreading out your free api requests", "wait a few minutes before",
	}
	limitWords = []string{
		"rate limit", "ratelimit", "throttle limit", "request rate", "call rate", "request limit", "requests limit", "call limit", "calls limit",
		"number of requests", "number of api requests", "number of calls", "number of api calls", "number of concurrent requests",
		"requests per", "calls per", "queries per", "concurrent requests", "concurrent calls", "concurrency limit",
		"invocation limit", "requests limitation", "frequency limit", "call volume", "qps", "spike arrest", "key allowance", "account allowance", "max conn",
	}
	aboveWords   = []string{"exceeded", "exceeding", "exceeds", "reached", "violation", "have hit", "has hit", "was hit", "limit hit"}
	invalidWords = []string{"must be", "must not", "should be", "invalid", "not valid", "parameter", "unknown", "missing", "already", "valid value", "maximum number of", "in the batch"}
	longWords    = []string{
		"daily", "per day", "24 hour", "weekly", "per week", "monthly", "per month", "per year",
		"your plan", "current plan", "total requests limit",
	}
	shortWords = []string{"second", "/sec", "minute"}

	// What the body of a throttle says if it is because of the calls in flight.
	atOnceWords = []string{"concurren", "simultaneous", "in flight", "in parallel", "at the same time"}

	// What is in a body that has any of these words, in lower case: one for each of tooManyWords and
	// limitWords, and one for each way to say when to call again.
	limitStems = []string{"limit", "many", "rate", "throttl", "frequen", "qps", "per", "number", "concurrent", "spike", "allowance", "max", "flow", "wait", "spreading", "too fast", "too quickly", "slow down", "too much", "volume", "频", "限流"}
	waitStems  = []string{"retry", "wait", "again", "available", "backoff", "reset", "next", "throttleseconds"}
)

// inWords inspects errors whose body says that there were too many calls, or when to call again. A
// server that fails may repeat the words of another one behind it, after it did a part of the request.
func inWords(a *answer) {
	timed := !a.said.RetryAt.IsZero() || a.said.Floor > 0
	if a.said.Throttled && timed || a.said.ShouldRetry != nil || a.other {
		return // a maker has said more
	}
	body := a.peek()
	body = body[:min(len(body), mostWords)]
	stems, text := limitStems, strings.ToLower(string(body))
	if a.said.Throttled {
		a.atOnce = hasAny(text, atOnceWords)
		stems = waitStems
	}
	if !hasAny(text, stems) {
		return // most errors, for a fraction of the time
	}
	all := statementsOf(body)
	if !a.said.Throttled {
		strict := false
		switch a.resp.StatusCode {
		case http.StatusBadRequest, http.StatusConflict, http.StatusUnprocessableEntity:
			strict = true
		}
		if !slices.ContainsFunc(all, func(s statement) bool { return s.tooMany(strict) }) {
			return
		}
		a.throttled("the body says so")
		a.partly = a.resp.StatusCode >= 500
		a.atOnce = hasAny(text, atOnceWords)
	}
	if !timed {
		a.waitsFor(all)
	}
}

// A statement is a string of an error.
type statement struct {
	key  string // in lower case, as words
	text string // the same
	raw  string
}

// tooMany reports whether s says that there were too many calls. strict is for an error that is
// probably about the input.
func (s *statement) tooMany(strict bool) bool {
	if strict && !s.explains() || hasAny(s.text, longWords) && !hasAny(s.text, shortWords) {
		return false
	}
	return slices.ContainsFunc(sentences(s.text), func(sentence string) bool {
		return (hasAny(sentence, tooManyWords) || tooManyOf(sentence) || hasAny(sentence, limitWords) && hasAny(sentence, aboveWords)) &&
			!(strict && hasAny(sentence, invalidWords)) && !strings.Contains(sentence, "be reached")
	})
}

// tooManyOf reports whether a sentence says that there are too many requests of a kind: "too many search
// requests running at the same time".
func tooManyOf(sentence string) bool {
	_, rest, _ := strings.Cut(sentence, "too many ")
	for range 2 { // a kind is a word
		word, after, _ := strings.Cut(rest, " ")
		switch strings.TrimRight(word, ".,:/") {
		case "requests", "calls", "queries":
			return true
		case "request": // by those who forget the plural; "too many request parameters" is another matter
			return after == ""
		}
		rest = after
	}
	return false
}

// explains reports whether the key of s is one for messages and codes, and not the name of a part of
// the input.
func (s *statement) explains() bool {
	switch s.key {
	case "", "h1", "detail", "details", "title", "text", "type", "status", "info", "information", "note", "cause":
		return true
	}
	return hasAny(s.key, explaining)
}

var explaining = []string{"err", "msg", "message", "code", "reason", "desc", "fault"}

// statementsOf returns the statements of the beginning of a body.
func statementsOf(body []byte) []statement {
	if body = bytes.TrimSpace(body); len(body) == 0 {
		return nil
	}
	var all []statement
	switch body[0] {
	case '{', '[', '"':
		all = statementsOfJSON(body)
	case '<':
		for part := range strings.SplitSeq(string(body), "<") {
			tag, text, _ := strings.Cut(part, ">")
			tag, _, _ = strings.Cut(tag, " ")
			if text = strings.TrimSpace(text); text != "" && len(all) < mostStatements {
				all = append(all, statement{words(tag), words(text), text})
			}
		}
	default:
		for line := range strings.SplitSeq(string(body), "\n") {
			if len(all) < mostStatements {
				all = append(all, statement{"", words(line), line})
			}
		}
	}
	return all
}

// statementsOfJSON is statementsOf for JSON, of which the end may be missing.
func statementsOfJSON(body []byte) (all []statement) {
	type object struct {
		is    bool   // and not a list
		key   string // of the value that comes next; of a list, that of the list
		named bool   // key is read
	}
	around := []object{{}}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	for len(all) < mostStatements {
		token, err := d.Token()
		if err != nil {
			break
		}
		top := &around[len(around)-1]
		value := ""
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{', '[':
				top.named = false
				around = append(around, object{is: t == '{', key: top.key})
			default:
				around = around[:len(around)-1]
			}
			continue
		case string:
			if top.is && !top.named {
				top.key, top.named = t, true
				continue
			}
			value = t
		case json.Number:
			value = t.String()
		}
		top.named = false
		if value != "" {
			all = append(all, statement{words(top.key), words(value), value})
		}
	}
	return all
}

// words returns s in lower case, with blanks between its words.
func words(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 8)
	small := false
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '_' || c == '-':
			c, small = ' ', false
		case 'A' <= c && c <= 'Z':
			if small {
				b.WriteByte(' ')
			}
			c, small = c+'a'-'A', false
		default:
			small = 'a' <= c && c <= 'z'
		}
		b.WriteByte(c)
	}
	return b.String()
}

// sentences returns the sentences of s.
func sentences(s string) []string {
	var all []string
	for {
		end := strings.IndexAny(s, ".;!?\n")
		for end >= 0 && end+1 < len(s) && s[end] != '\n' && s[end+1] != ' ' { // within a name or a number
			next := strings.IndexAny(s[end+1:], ".;!?\n")
			if next < 0 {
				end = -1
				break
			}
			end += 1 + next
		}
		if end < 0 {
			return append(all, s)
		}
		all, s = append(all, s[:end]), s[end+1:]
	}
}

// hasAny reports whether s has any of the words.
func hasAny(s string, any []string) bool {
	return slices.ContainsFunc(any, func(word string) bool { return strings.Contains(s, word) })
}

// wordy reports whether resp is an error whose body inWords reads: what is missing or not allowed is
// not throttled.
func wordy(resp *http.Response, kind string) bool {
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		return false
	}
	switch kind {
	case "text/html", "text/plain", "text/json":
		return true
	}
	return xmlError(resp, kind) || jsonError(resp, kind)
}
