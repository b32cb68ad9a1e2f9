// Package sluicehttp puts gates in front of an http.Client. A [Transport] paces requests, limits
// how many are in flight, retries transient failures, and respects Retry-After and rate-limit
// headers.
//
//	client, err := sluicehttp.NewClient() // finds the limit of each host
//
//	client, err := sluicehttp.NewClient(sluicehttp.Config{
//		Rate:        sluice.PerSecond(10), // for each host
//		Concurrency: 8,
//	})
//
// There is a gate for each scheme, host and port, evicted when a new one would behave the same.
// Config.Key groups requests differently, [WithOverrides] a single one. If a limit is that of a
// route, the route gets a gate below the one of the host.
//
// Close response bodies: the permit of a request is held until its body is read to the end, fails
// or is closed, or its context ends. Stats shows how many permits are held, and for how long.
//
// # Timeouts
//
// Set no http.Client.Timeout: it includes the time in the queue. An attempt has
// RetryPolicy.AttemptTimeout until its header, by default 10 minutes; RetryPolicy also limits the
// waits.
//
// # Retries
//
// Requests are retried after network errors, the statuses 408, 425, 429, 500, 502 to 504 and a few
// others, and 409, 413 and 423 with a Retry-After. A request that is not idempotent is retried only
// if the server has not processed it: it was throttled, or not sent. GET, HEAD, OPTIONS, TRACE, PUT
// and DELETE are idempotent, as are requests with an Idempotency-Key and those for which
// Config.Idempotent says so. If there is no further attempt, the last response is returned with a
// nil error; a [Report] has the reason. SDKs may retry as well: the retry budget of the key covers
// both loops.
//
// # Untrusted hosts
//
// No server can pause its key for longer than Config.MaxPause. One with many names cannot use up all
// gates, see Config.Keys. A body that stalls delays Config.Inspect or a retry by at most a second.
//
// docs/http.md has the details: statuses, messages, routes, headers, costs, and SDKs.
package sluicehttp
