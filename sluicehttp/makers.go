package sluicehttp

import (
	"bytes"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-go/sluice/sluicehttp/internal/inspect"
)

// # Which responses are read, if nothing is configured?
//
// Some servers throttle with a status that means something else, and say so only in the body.
// Reading every body would delay every response until its first bytes are there, and cost
// 2.5 µs more than the 1 µs of the rest. So status and header decide first whether a maker may be
// speaking:
//
//	from 400        a header of the maker, or a body of JSON or text. Errors are rare, their bodies
//	                short.
//	200             only where a maker is known to throttle with it, and then the request or a
//	                header says whose API it is: a path with "graphql" or of an API in
//	                inspect_success.go, a body that is a query of GraphQL or calls a JSON-RPC method,
//	                a header of Slack. A first look at no more than 512 bytes tells most of these
//	                responses apart: a throttle begins with its error. And JSON of at most 512
//	                bytes that answers a request which may be sent twice.
//	all others      never
//
// Measured (BenchmarkRoundTrip, BenchmarkMakers, linux/amd64, Go 1.26): a request without a body
// costs the same as without this, within 3 %; a POST of JSON with a JSON response 0.2 µs more, for
// a look at the request; a response of GraphQL or JSON-RPC without an error 2.5 µs; an error of
// JSON 7 µs.

// A maker is a vendor or a protocol whose servers say in their own words that there were too many
// calls.
type maker struct {
	name string

	// looks reports whether resp, an error from 400 of a media type, may be of this maker, by its
	// header. If mark is set, the body must contain it, too; which is cheaper than parsing it.
	looks func(resp *http.Response, kind string) bool
	mark  string

	// A response of JSON with status 200 to a request with a body may be a throttle if the mark
	// comes before fine in its first bytes. "" if none of this maker is one.
	fine string

	batches bool // a list may be a batch, whose last call may be the one that was throttled

	inspect func(a *answer)
}

// makers are those that are recognized. Of several that recognize a response, the last one decides.
var makers = []maker{
	{name: "Amazon, MinIO", looks: ofAmazon, inspect: aws},
	{name: "GitHub", looks: withHeader("X-Github-Request-Id"), mark: `"message"`, inspect: gitHub},
	{name: "Azure", looks: withHeader("X-Ms-Error-Code"), inspect: azure},
	{name: "problem", looks: ofType("application/problem+json"), mark: problemTypes, inspect: problem},
	{name: "Google", looks: jsonError, mark: `"error"`, inspect: google},
	{name: "error.code", looks: jsonError, mark: `"error"`, inspect: errorCode},
	{name: "Anthropic", looks: jsonError, mark: `"type"`, inspect: by(anthropic)},
	{name: "retry_after", looks: jsonError, mark: `"retry_after"`, inspect: retryAfterInBody},
	{name: "Ollama", looks: jsonError, mark: "maximum pending requests exceeded", inspect: ollama},
	{name: "GraphQL", looks: jsonError, mark: `"errors"`, inspect: graphQL, fine: `"data":{`, batches: true},
	{name: "JSON-RPC", looks: jsonError, mark: `"error"`, inspect: jsonRPC, fine: `"result"`, batches: true},
	{name: "Slack", looks: jsonError, mark: `"ratelimited"`, inspect: slack, fine: `"ok":true`},
	{name: "MediaWiki", looks: never, inspect: mediaWiki}, // the header has said all
	{name: "Google Maps", looks: never, mark: `"OVER_QUERY_LIMIT"`, inspect: googleMaps, fine: `"OK"`},
	{name: "Etherscan", looks: never, mark: "rate limit reached", inspect: etherscan, fine: `"OK"`},
	{name: "Kraken", looks: never, mark: `["E`, inspect: kraken, fine: `"error":[]`},
	{name: "Bybit", looks: never, mark: `"retCode":1`, inspect: bybit, fine: `"retCode":0`},
	{name: "VK", looks: never, mark: `"error_code"`, inspect: vk, fine: `"response"`},
	{name: "Vonage", looks: never, mark: "Throughput", inspect: vonage, fine: `"remaining-balance"`},
	{name: "Marketo", looks: never, mark: `"errors"`, inspect: marketo, fine: `"success":true`},
	{name: "monday.com", looks: never, mark: `"error`, inspect: monday, fine: `"data":{`},
	{name: "Airtable", looks: jsonError, mark: `"RATE_LIMIT_REACHED"`, inspect: airtable},
	{name: "Meilisearch", looks: jsonError, mark: `"too_many_search_requests"`, inspect: meilisearch},
	{name: "Stripe", looks: withHeader("Stripe-Rate-Limited-Reason"), inspect: stripe},
	{name: "Envoy", looks: withHeader("X-Envoy-Overloaded"), inspect: envoy},
	{name: "Mashery", looks: withHeader(masheryError), inspect: mashery},
	{name: "Meta", looks: withHeader(metaUsage), inspect: meta},
	{name: "Exchange", looks: xmlError, mark: "ErrorServerBusy", inspect: exchange},
	{name: "Qualys", looks: withHeader(qualysWait), inspect: qualys},
	{name: "words", looks: wordy, inspect: inWords},       // it is for what none of the others recognizes
	{name: "envelope", looks: never, inspect: inEnvelope}, // and so is this, with status 200: see lengths
}

// The places of those makers that throttle with status 200. TestMakers_Places checks them.
const (
	graphQLMaker = 9 + iota
	jsonRPCMaker
	slackMaker
	mediaWikiMaker
	googleMapsMaker
	etherscanMaker
	krakenMaker
	bybitMaker
	vkMaker
	vonageMaker
	marketoMaker
	mondayMaker
)

var envelopeMaker = len(makers) - 1

// speakers returns the makers that resp may be of, a bit for each. It calls what asks the request
// by name: called through the table, c would move to the heap, which costs every request 100 ns.
func (c *call) speakers(resp *http.Response) (some uint32) {
	at := 0
	if resp.StatusCode == http.StatusOK {
		at = c.place(resp)
	}
	switch {
	case resp.StatusCode >= 400:
		kind := mediaType(resp)
		for i := range makers {
			if makers[i].looks(resp, kind) {
				some |= 1 << i
			}
		}
	case resp.StatusCode != http.StatusOK:
	case at != 0:
		if at == mediaWikiMaker || shortJSON(resp) {
			return 1 << at
		}
	case c.req.Body == nil || !shortJSON(resp):
		return c.envelope(resp)
	case c.toGraphQL():
		return 1 << graphQLMaker
	case ofSlack(resp):
		return 1 << slackMaker
	default:
		if c.req.Method == http.MethodPost {
			if at := c.sent(); at != 0 {
				return 1 << at
			}
		}
		return c.envelope(resp)
	}
	return some
}

// envelope returns the bit of the maker of envelopes if resp may be one.
func (c *call) envelope(resp *http.Response) uint32 {
	if c.safe && brief(resp) {
		return 1 << envelopeMaker
	}
	return 0
}

// inspectAs lets those makers inspect a that some has a bit for, within patience.
func (a *answer) inspectAs(some uint32, patience time.Duration) {
	for i := range makers {
		m := &makers[i]
		if some&(1<<i) == 0 {
			continue
		}
		if a.resp.StatusCode < 400 && !m.suspects(a.resp, patience) {
			continue
		}
		if m.mark == "" || bytes.Contains(a.peek(), []byte(m.mark)) {
			m.inspect(a)
		}
	}
}

// suspects reports whether the first bytes of resp, whose status is 200, may be a throttle.
func (m *maker) suspects(resp *http.Response, patience time.Duration) bool {
	if m.mark == "" {
		return true
	}
	mark, fine := []byte(m.mark), []byte(m.fine)
	head := glance(resp, patience, func(head []byte) bool {
		return bytes.Contains(head, mark) || bytes.Contains(head, fine)
	})
	if head = bytes.TrimLeft(head, " \t\r\n"); len(head) > 0 && head[0] == '[' && m.batches {
		return true
	}
	before, _, found := bytes.Cut(head, mark)
	return found && !bytes.Contains(before, fine)
}

// by returns i for the table of makers.
func by(i inspect.Func) func(*answer) {
	return func(a *answer) { i(a.resp, a.peek, a.said) }
}

// ofSlack reports whether resp is of Slack.
func ofSlack(resp *http.Response) bool {
	return len(resp.Header["X-Slack-Req-Id"]) > 0
}

// toGraphQL reports whether the request of c is a query of GraphQL: "/graphql",
// "/admin/api/2026-10/graphql.json".
func (c *call) toGraphQL() bool {
	return strings.Contains(c.req.URL.Path, "graphql")
}

// sent returns the maker that the body of c, a POST, is for: a query of GraphQL or a call of JSON-RPC;
// or 0. Some clients of JSON-RPC write the method before the version.
func (c *call) sent() int {
	var buf [64]byte
	head := bytes.TrimLeft(c.body.begin(buf[:]), "["+whitespace) // a list is a batch
	switch {
	case !bytes.HasPrefix(head, []byte("{")):
		return 0
	case bytes.Contains(head, []byte(`"jsonrpc"`)) || bytes.HasPrefix(head, []byte(`{"method":`)):
		return jsonRPCMaker
	case isQuery(head):
		return graphQLMaker
	}
	return 0
}

// isQuery reports whether head, the beginning of an object, is a query of GraphQL:
// {"query": "query A {…", {"query": "{…", {"operationName": …. Many APIs search for a text with
// {"query": "shoes"}.
func isQuery(head []byte) bool {
	head = bytes.TrimLeft(head, "{"+whitespace)
	if bytes.HasPrefix(head, []byte(`"operationName"`)) {
		return true
	}
	text, found := bytes.CutPrefix(head, []byte(`"query"`))
	if !found {
		return false
	}
	text, found = bytes.CutPrefix(bytes.TrimLeft(text, ":"+whitespace), []byte(`"`))
	if !found {
		return false
	}
	text = bytes.TrimLeft(text, ` \nrt`) // blanks, \n, \r and \t; none of the words begins with these letters
	for _, word := range [...]string{"{", "query", "mutation"} {
		if bytes.HasPrefix(text, []byte(word)) {
			return true
		}
	}
	return false
}
