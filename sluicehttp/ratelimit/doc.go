// Package ratelimit reads what a server says about its limits in the header of
// a response: when to come back after a 429, how much of which limit remains,
// when there will be more.
//
//	s, _ := ratelimit.Parse(resp.StatusCode, resp.Header, time.Now())
//	if at, why := s.PauseUntil(); !at.IsZero() {
//		gate.PauseUntil(at, why)
//	}
//
// [Parse] is a pure function and never fails. What is malformed is ignored, and
// comes back as a [Warning]; the rest is read. It knows no vendors by name, but
// all of these fields, in upper or lower case:
//
//	fields                                        as sent by
//	Retry-After                                   nearly all
//	Retry-After-Ms, X-Ms-Retry-After-Ms           OpenAI, Azure
//	X-Amz-Retry-After                             AWS, in milliseconds
//	X-Retry-After, X-RateLimit-Retry-After        others
//	X-Should-Retry, Stripe-Should-Retry           OpenAI, Anthropic, Stripe
//	Grpc-Retry-Pushback-Ms                        gRPC
//	RateLimit, RateLimit-Policy                   IETF drafts from 07: Cloudflare
//	RateLimit-Limit, -Remaining, -Reset           IETF drafts up to 06: Docker Hub
//	  and -Observed, -ResetTime, -Reset-After     GitLab
//	RateLimit-Reason                              Atlassian
//	X-RateLimit-Limit, -Remaining, -Used, -Reset  GitHub, Reddit, Atlassian and many others
//	  and -Resource                               GitHub
//	  and -Reset-After, -Bucket, -Scope, -Global  Discord
//	  and -Next                                   others
//	X-Rate-Limit-… for X-RateLimit-…              X
//	X-RateLimit-Limit-Requests, -Remaining-…      OpenAI; Kong, with -Minute and the like
//	X-RateLimit-Requests-Limit, -Remaining, …     Linear
//	Anthropic-RateLimit-Requests-Limit, …         Anthropic, and any other first word
//	X-HubSpot-RateLimit-Daily, -Secondly          HubSpot
//	X-Shopify-Shop-Api-Call-Limit                 Shopify
//	X-Ms-RateLimit-Remaining-…                    Azure
//	X-Amzn-RateLimit-Limit                        Amazon's Selling Partner API: a rate
//
// The status counts, too: 429 is a throttle, and so is 529, which Anthropic sends when
// it is overloaded.
//
// If several families are there all are read. Two that speak of the same limit,
// by name, are made one; where they contradict each other the one further up in
// the table counts. Of the Retry-After family the first that is valid does, and
// of one field sent twice the longer wait.
//
// # Times
//
// A time may be a number of seconds, with decimals or not, an epoch in seconds
// or milliseconds, which is told by its size ([Guess]), a date in a dozen forms,
// or a duration such as 6m0s; [TimeForm.Wait] is all of that for one value.
// Epochs and dates are of the server's clock. They are compared with its Date,
// so that a clock that is wrong by less than a day does no harm. A wait that is
// read is exact, in the past it is 0, and never more than 292 years.
//
// # Windows and buckets
//
// A window comes back as a whole at its reset. A bucket refills continuously, and its
// reset is the time when it is full; the next call fits after a fraction of that. No
// header says which kind a limit is, so the names of the fields decide:
//
//	fields                                        reset is
//	RateLimit, RateLimit-Policy, RateLimit-…      the end of a window
//	X-RateLimit-…, X-Rate-Limit-…                 the end of a window
//	X-RateLimit-Limit-Requests, -Tokens, …        when the bucket is full: OpenAI, Groq
//	X-RateLimit-Limit-Minute, -Day, …             the end of a window: Kong
//	X-RateLimit-Requests-Limit, …                 not known, read as the end of a
//	                                              window: Linear
//	Anthropic-RateLimit-Requests-Limit,           when the bucket is full: Anthropic,
//	  -Input-Tokens-Limit, …                      and any other first word
//	X-HubSpot-…, X-Shopify-…, X-Ms-…, X-Amzn-…    not said
//	those of a bucket of requests without a quota read as the end of a window
//	all of another name                           read as the end of a window
//
// An unknown kind is read as a window, because that is never too early. Some gateways
// send OpenAI's fields for windows: then a call leaves too early, is refused, and its
// Retry-After counts. A Transport of package sluicehttp also uses what earlier answers
// said about the same limit.
//
// # What is not read
//
// Bodies: whether GitHub refused by a secondary limit, the ThrottlingException of
// AWS, GraphQL's THROTTLED, Google's RetryInfo, Discord's retry_after. The Inspectors
// of package sluicehttp read some of them. A caller that reads a body sets
// Snapshot.Throttled and RetryAt, see the example of [TimeForm.Wait].
//
// HubSpot's limit per ten seconds, Anthropic's priority tier, limits of
// months and years as windows, and what is the caller's to know: how fast
// Shopify's bucket leaks depends on the plan of the shop.
//
// Nor does this package decide how long to back off: a Retry-After of 0 means
// that the server does not mind, and a throttle without RetryAt that it does not
// say.
package ratelimit
