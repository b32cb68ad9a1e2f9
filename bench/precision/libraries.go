package main

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
)

// libraries make a limiter of count per second and return how to acquire from
// it, and how to be rid of it.
var libraries = map[string]func(count int) (acquire, stop func()){
	"sluice": func(count int) (acquire, stop func()) {
		p := limits.Must(pacer.New(sluice.Rate{Count: int64(count), Per: time.Second}))
		return func() { must(p.Acquire(context.Background(), 1)) }, nothing
	},
	"sluice-fine": func(count int) (acquire, stop func()) {
		p := limits.Must(pacer.New(sluice.Rate{Count: int64(count), Per: time.Second}, pacer.Config{TimerResolution: -1}))
		return func() { must(p.Acquire(context.Background(), 1)) }, nothing
	},
	"xtime": func(count int) (acquire, stop func()) {
		l := rate.NewLimiter(rate.Limit(count), 1)
		return func() { must(l.Wait(context.Background())) }, nothing
	},
	"uber": func(count int) (acquire, stop func()) {
		l := ratelimit.New(count)
		return func() { l.Take() }, nothing
	},
	"uber-strict": func(count int) (acquire, stop func()) {
		l := ratelimit.New(count, ratelimit.WithoutSlack)
		return func() { l.Take() }, nothing
	},
	"failsafe": func(count int) (acquire, stop func()) {
		l := ratelimiter.NewSmoothBuilder[any](uint(count), time.Second).Build()
		return func() { must(l.AcquirePermit(context.Background())) }, nothing
	},
	"ticker": func(count int) (acquire, stop func()) {
		t := time.NewTicker(time.Second / time.Duration(count))
		return func() { <-t.C }, t.Stop
	},
	"gate": func(count int) (acquire, stop func()) {
		return gate(count, sluice.Config{})
	},
	"gate+parent": func(count int) (acquire, stop func()) {
		return gate(count, sluice.Config{Parent: newGate(sluice.Config{Concurrency: 100})})
	},
	"gate+quota": func(count int) (acquire, stop func()) {
		return gate(count, sluice.Config{Limits: []sluice.Limit{{Name: "plenty", Limiter: limits.Must(leaky.New(limits.Rate{Count: 1e6, Per: time.Second, Burst: 1e6}))}}})
	},
}

// rivals are what is compared unless -libs says otherwise.
func rivals() []string {
	return []string{"sluice", "sluice-fine", "xtime", "uber", "uber-strict", "failsafe", "ticker"}
}

// gates are kinds of a gate, plain first, which the others are compared with.
func gates() []string { return []string{"gate", "gate+parent", "gate+quota"} }

func libraryNames() []string { return append(rivals(), gates()...) }

// gate makes a gate of count per second.
func gate(count int, cfg sluice.Config) (acquire, stop func()) {
	cfg.Rate = sluice.Rate{Count: int64(count), Per: time.Second}
	g := newGate(cfg)
	call := func(context.Context) error { return nil }
	return func() { must(g.Do(context.Background(), call)) }, nothing
}

func newGate(cfg sluice.Config) *sluice.Gate {
	g, err := sluice.New(cfg)
	must(err)
	return g
}

func nothing() {}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
