package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
)

// drawWorlds draws random worlds, for which nothing was tuned. README.md has the ranges; no world is
// dropped by hand.
func drawWorlds(n int, seed uint64) []*World {
	worlds := make([]*World, n)
	for i := range worlds {
		// A generator for each world: the first n worlds of a seed are always the same.
		d := &draw{r: rand.New(rand.NewPCG(seed, uint64(i)))}
		worlds[i] = d.world(i)
	}
	return worlds
}

func printWorlds(out io.Writer, worlds []*World) error {
	e := json.NewEncoder(out)
	e.SetIndent("", " ")
	return e.Encode(worlds)
}

// A draw is one world in the making.
type draw struct {
	r    *rand.Rand
	w    *World
	rate float64 // nominal, in calls per second
	lag  float64 // mean time from leaving to the answer
}

// between draws log-uniformly.
func (d *draw) between(least, most float64) float64 {
	return least * math.Exp(d.r.Float64()*math.Log(most/least))
}

func pick[T any](r *rand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }

func clamp(x, least, most float64) float64 { return math.Max(least, math.Min(most, x)) }

func (d *draw) world(i int) *World {
	d.w = &World{Limiters: []Limiter{}}
	w := d.w
	d.rate = d.between(.2, 800)
	w.Network.RTT = d.between(.003, .5)
	w.Network.Jitter = w.Network.RTT * d.r.Float64() / 2
	w.Service = Service{Kind: "lognormal", Mean: d.between(.003, math.Min(5, 1000/d.rate)), Sigma: d.r.Float64() * .8}
	d.lag = w.Network.RTT + w.Network.Jitter/2 + w.Service.Mean
	w.Seconds = clamp(2500/d.rate, 200, 1500)
	w.Span = math.Max(5, 40/d.rate)
	w.Told = d.rate
	w.Noise.Failed = pick(d.r, 0, 0, .003, .01, .02)
	w.Noise.Refused = pick(d.r, 0, 0, 0, .002, .01)
	w.Hint = pick(d.r, Hint{Kind: "none"}, Hint{Kind: "none"}, Hint{Kind: "none"}, Hint{Kind: "exact"},
		Hint{Kind: "whole"}, Hint{Kind: "fixed", Value: float64(1 + d.r.IntN(5))}, Hint{Kind: "headers"})
	if w.Hint.Kind == "fixed" {
		w.Noise.Refused = 0 // a strategy that respects a pause for each of them would make no progress
	}
	kinds := []func(){}
	for _, k := range []struct {
		share int
		draw  func()
	}{
		{26, d.bucket}, {14, d.window}, {14, d.log}, {14, d.cap}, {12, d.steps},
		{5, d.penalty}, {5, d.server}, {5, d.strangers}, {5, d.cost},
	} {
		for range k.share {
			kinds = append(kinds, k.draw)
		}
	}
	pick(d.r, kinds...)()
	w.Name = fmt.Sprintf("r%d-%s", i, w.Name)
	w.Told = clamp(w.Told, 1e-3, 1e9)
	return w
}

// demand sets the number of workers: enough for the rate, and up to eight times that.
func (d *draw) demand(factor float64) {
	need := d.rate * d.lag * factor
	d.w.Demand.Workers = int(math.Max(clamp(need*d.between(1.3, 8), 4, 800), 1.25*need+2))
}

func (d *draw) best(x float64) { d.w.Best = &x }

// burst draws what a bucket holds, in calls: at least as many as the jitter of the network
// brings together, for no client can use a smaller one.
func (d *draw) burst() float64 {
	least := 1 + math.Ceil(d.rate*d.w.Network.Jitter)
	return math.Max(least, math.Round(d.rate*d.between(.02, 10)))
}

func (d *draw) bucket() {
	b := d.burst()
	d.w.Limiters = []Limiter{{Kind: "bucket", Rate: d.rate, Burst: b}}
	d.w.Name = fmt.Sprintf("bucket-%.3g/s", d.rate)
	d.best(d.rate*(d.w.Seconds-d.lag) + b)
	d.demand(1)
}

func (d *draw) window() {
	w := d.w
	length := pick(d.r, 1., 5., 10., 30., 60., 120.)
	count := math.Max(2, math.Round(d.rate*length))
	phase := d.r.Float64() * length
	d.rate = count / length
	w.Told = d.rate
	w.Seconds = math.Max(w.Seconds, 10*length)
	w.Span = math.Max(w.Span, length)
	w.Limiters = []Limiter{{Kind: "window", Count: count, Seconds: length, Phase: phase}}
	w.Clock = d.r.Float64() * 60
	if d.r.IntN(2) == 0 { // aligned with the client's clock, but for what clocks are off by
		w.Clock = phase + d.r.Float64()*.8 - .4
	}
	w.Name = fmt.Sprintf("window-%.0f/%.0fs", count, length)
	d.best(count * (math.Floor((w.Seconds-d.lag+phase)/length) + 1))
	d.demand(1)
}

func (d *draw) log() {
	w := d.w
	length := pick(d.r, 1., 10., 60., 60.)
	count := math.Max(2, math.Round(d.rate*length))
	d.rate = count / length
	w.Told = d.rate
	w.Seconds = math.Ceil(math.Max(w.Seconds, 10*length)/length) * length
	w.Span = math.Max(w.Span, length)
	w.Limiters = []Limiter{{Kind: "log", Count: count, Seconds: length}}
	w.Name = fmt.Sprintf("log-%.0f/%.0fs", count, length)
	d.best(count * w.Seconds / length)
	d.demand(1)
}

func (d *draw) cap() {
	w := d.w
	c := math.Round(d.between(2, 64))
	w.InFlight = int(c)
	w.Hint = Hint{Kind: "none"}
	w.Told = c / d.lag
	w.Seconds = clamp(4000/w.Told, 100, 1500)
	w.Span = math.Max(5, 40/w.Told)
	w.Demand.Workers = int(3*c + 4)
	w.Name = fmt.Sprintf("cap-%.0f", c)
	d.best(w.Told * w.Seconds)
}

func (d *draw) steps() {
	w := d.w
	b := d.burst()
	up, down := d.between(.2, 5), d.between(.2, 5)
	first, second := w.Seconds/3, w.Seconds*2/3
	w.Limiters = []Limiter{{Kind: "bucket", Rate: d.rate, Burst: b, Steps: []Step{{first, d.rate * up}, {second, d.rate * down}}}}
	w.ChangeAt = []float64{first, second}
	w.Name = fmt.Sprintf("steps-%.3g/s×%.2g×%.2g", d.rate, up, down)
	d.best(d.rate*w.Seconds/3*(1+up+down) - d.rate*down*d.lag + b)
	d.demand(math.Max(1, math.Max(up, down)))
}

func (d *draw) penalty() {
	w := d.w
	d.rate = d.between(.2, 50)
	b, ban := d.burst(), d.between(5, 60)
	w.Told = d.rate
	w.Seconds = clamp(4000/d.rate, 600, 1500)
	w.Span = math.Max(10, 40/d.rate)
	w.Limiters = []Limiter{{Kind: "penalty", Rate: d.rate, Burst: b, Ban: ban}}
	w.Noise.Refused = 0
	w.Name = fmt.Sprintf("penalty-%.3g/s-%.0fs", d.rate, ban)
	d.best(d.rate*(w.Seconds-d.lag) + b)
	d.demand(1)
}

func (d *draw) server() {
	w := d.w
	slots := math.Round(d.between(1, 32))
	w.Service = pick(d.r, w.Service, Service{Kind: "exponential", Min: w.Service.Mean / 5, Mean: w.Service.Mean})
	w.Service.Mean = math.Min(w.Service.Mean, 1)
	w.Server = &Server{Slots: int(slots), Queue: int(slots * d.between(4, 20)), Thrash: pick(d.r, 0, .5, 1)}
	w.Hint = Hint{Kind: "none"}
	w.Told = slots / w.Service.Mean
	w.Seconds = clamp(4000/w.Told, 120, 900)
	w.Span = math.Max(5, 40/w.Told)
	w.Demand.Workers = int(slots*d.between(2, 20)) + 1
	lag := w.Network.RTT + w.Network.Jitter/2
	enough := float64(w.Demand.Workers) / (lag + w.Service.Mean)
	w.Name = fmt.Sprintf("server-%.0f-thrash-%g", slots, w.Server.Thrash)
	d.best(math.Min(w.Told, enough) * w.Seconds)
}

func (d *draw) strangers() {
	w := d.w
	d.rate = d.between(5, 200)
	b := d.burst()
	s := &Strangers{Rate: d.rate * (.2 + .6*d.r.Float64()), Off: 20 + 40*d.r.Float64(), On: 20 + 40*d.r.Float64()}
	w.Strangers = s
	w.Told = d.rate
	w.Seconds = 400
	w.Span = math.Max(5, 40/d.rate)
	w.Limiters = []Limiter{{Kind: "bucket", Rate: d.rate, Burst: b}}
	w.Service.Mean = math.Min(w.Service.Mean, 1)
	d.lag = w.Network.RTT + w.Network.Jitter/2 + w.Service.Mean
	w.Name = fmt.Sprintf("strangers-%.3g/s", d.rate)
	d.best((d.rate-s.Rate*s.On/(s.On+s.Off))*(w.Seconds-d.lag) + b)
	d.demand(1)
}

func (d *draw) cost() {
	w := d.w
	c := &Cost{Kind: "lognormal", Mu: math.Log(d.between(10, 2000)), Sigma: .2 + .8*d.r.Float64(), Min: 1}
	c.Max = math.Ceil(math.Exp(c.Mu) * 10)
	w.Cost = c
	mean := math.Exp(c.Mu + c.Sigma*c.Sigma/2)
	rate := d.rate * mean
	b := math.Max(2*c.Max, math.Round(rate*d.between(.02, 10)))
	w.Told = rate
	w.Limiters = []Limiter{{Kind: "bucket", Rate: rate, Burst: b}}
	w.Name = fmt.Sprintf("cost-%.3g/s", rate)
	d.best(rate*(w.Seconds-d.lag) + b)
	d.demand(1)
}
