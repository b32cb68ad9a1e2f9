package main

import (
	"math"
	"math/rand/v2"
	"time"
)

// autothrottle is Scrapy 2.18 (commit 11079cb) with AUTOTHROTTLE_ENABLED and the default
// settings for the rest, after scrapy/extensions/throttle.py and Slot and
// Downloader._process_queue in scrapy/core/downloader/__init__.py: one domain, 8 requests
// at once, a delay between them of ½ to 1½ times a delay that begins at 5 s. The delay
// follows the latency; the reply to a request that was not answered with 200 may only
// raise it. RetryMiddleware sends a request again as soon as its turn comes, and does not
// read Retry-After; it would give up after two retries, here it does not.
type autothrottle struct {
	naive
	delay float64 // seconds
	wait  float64 // drawn for the next request; 0: not yet
	last  time.Duration
	r     *rand.Rand
}

func newAutothrottle(_ *World, r *rand.Rand) strategy {
	return &autothrottle{delay: 5, last: -time.Hour, r: r}
}

func (a *autothrottle) leave(now time.Duration, inFlight int, _ float64) (ticket, time.Duration) {
	if a.wait == 0 {
		a.wait = a.delay * (.5 + a.r.Float64())
	}
	if at := a.last + seconds(a.wait); at > now {
		return nil, at
	}
	if inFlight >= 8 {
		return nil, never
	}
	a.last, a.wait = now, 0
	return now, 0
}

func (a *autothrottle) done(now time.Duration, t ticket, r reply) {
	latency := (now - t.(time.Duration)).Seconds()
	delay := math.Min(60, math.Max(latency, (a.delay+latency)/2))
	if r.outcome != granted && delay <= a.delay {
		return
	}
	a.delay = delay
}
