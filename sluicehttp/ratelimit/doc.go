// Package ratelimit reads what servers say about their limits in the header
// of a response: Retry-After in all forms, the drafts of the RateLimit fields,
// X-RateLimit fields and what vendors made of them.
package ratelimit
