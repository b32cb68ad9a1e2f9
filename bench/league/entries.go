package main

import (
	"math/rand/v2"
	"slices"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/adaptive"
)

// An entry is a strategy of the table: a policy in the event-driven twin, or a library,
// which runs in a bubble.
type entry struct {
	name, about string
	make        func(w *World, r *rand.Rand) strategy
	library     func(p *process) caller
	told        bool // the rate
	check       bool // only to compare with another one; not in the table unless named
}

var entries = []entry{
	{
		name: "naive", about: "repeats at once",
		make: func(*World, *rand.Rand) strategy { return naive{} },
	},
	{
		name: "backoff", about: "repeats with full jitter of 1 s·2ⁿ, at most 20 s, and not before Retry-After",
		make: func(_ *World, r *rand.Rand) strategy { return &backoff{r: r} },
	},
	{
		name: "retryablehttp", about: "hashicorp/go-retryablehttp: waits of 1, 2, 4 … 30 s, or Retry-After",
		library: retryableHTTP,
	},
	{
		name: "autothrottle", about: "Scrapy's AutoThrottle: a delay that follows the latency",
		make: newAutothrottle,
	},
	{
		name: "vegas", about: "Netflix concurrency-limits: VegasLimit, with backoff",
		make: newVegas,
	},
	{
		name: "gradient2", about: "Netflix concurrency-limits: Gradient2Limit, with backoff",
		make: newGradient2,
	},
	{
		name: "failsafe-adaptive", about: "failsafe-go: adaptivelimiter, with backoff",
		library: failsafeAdaptive,
	},
	{
		name: "aws-adaptive", about: "aws-sdk-go-v2: the adaptive retry mode",
		library: awsSDK,
	},
	{
		name: "aws-port", about: "the same step by step in the event loop, to check that against this",
		make: func(_ *World, r *rand.Rand) strategy { return newAWS(r) }, check: true,
	},
	{
		name: "xtime-half", about: "x/time/rate at half the told rate, with backoff",
		library: xtime(.5), told: true,
	},
	{
		name: "xtime-double", about: "x/time/rate at twice the told rate, with backoff",
		library: xtime(2), told: true,
	},
	{
		name: "xtime-told", about: "x/time/rate at the told rate, with backoff",
		library: xtime(1), told: true,
	},
	{
		name: "pacer-told", about: "the same in the event loop, to check that against this",
		make: func(w *World, r *rand.Rand) strategy { return newTold(w, r, 1) }, told: true, check: true,
	},
	{
		name: "sluice-adaptive", about: "sluice.Gate with Adaptive.Search, told nothing",
		library: func(p *process) caller {
			return p.throughGate(sluice.Config{Adaptive: sluice.Adaptive{Search: true}})
		},
	},
	{
		name: "sluice-zero", about: "sluice.Gate with no configuration at all",
		library: func(p *process) caller { return p.throughGate(sluice.Config{}) },
	},
	{
		name: "rule-adaptive", about: "the rule of internal/adaptive in the event loop, to check sluice-adaptive against this",
		make: searching(adaptive.Config{}), check: true,
	},
	{
		name: "rule-zero", about: "the same without a pace before the first refusal, to check sluice-zero",
		make: searching(adaptive.Config{Unlimited: true}), check: true,
	},
	{
		name: "sluice-penalised", about: "sluice-adaptive with the hint that refusals are costly: Adaptive.Costly",
		library: func(p *process) caller {
			return p.throughGate(sluice.Config{Adaptive: sluice.Adaptive{AvoidThrottling: true}})
		},
		check: true,
	},
	{
		name: "sluice-disabled", about: "sluice.Gate with Adaptive.Disabled, to say what a gate gains or loses that learns",
		library: func(p *process) caller {
			return p.throughGate(sluice.Config{Adaptive: sluice.Adaptive{Disabled: true}})
		},
		check: true,
	},
	{
		name: "sluice-told", about: "sluice.Gate at the told rate, with sluice's retries",
		library: func(p *process) caller { return p.throughGate(toldSluice(p.world)) }, told: true,
	},
	{
		name: "sluicehttp-told", about: "sluicehttp in an http.Client, told the rate",
		library: func(p *process) caller { return p.sluiceHTTP(toldSluice(p.world)) }, told: true,
	},
	{
		name: "sluicehttp", about: "sluicehttp in an http.Client, with no configuration",
		library: func(p *process) caller { return p.sluiceHTTP(sluice.Config{}) },
	},
}

// play plays a game, with the twin or in a bubble.
func (e entry) play(w *World, seed uint64, in bubbler) *game {
	if e.library != nil {
		return playInBubble(w, e, seed, in)
	}
	return play(w, e, seed)
}

// choose returns the entries with these names, or those of the table.
func choose(names []string) []entry {
	var some []entry
	for _, e := range entries {
		if len(names) == 0 && !e.check || slices.Contains(names, e.name) {
			some = append(some, e)
		}
	}
	return some
}
