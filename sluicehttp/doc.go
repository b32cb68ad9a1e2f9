// Package sluicehttp puts gates in front of an http.Client. A [Transport] paces requests,
// limits how many are in flight, retries transient failures, and obeys Retry-After and
// rate-limit headers. Any code that accepts an *http.Client can use it; some SDKs need an
// option or two, see "SDKs that retry themselves".
//
//	transport, err := sluicehttp.New(nil, sluicehttp.Config{
//		Gate: sluice.Config{Concurrency: 8, Rate: sluice.Rate{Count: 10, Per: time.Second}},
//	})
//	…
//	client := &http.Client{Transport: transport}
//
// There is a gate for each scheme, host and port. It is made for the first request and
// forgotten when a new gate would behave the same. All spellings of a host have the same
// gate: upper case, a final dot, "bücher.example" and "xn--bcher-kva.example". Config.Key
// groups requests differently, and [With] does so for single requests. What a server says about one
// route only gets a gate of its own, see "Whose limit is it?".
//
// # A request
//
// Each attempt has these steps:
//
//	budget        for a retry: fails if there are too many
//	backoff       for a retry: without a permit
//	gate          concurrency, pace, pause and limits, granted together
//	send          by the base transport
//	learn         status and header pause the gate or change its rate, before
//	              another call leaves
//	decide        return the response, or drop it and try again
//
// A request that net/http repeats because a kept connection was closed is one attempt.
//
// The permit is held until the body of the response is read to its end, fails or is closed, or
// the context of the request is done. After HEAD, 204, 304 and responses without a body it is
// released at once. A program that does not close bodies therefore stalls; Stats shows how
// many permits are held, and for how long. Config.ReleaseAtHeaders releases permits earlier.
// Event streams, upgraded connections and 1xx responses pass through as they arrive.
//
// # Timeouts
//
// A request also waits for its turn, so a timeout that was long enough without a Transport
// may be too short:
//
//	http.Client.Timeout,     covers the queue, pauses, all attempts and reading the
//	a deadline of the        body. n requests that start together at a rate of r need
//	context, the timeout     at least n/r. A request that cannot leave in time fails at
//	of an SDK                once, and the error says how long it would have to wait.
//	RetryPolicy.AttemptTimeout    covers one attempt until its header arrives, without waits.
//	RetryPolicy.MaxServerWait     bounds each wait that a server asks for.
//	RetryPolicy.MaxElapsed        bounds when the last attempt may begin, counted from the
//	                              start of the first.
//
// Most programs need an AttemptTimeout and no http.Client.Timeout. For many requests,
// batch.Map starts no more than can leave in time. Some SDKs and crawlers set a timeout of
// their own: anthropic-sdk-go 10 minutes, colly 10 seconds.
//
// # Untrusted hosts
//
// A crawler or a sender of webhooks calls hosts that others choose. No server can pause its
// key for longer than Config.MaxPause, by default 24 hours, and [Transport.Resume] ends a
// pause earlier. A server with many names cannot use up the room for gates, see Config.Keys.
// A body that stalls delays an [Inspector] or a retry by at most a second. Hosts that share a
// key by Config.Key also share its pauses.
//
// # What is retried
//
//	                                     idempotent      others
//	no connection, or refused (HTTP/2)   yes             yes
//	cut off, reset, garbage, timeout     yes             no
//	429, 529; 403 with Retry-After or    yes             yes, unless
//	an exhausted limit; an Inspector;                    Config.KeepRefused
//	the words of a known maker
//	503 with or without Retry-After      yes             no
//	408, 425, 500, 502, 504, 520 to      yes             no
//	528, 420, 430, 509, Config.AlsoRetry
//	403, if the server turns out to      yes             no
//	refuse with it
//	X-Should-Retry: true, from 400       yes             yes
//	X-Should-Retry: false                no              no
//	501 and all other statuses           not a failure   not a failure
//	wrong certificate, scheme or name,   no              no
//	refused by a proxy (407), malformed
//	request, canceled, context done
//
// Idempotent are GET, HEAD, OPTIONS, TRACE, PUT and DELETE, requests with an Idempotency-Key
// or X-Idempotency-Key, and requests that [Overrides] or Config.Idempotent declare idempotent.
// The body must be available again: by GetBody, which http.NewRequest sets for bodies in
// memory, or because its length is known and at most 64 KiB; such a body is read before the
// first attempt. Otherwise the request is retried only if nothing was read of its body.
//
// If there is no further attempt, the last response is returned with its body intact and a nil
// error, as http.RoundTripper requires; a [Report] says what happened. A wait for a slot or a
// pause that cannot end before the deadline of the request does not begin.
//
// # What servers say
//
// Package ratelimit reads the header. A Transport reacts as follows:
//
//	throttled, with a time       the gate of the key, or of the route, is paused until then,
//	                             at most a second longer and at most for MaxPause; then
//	                             calls leave at the pace
//	the same, for all calls      all gates for that scheme, host and port are paused
//	throttled, without a time    RetryPolicy.Throttled
//	503, 500, 403, 420, 430 or   a failure or, for 403, nothing; unless they come in
//	509 without a time           bursts while other requests are granted: then a throttle,
//	                             as of nginx, HAProxy, Apache; see sluice.MaybeThrottled
//	another failure with a time  only this call waits: until then, or for the backoff
//	(502 with Retry-After)       if that is longer
//	longer than MaxServerWait    no other attempt; the Report says when to retry
//	an exhausted window          paused until its reset, before the 429; see "How far headers
//	                             are believed"
//	an exhausted bucket of       paused until it has one more, a fraction of the time
//	requests (OpenAI)            until its reset
//	an exhausted bucket of       nothing: a small call may pass, but see "Costs"
//	LLM tokens
//	something remains            the last ones are held back, see below
//	a published limit            nothing, but see Published.Spread
//	limits from a cache          nothing: they are outdated
//
// Some servers say it in their own words, with a status that means something else. These are
// recognized with no configuration:
//
//	                 status      by
//	Amazon, MinIO    400, 503    the code of the error, such as SlowDown, in header, JSON or XML
//	Azure            any error   X-Ms-Error-Code, error.code: ServerBusy, TooManyRequests, …Throttled
//	Google           any error   errors[].reason: rateLimitExceeded and similar; RESOURCE_EXHAUSTED;
//	                             retryDelay, with 429 and 503
//	GraphQL          200, error  code or type THROTTLED, RATE_LIMITED or similar; Shopify's
//	                             throttleStatus says how long to wait
//	JSON-RPC         200, error  code 429, -32005 and some others, unless the message is about a
//	                             single query; also within a batch
//	Slack            200, error  ratelimited
//	Discord,         429         retry_after, in fractions of a second; global
//	Telegram
//	problem+json     any error   quota-exceeded, temporary-reduced-capacity, abnormal-usage-detected
//	GitHub           403, 429    the message about a secondary limit
//	Anthropic        from 500    overloaded_error
//	Stripe           429         which limit; a locked object concerns only its request
//	Ollama           503         the queue is full
//
// A request that is throttled in this way is sent again whatever its method. There are two
// exceptions: a 503 whose body does not say that nothing was done, as with Azure, and a request of
// which the server did a part, such as some calls of a batch. A quota that is used up for the day, a spend limit and an
// account without credit are not retried.
//
// To find these words, a Transport reads up to 64 KiB of the body of errors that look like one of
// these by header and media type: of JSON, all except 401 and 404. A response with status 200 is read
// only if it is JSON, the request had a body, and the path has "graphql" in it, or a POST calls a
// method of JSON-RPC with a body that is available again, or there is an X-Slack-Req-Id; most are
// passed on after 512 bytes. A body that stalls is waited for for a second. An [Inspector] as
// Config.Inspect reads the words of other servers:
//
//	GitHub, AWS, Anthropic,   the above, without a look at header and path: for gateways and
//	Google, GraphQL           servers that are compatible except in these
//	Inspectors                several of these for one transport
//
// # Whose limit is it?
//
// A server may limit each route by itself: 15 searches and 900 lookups, two renames of a channel. So
// if it asks for a wait, or says that nothing remains, and requests of several routes are known, only
// the route of that request waits: it gets a gate whose parent is that of the host, with a pace,
// published limits and Stats of its own. A route is the method and the path without ids
// ("GET /repos/o/r/issues/{}"), or what the server names (X-RateLimit-Bucket, X-RateLimit-Resource).
// Rate and Concurrency of the host hold for all its routes together.
//
// Until it is known whose limit it is, the other routes go on with one request, which asks. If that is
// granted they follow, twice as many with each that is. If two are refused, or the only other route
// is, the limit is the host's: its gate is paused, and for the next waits, then for the next three,
// and so on, no request asks. None asks if
//
//   - the response says that it is about all calls, or is GitHub's secondary limit;
//   - responses have shown limits, and it is clear from those whether they are one or several;
//   - the wait is longer than a minute, shows no limit, and no route is known to have one of its own.
//
// This is for hosts without a Config.Key or Overrides.Key, which decide it. [ByRoute] is a Config.Key
// for a server whose limits are known to be those of routes. A throttle without a time is
// about the route if the calls of other routes meanwhile are clearly throttled less often; until that is
// known, the whole host learns from it. Hosts have at most 64 routes with a gate. A Gate with a Semaphore has none, and
// then what one route is told pauses the host.
//
// # How far headers are believed
//
// A refusal is obeyed, and so is its Retry-After or reset. That nothing remains, as a granted
// request is told, is believed only as far as it proves true:
//
//   - A window ends when all its responses together allow, which is much more precise than the
//     whole seconds that most servers state.
//   - If that leaves a quarter of a second or more open, one request asks early. The others
//     follow its response.
//   - A request that is granted before the reset, although nothing remained, refutes it: then
//     this limit stops no requests until one is refused. Sliding windows and small buckets are
//     like that.
//   - A limit whose reset moves with each request is a bucket, and has one more after the time
//     until its reset divided by what is missing.
//   - Two maxima under one name are two limits, of some requests each. Neither stops requests
//     until one is refused.
//
// # Costs
//
// Some APIs limit more than requests: LLM tokens, points, bytes. Config.Cost estimates what a
// request takes of each unit before it leaves, and Config.Usage reads from the response what
// it really took; Report.Settle does that by hand. Each amount is taken from the limits with
// that unit, all at one instant or none:
//
//	Gate.Limits            those with the same Unit
//	published limits       "requests"   requests, or no unit; 1 for each request
//	of the server, in      "tokens"     …-Tokens-…, but for the next two
//	headers                "input"      Anthropic-RateLimit-Input-Tokens-…
//	                       "output"     Anthropic-RateLimit-Output-Tokens-…
//	                       "points", "bytes" and other words: as the server spells them
//
// So with a Cost, published limits need no configuration: requests leave as what remains of
// each unit allows, counting those in flight. The first request leaves alone, until its
// response shows which limits there are, but for at most 10 s. A bucket of tokens is taken to refill at its maximum
// per minute, as documented by OpenAI and Anthropic, unless two responses show another rate.
// An amount that is larger than a published limit waits until all of it remains. Published
// limits hold for gates made from Config.Gate, not for those of NewGate.
//
// What a request took too much is given back when it is settled. Waiting requests notice at
// once, but for a published limit of which a response has shown what remains: there the next
// response says whether the server gives it back. A throttled request gives all back at once,
// except the request itself. One that fails otherwise, or whose response does not say what it
// took, has taken its estimate.
//
// Package presets has a Cost and a Usage for OpenAI and Anthropic.
//
// # SDKs that retry themselves
//
// Many SDKs retry by themselves. Leave that on: an SDK knows which of its calls may be
// repeated, and signs them anew. By default a Transport does not repeat a POST that failed
// with a 502 or was cut off, because the server may have acted on it. Set Config.Idempotent
// for requests that may be sent twice, or Overrides.Idempotent for a single one. What SDKs
// need beyond their defaults:
//
//	openai-go          nothing
//	aws-sdk-go-v2      nothing; for uploads of more than 64 KiB, which only the SDK can
//	                   repeat, ratelimit.None as retry.StandardOptions.RateLimiter
//	anthropic-sdk-go   nothing
//	go-github          github.WithDisableRateLimitCheck, or it refuses calls itself;
//	                   RetryPolicy.MaxServerWait: 2 * time.Hour to wait for the next hour
//
// To have only one loop, turn off that of the SDK (option.WithMaxRetries(0),
// aws.NopRetryer{}) and let Config.Idempotent return true for calls that may be sent twice,
// such as chat completions. The module sdktest tests all of this against servers with limits
// and faults.
//
// Two loops multiply: 3 attempts of an SDK, each with 4 of a Transport, are 12. The retry
// budget of the key bounds that. If a server throttles all requests for longer than
// RetryPolicy.MaxServerWait, 5 min by default, those that wait fail, and later ones fail
// immediately, except one now and then: so a loop above ends soon after, too. With Adaptive.Off
// RetryPolicy.MaxElapsed bounds each request of the loop, and not all of them together: an hour
// with 3 retries. Give the context a deadline there, which bounds both. A request that says it is a
// retry (X-Stainless-Retry-Count, Amz-Sdk-Request, Grpc-Previous-Rpc-Attempts) is charged to the
// budget like a retry of the
// Transport. The timeout of an SDK also covers the time in the queue. A signature of AWS is
// made before the queue and expires after some minutes, so bound long queues by a timeout.
//
// # Limitations
//
// The deprecated Request.Cancel ends an attempt, if the base transport honors it, but no wait;
// use the context.
//
// A Transport does not cache, authenticate, balance or break circuits. It does not know what
// other processes send; for that, Config.Gate accepts a Semaphore and Limits that are shared,
// such as those of sluiceredis. It does not end a body that stalls; only the context does.
// Without an http.Client, use sluice.Retry and a Gate.
package sluicehttp
