package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
)

// A World is an upstream, the network before it, and the demand: all that is outside
// the strategy under test. Times are in seconds, rates per second. README.md explains
// the fields.
type World struct {
	Name     string    `json:"name"`
	Seconds  float64   `json:"seconds"`
	Best     *float64  `json:"best"` // nil: all that is demanded
	Told     float64   `json:"told"`
	Span     float64   `json:"span"`
	ChangeAt []float64 `json:"change_at,omitempty"`
	Well     float64   `json:"well,omitempty"`
	Dice     uint64    `json:"dice,omitempty"`
	Ideal    float64   `json:"ideal,omitempty"`
	Network  struct {
		RTT    float64 `json:"rtt"`
		Jitter float64 `json:"jitter"`
	} `json:"network"`
	Service   Service    `json:"service"`
	Limiters  []Limiter  `json:"limiters"`
	InFlight  int        `json:"in_flight,omitempty"`
	Server    *Server    `json:"server,omitempty"`
	Hint      Hint       `json:"hint"`
	Noise     Noise      `json:"noise"`
	Strangers *Strangers `json:"strangers,omitempty"`
	Incidents []Incident `json:"incidents,omitempty"`
	Object    *Object    `json:"object,omitempty"`
	Processes int        `json:"processes,omitempty"`
	Stagger   float64    `json:"stagger,omitempty"`
	Demand    Demand     `json:"demand"`
	Cost      *Cost      `json:"cost,omitempty"`
	Clock     float64    `json:"clock,omitempty"`
}

// Service is how long the upstream takes for a call.
type Service struct {
	Kind    string  `json:"kind"`
	Mean    float64 `json:"mean,omitempty"`
	Median  float64 `json:"median,omitempty"`
	Spread  float64 `json:"spread,omitempty"`
	Sigma   float64 `json:"sigma,omitempty"`
	Min     float64 `json:"min,omitempty"`
	Max     float64 `json:"max,omitempty"`
	Base    float64 `json:"base,omitempty"`
	PerCost float64 `json:"per_cost,omitempty"`
}

// A Limiter is one rule by which the upstream refuses calls.
type Limiter struct {
	Kind    string  `json:"kind"` // bucket, window, log or penalty
	Counts  string  `json:"counts,omitempty"`
	Rate    float64 `json:"rate,omitempty"`
	Burst   float64 `json:"burst,omitempty"`
	Count   float64 `json:"count,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Phase   float64 `json:"phase,omitempty"`
	Ban     float64 `json:"ban,omitempty"`
	Steps   []Step  `json:"steps,omitempty"`
}

// A Step is a rate from an instant on.
type Step struct {
	At   float64 `json:"at"`
	Rate float64 `json:"rate"`
}

// Server is an upstream that delays calls instead of refusing them.
type Server struct {
	Slots  int     `json:"slots"`
	Queue  int     `json:"queue"`
	Thrash float64 `json:"thrash"`
}

// Hint is what a refusal says about when to come back.
type Hint struct {
	Kind  string  `json:"kind"` // none, exact, whole, fixed or headers
	Value float64 `json:"value,omitempty"`
}

// Noise is refusals and failures that mean nothing.
type Noise struct {
	Refused float64 `json:"refused,omitempty"`
	Failed  float64 `json:"failed,omitempty"`
}

// Strangers are other clients of the same upstream.
type Strangers struct {
	Rate    float64 `json:"rate"`
	Off     float64 `json:"off"`
	On      float64 `json:"on"`
	Even    bool    `json:"even,omitempty"`    // the calls are evenly spaced
	Workers int     `json:"workers,omitempty"` // instead: so many that each repeat a refused call immediately
}

// An Incident is a time in which the upstream refuses calls although it has room for them, as
// behind a balancer while its servers are replaced.
type Incident struct {
	At         float64 `json:"at"`
	Seconds    float64 `json:"seconds"`
	Refused    float64 `json:"refused"`
	Row        bool    `json:"row,omitempty"` // those of each hundred calls one after the other
	RetryAfter float64 `json:"retry_after,omitempty"`
}

// An Object is what one call of every Of is about, and the upstream refuses a share of these.
type Object struct {
	Of      int     `json:"of"`
	Refused float64 `json:"refused"`
}

// Demand is where calls come from: workers in a closed loop, workers that share items, or
// independent callers.
type Demand struct {
	Workers int    `json:"workers,omitempty"`
	Items   int    `json:"items,omitempty"`
	Poisson []Step `json:"poisson,omitempty"`
}

// Cost is what calls cost, where that is not 1.
type Cost struct {
	Kind  string  `json:"kind"`
	Mu    float64 `json:"mu"`
	Sigma float64 `json:"sigma"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
}

//go:embed worlds.json
var named []byte

// namedWorlds returns the 22 worlds of worlds.json.
func namedWorlds() []*World {
	worlds, err := parseWorlds(named)
	if err != nil {
		panic("league: worlds.json: " + err.Error())
	}
	return worlds
}

// readWorlds returns the worlds of a file.
func readWorlds(file string) ([]*World, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	worlds, err := parseWorlds(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return worlds, nil
}

func parseWorlds(data []byte) ([]*World, error) {
	var worlds []*World
	if err := json.Unmarshal(data, &worlds); err != nil {
		return nil, err
	}
	for i, w := range worlds {
		if err := w.check(); err != nil {
			return nil, fmt.Errorf("world %d (%s): %w", i, w.Name, err)
		}
	}
	return worlds, nil
}

// check returns an error for a world that cannot be run, rather than a figure that
// means nothing.
func (w *World) check() error {
	switch w.Service.Kind {
	case "constant", "uniform", "lognormal", "exponential", "per_cost":
	default:
		return fmt.Errorf("unknown service %q", w.Service.Kind)
	}
	switch w.Hint.Kind {
	case "", "none", "exact", "whole", "fixed", "headers":
	default:
		return fmt.Errorf("unknown hint %q", w.Hint.Kind)
	}
	for _, l := range w.Limiters {
		switch {
		case l.Kind == "bucket" && l.Rate > 0 && l.Burst > 0:
		case l.Kind == "penalty" && l.Rate > 0 && l.Burst > 0:
		case l.Kind == "window" && l.Count > 0 && l.Seconds > 0:
		case l.Kind == "log" && l.Count > 0 && l.Seconds > 0:
		default:
			return fmt.Errorf("impossible limiter %+v", l)
		}
	}
	if w.Cost != nil && w.Cost.Kind != "lognormal" {
		return fmt.Errorf("unknown cost %q", w.Cost.Kind)
	}
	for _, i := range w.Incidents {
		if !(i.Seconds > 0 && i.Refused >= 0 && i.Refused <= 1 && i.RetryAfter >= 0) {
			return fmt.Errorf("impossible incident %+v", i)
		}
	}
	if o := w.Object; o != nil && (o.Of <= 0 || !(o.Refused >= 0 && o.Refused < 1)) {
		return fmt.Errorf("impossible object %+v", *o)
	}
	if s := w.Strangers; s != nil && s.Workers <= 0 && !(s.Rate > 0 && s.Off >= 0 && s.On > 0) {
		return fmt.Errorf("impossible strangers %+v", *s)
	}
	if w.Seconds <= 0 || w.Span <= 0 {
		return fmt.Errorf("lasts %g s, span %g s: want more than 0", w.Seconds, w.Span)
	}
	if w.Demand.Workers <= 0 && len(w.Demand.Poisson) == 0 {
		return fmt.Errorf("no demand")
	}
	return nil
}

// rateIn returns the steps of demand or of a rate that applies at t, and when the next
// one begins.
func rateIn(steps []Step, t float64) (rate, until float64) {
	until = 1e18
	for _, s := range steps {
		if s.At > t {
			return rate, s.At
		}
		rate = s.Rate
	}
	return rate, until
}

// rates returns the rate of a limiter as steps that begin at 0.
func (l *Limiter) rates() []Step {
	return append([]Step{{Rate: l.Rate}}, l.Steps...)
}
