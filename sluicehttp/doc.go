// Package sluicehttp puts gates in front of an http.Client: a [Transport] paces
// requests, caps how many are in flight, retries accidental failures, and follows
// Retry-After and rate-limit headers, within the bounds of its Config. Any code that
// accepts an *http.Client can use it; some SDKs also need an option or two, see
// "Retries above".
//
//	transport, err := sluicehttp.New(nil, sluicehttp.Config{
//		Gate: sluice.Config{Concurrency: 8, Rate: sluice.Rate{Count: 10, Per: time.Second}},
//	})
//	…
//	client := &http.Client{Transport: transport}
//
// There is a gate for each scheme, host and port. It is made for the first request
// and forgotten when a new gate would behave the same. All spellings of a host are
// one: upper case, a final dot, "bücher.example" and "xn--bcher-kva.example".
// Config.Key groups requests differently, and [With] does so for single requests.
//
// # What happens to a request
//
// For each attempt, in this order:
//
//	budget        only for a retry: too many of them, and there are no more
//	backoff       only for a retry; it holds no permit
//	gate          concurrency, pace, pause and quotas, granted at one instant, by
//	              which the context is not done
//	send          by the base transport
//	learn         status and header pause the gate or change its pace, before
//	              another call leaves
//	decide        return the answer to the caller, or drop it and try again
//
// A request that net/http itself repeats, because a kept connection turned out to be
// closed, is one attempt.
//
// The permit is held until the body of the answer is read to its end, fails or is
// closed, or the context of the request is done. After HEAD, 204, 304 and answers
// without a body it is given back at once. So a program that forgets to close bodies
// stalls: Stats reports how many permits are held, and for how long.
// Config.ReleaseAtHeaders gives permits back earlier. Event streams, upgraded
// connections and informational (1xx) answers pass through as they come, over
// HTTP/1.1 and HTTP/2.
//
// # Timeouts
//
// A request also waits for its turn, so a timeout that was long enough without a
// transport may be too short:
//
//	http.Client.Timeout,     covers the queue, pauses, all attempts and the reading of
//	a deadline of the        the body. n requests that start together at a rate of r
//	context, the timeout     need n/r and more. A request that cannot leave in time
//	of an SDK                fails at once, and the error says how long it would wait.
//	RetryPolicy.AttemptTimeout    covers one attempt until its header is there, and no wait.
//	RetryPolicy.MaxServerWait     bounds each wait that a server asks for.
//	RetryPolicy.MaxElapsed        bounds all attempts together.
//
// Most programs need an AttemptTimeout and no http.Client.Timeout. For many requests,
// batch.Map starts no more than can leave in time. Some SDKs and crawlers set a timeout
// of their own: anthropic-sdk-go 10 minutes, colly 10 seconds. Request.Cancel is obeyed
// like a context.
//
// # Hosts that are not trusted
//
// A crawler or a sender of webhooks calls hosts that others choose. No server can pause
// its key for longer than Config.MaxPause, by default 24 hours, and [Transport.Resume]
// ends a pause earlier. A server with many names cannot use up the room for gates, see
// Config.Keys. A body that stalls delays an [Inspector] or a retry by a second at most.
// Hosts that share a key by Config.Key share its pauses: one of them can stop the
// others for MaxPause.
//
// # What is sent again
//
//	                                     idempotent      others
//	no connection, or refused (HTTP/2)   again           again
//	cut off, reset, garbage, timeout     again           never
//	429, 529; 403 with Retry-After or    again           again, unless
//	a limit at zero; an Inspector                        Config.KeepRefused
//	503 with or without Retry-After      again           never
//	408, 425, 500, 502, 504, 520 to      again           never
//	528, Config.AlsoRetry
//	X-Should-Retry: true, from 400 on    again           again
//	X-Should-Retry: false                never           never
//	501 and all other statuses           no failure      no failure
//	wrong certificate, scheme or name,   never           never
//	refused by a proxy (407), malformed
//	request, context done
//
// Idempotent are GET, HEAD, OPTIONS, TRACE, PUT and DELETE, what has an
// Idempotency-Key or X-Idempotency-Key, and requests that [Overrides] or
// Config.Idempotent declare idempotent. The body of a request must be available again:
// by GetBody, which http.NewRequest sets for bodies in memory, or because its length is
// known and at most 64 KiB; such a body is read before the first attempt. Otherwise the
// request is sent again only if nothing has been read of its body. Nothing longer is
// ever read into memory.
//
// If there is no further attempt, the last answer is returned with its body intact
// and a nil error, as the contract of http.RoundTripper asks; a [Report] says what
// happened. If the wait for a slot or a pause cannot end before the deadline of the
// request, it does not begin.
//
// # What servers say
//
// Package ratelimit reads the header. The transport does this:
//
//	throttled, and until when    the gate of the key is paused for all its
//	                             callers, never for less than told, at most a
//	                             second more and for MaxPause at most; then they
//	                             leave at the pace
//	the same, of all its calls   the gates of all keys by which calls go to that
//	                             scheme, host and port are
//	throttled, without a time    RetryPolicy.Throttled
//	another failure, and until   only this call waits, if it is sent again:
//	when (502 with Retry-After)  as long as told, or as the backoff if longer
//	longer than MaxServerWait    no other attempt, now; the Report, or the error
//	                             of a later call, says when to come back
//	nothing remains of a window  paused until its reset, before the 429 comes
//	nothing remains of a bucket  paused until it has one more, a fraction of the
//	of requests (OpenAI)         time to its reset, at which it is full
//	the same, of tokens          nothing: a small call may pass
//	something remains            nothing, but see Config.Spread
//	a policy                     nothing, but see Config.FromPolicy
//	limits, from a cache         nothing: they are of another time
//
// Some servers say it in the body only. Config.Inspect reads that:
//
//	GitHub      secondary limits, which have the status 403
//	AWS         throttles, which have the statuses 400 and 503; what looks like an
//	            error of Amazon is inspected without being configured
//	Anthropic   an overload behind another status; a limit on what may be spent
//	Google      how long to wait
//	GraphQL     throttles, which have the status 200
//	Inspectors  several of these, or of one's own, for one transport
//
// # Retries above
//
// Many SDKs retry by themselves. Leave that as it is: an SDK knows which of its calls
// may be repeated and signs them anew, and a transport does not. By default a transport
// does not repeat a POST that was answered with a 502 or cut off, because the server may
// have acted on it; with the SDK's retries turned off that call is lost. Set
// Config.Idempotent for the requests that may be sent twice, or Overrides.Idempotent for
// a single one. What each SDK needs beyond its defaults:
//
//	openai-go          nothing
//	aws-sdk-go-v2      nothing
//	anthropic-sdk-go   Config.Inspect: Anthropic
//	go-github          github.WithDisableRateLimitCheck, or it refuses calls itself,
//	                   without asking the transport; Config.Inspect: GitHub;
//	                   RetryPolicy.MaxServerWait: 2 * time.Hour to wait for the next hour
//
// To have one loop only, turn off that of the SDK (option.WithMaxRetries(0),
// aws.NopRetryer{}) and let Config.Idempotent return true for the calls that may be
// sent twice, such as chat completions, which only compute. Without it every POST of
// such an SDK that fails by a 500 or 502 is lost. The tests of module sdktest, in a
// folder of this package, try all of this against servers with limits and faults: no
// call is lost, and with no limit configured the server sees fewer requests for each
// call than without a transport.
//
// Two loops multiply: 3 attempts of an SDK, each with 4 of ours, are 12. The retry
// budget of the key bounds that when a server is down, and a request that says it is a
// retry (X-Stainless-Retry-Count, Amz-Sdk-Request, Grpc-Previous-Rpc-Attempts) is
// charged to it like one of ours. A timeout of the SDK, or of its http.Client, covers
// the time in the queue, too. A signature of AWS is made before the queue and expires
// after some minutes, so bound long queues by such a timeout.
//
// # What it does not do
//
// It does not cache, authenticate, balance or break circuits. It does not know what
// other processes send; for that, Config.Gate accepts Permits and Quotas that live
// elsewhere. It does not end a body that stalls: only the context does.
// Without an http.Client, use package sluice: Call and a Gate.
package sluicehttp
