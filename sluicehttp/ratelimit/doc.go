// Package ratelimit reads what the header of a response says about rate limits: when to retry after
// a 429, how much of a limit remains, and when there will be more.
//
//	s, _ := ratelimit.Parse(resp.StatusCode, resp.Header, time.Now())
//	if at, why := s.PauseUntil(); !at.IsZero() {
//		gate.PauseUntil(at, why)
//	}
//
// [Parse] reads Retry-After, the IETF drafts (RateLimit, RateLimit-Policy, RateLimit-Remaining …),
// X-RateLimit-… as GitHub, OpenAI and many others send it, and the fields of Anthropic, Azure,
// Amazon and others: docs/headers.md lists them.
//
// # Windows and buckets
//
// All of a window becomes available at its reset. A bucket refills continuously: its reset is when
// it is full, and the next call fits much earlier. The names of the fields decide which kind a limit
// is: those of OpenAI, Groq and Anthropic are buckets, all others windows, which is never too early.
//
// # Bodies
//
// Parse does not read bodies, such as the ThrottlingException of AWS; a Transport of package
// sluicehttp does. After a throttle without RetryAt the backoff is up to the caller.
package ratelimit
