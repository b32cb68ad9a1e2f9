// Package ratelimit reads what the header of a response says about rate limits: when to retry after
// a 429, how much of a limit remains, and when there will be more.
//
//	s, _ := ratelimit.Parse(resp.StatusCode, resp.Header, time.Now())
//	if at, why := s.PauseUntil(); !at.IsZero() {
//		gate.PauseUntil(at, why)
//	}
//
// [Parse] reads Retry-After and its variants, the IETF drafts (RateLimit, RateLimit-Policy, and
// RateLimit-Limit, -Remaining, -Reset), X-RateLimit-… as GitHub, Reddit, Discord, OpenAI, Groq,
// Kong, Linear and many others send it, Anthropic-RateLimit-…, and the fields of HubSpot, Shopify,
// Azure and Amazon; docs/headers.md lists them.
//
// # Windows and buckets
//
// All of a window becomes available at its reset. A bucket refills continuously: its reset is when
// it is full, and the next call fits much earlier. No header says which kind a limit is, so the
// names of the fields decide: those of OpenAI, Groq and Anthropic are read as buckets, all others
// as windows, because that is never too early.
//
// # Bodies
//
// Parse does not read bodies, such as those of the secondary limits of GitHub or the
// ThrottlingException of AWS. A Transport of package sluicehttp does.
//
// After a throttle without RetryAt the backoff is up to the caller.
package ratelimit
