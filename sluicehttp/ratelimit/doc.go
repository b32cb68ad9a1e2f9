// Package ratelimit reads what the header of a response says about rate limits: when to
// retry after a 429, how much of a limit remains, and when there will be more.
//
//	s, _ := ratelimit.Parse(resp.StatusCode, resp.Header, time.Now())
//	if at, why := s.PauseUntil(); !at.IsZero() {
//		gate.PauseUntil(at, why)
//	}
//
// [Parse] never fails. It ignores malformed values and returns a [Warning] for each. It
// reads these fields, in any case:
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
// Status 429 is a throttle, and so is 529, which Anthropic sends when it is overloaded.
//
// If a header has fields of several families, all are read. Limits with the same name are
// merged; where they contradict each other, the family further up in the table wins. Of the
// Retry-After family the first valid field counts, and of a field that occurs twice the
// longer wait.
//
// # Times
//
// A time is a date in one of a dozen forms, a duration such as 6m0s, or a number. A number
// below 500,000,000 is seconds from now, below 100,000,000,000 seconds since 1970, and below
// 100,000,000,000,000 milliseconds since 1970. In fields named after milliseconds, and in
// Options.Millis, it is milliseconds from now. Epochs and dates are compared with the Date
// of the response, so a clock that is wrong by up to a day does no harm. A time in the past
// is now, and no wait is longer than 292 years.
//
// # Windows and buckets
//
// All of a window becomes available at its reset. A bucket refills continuously: its reset
// is when it is full, and the next call fits much earlier. No header says which kind a limit
// is, so the names of the fields decide:
//
//	fields                                        reset is
//	RateLimit, RateLimit-Policy, RateLimit-…      the end of a window
//	X-RateLimit-…, X-Rate-Limit-…                 the end of a window
//	X-RateLimit-Limit-Requests, -Tokens, …        when the bucket is full: OpenAI, Groq
//	X-RateLimit-Limit-Minute, -Day, …             the end of a window: Kong
//	X-RateLimit-Requests-Limit, …                 unknown, read as the end of a window:
//	                                              Linear; a Transport learns what it is
//	Anthropic-RateLimit-Requests-Limit,           when the bucket is full: Anthropic,
//	  -Input-Tokens-Limit, …                      and any other first word
//	X-HubSpot-…, X-Shopify-…, X-Ms-…, X-Amzn-…    absent
//	a bucket of requests without a maximum        read as the end of a window
//	all others                                    read as the end of a window
//
// An unknown kind is read as a window, because that is never too early. Some gateways send
// the fields of OpenAI for windows; then a call starts too early and is throttled, and its
// Retry-After counts.
//
// # What is not read
//
// Bodies: the secondary limits of GitHub, the ThrottlingException of AWS, THROTTLED of
// GraphQL, the RetryInfo of Google, retry_after of Discord. A Transport of package sluicehttp
// reads them. Code that reads a body itself sets Info.Throttled and Info.RetryAt.
//
// The limit of HubSpot per ten seconds, the priority tier of Anthropic, and months and years
// as windows are not read either. The leak rate of a Shopify bucket depends on the plan of
// the shop.
//
// Package ratelimit does not choose a backoff: after a throttle without RetryAt that is up
// to the caller.
package ratelimit
