package main

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/sluice-go/sluice/pacer"
)

// libraries make a limiter of count per second and return how to acquire from
// it, and how to be rid of it.
var libraries = map[string]func(count int) (acquire, stop func()){
	"sluice": func(count int) (acquire, stop func()) {
		p := pacer.New(int64(count), time.Second)
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
}

func libraryNames() []string {
	return []string{"sluice", "xtime", "uber", "uber-strict", "failsafe", "ticker"}
}

func nothing() {}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
