package engine

import (
	"fmt"
	"math"
)

// A Story is one thing to see, with the sliders that change it.
type Story struct {
	Key     string
	Title   string
	Text    [2]string // a sentence what happens, and one what to try
	Sliders []Slider

	clients []client
	verdict []string // keys of metrics
	world   func(v map[string]float64) Scenario
}

// A Slider is one number of a story.
type Slider struct {
	Key, Label, Unit string
	Min, Max, Step   float64
	Value            float64 // before it is moved
	Zero             string  // what 0 means, if that is not a number

	Choices []string // their numbers are the values, from 0; none: any number
}

// A Scenario is a server, what is demanded of it, and what the clients are configured with.
type Scenario struct {
	Seconds     float64
	Rate        float64 // of the clients, per second; 0: none
	Burst       int
	Concurrency int // 0: none
	Server      Server
	Demand      Demand
}

// Demand is where calls come from.
type Demand struct {
	Workers int // each makes one call after the other

	// A crowd of callers comes at the same time; those whose call has not left after
	// GiveUp seconds cancel it. Then the patient ones come, Apart seconds apart.
	Crowd           int
	CrowdAt, GiveUp float64
	Patient         int
	Apart           float64
}

// The sliders, as most stories have them.
func rateSlider(value float64) Slider {
	return Slider{Key: "rate", Label: "Rate", Unit: "/s", Min: 1, Max: 50, Step: 1, Value: value}
}

func burstSlider(value float64) Slider {
	return Slider{Key: "burst", Label: "Burst", Min: 1, Max: 20, Step: 1, Value: value}
}

func concurrencySlider(value float64) Slider {
	return Slider{Key: "concurrency", Label: "Concurrency", Min: 1, Max: 40, Step: 1, Value: value}
}

func callersSlider(value float64) Slider {
	return Slider{Key: "callers", Label: "Callers", Min: 1, Max: 60, Step: 1, Value: value}
}

func timeSlider(value float64) Slider {
	return Slider{Key: "time", Label: "Call time", Unit: " s", Min: 0.1, Max: 3, Step: 0.1, Value: value}
}

func limitSlider(value float64) Slider {
	return Slider{Key: "limit", Label: "Upstream limit", Unit: "/s", Min: 0, Max: 50, Step: 1, Value: value, Zero: "none"}
}

func retrySlider(low, value float64) Slider {
	s := Slider{Key: "retry", Label: "Retry-After", Unit: " s", Min: low, Max: 12, Step: 1, Value: value}
	if low == 0 {
		s.Zero = "none"
	}
	return s
}

// Stories are all that there are, in the order in which they are shown.
func Stories() []Story {
	return []Story{semaphoreStory(), cancelStory(), pauseStory(), adaptiveStory(), leagueStory(), freeStory()}
}

func semaphoreStory() Story {
	later := timeSlider(1.2)
	later.Key, later.Label = "later", "Call time from 15 s on"
	return Story{
		Key: "semaphore", Title: "A semaphore is not a rate",
		Text: [2]string{
			"A semaphore lets a call leave whenever another one is done, so quick calls leave too often for the server, and slow ones less often than they may.",
			"A pacer keeps the rate but lets calls pile up in flight; a gate keeps both limits, so try other call times and see which of the three you can predict.",
		},
		Sliders: []Slider{concurrencySlider(4), rateSlider(8), burstSlider(1), callersSlider(16), timeSlider(0.2), later, limitSlider(10)},
		clients: []client{onlySemaphore, onlyPacer, gate},
		verdict: []string{"served", "refused", "busiest", "inflight"},
		world: func(v map[string]float64) Scenario {
			s := world(v, 30)
			s.Demand.Workers = int(v["callers"])
			s.Server.Takes = []Step{{0, v["time"] - roundTrip}, {15, v["later"] - roundTrip}}
			return s
		},
	}
}

func cancelStory() Story {
	crowd := callersSlider(40)
	crowd.Label = "Callers that give up"
	return Story{
		Key: "cancel", Title: "Cancelled waiters",
		Text: [2]string{
			"At 2 s a crowd of callers comes, most of them give up, and then ten patient callers come.",
			"x/time/rate has promised slots to callers that were cancelled and gets only the last one back, so the patient ones wait for nobody; with context.WithTimeout it knows beforehand who gives up, rejects them immediately, and is as quick as a gate, in which the others move up either way.",
		},
		Sliders: []Slider{rateSlider(5), burstSlider(1), concurrencySlider(20), crowd,
			{Key: "giveup", Label: "They give up after", Unit: " s", Min: 0.5, Max: 6, Step: 0.5, Value: 2}, timeSlider(0.3)},
		clients: []client{usual, usualDeadline, gate},
		verdict: []string{"patient", "served"},
		world: func(v map[string]float64) Scenario {
			s := world(v, 20)
			s.Demand = Demand{Crowd: int(v["callers"]), CrowdAt: 2, GiveUp: v["giveup"], Patient: 10, Apart: 0.05}
			return s
		},
	}
}

func pauseStory() Story {
	return Story{
		Key: "pause", Title: "A pause that ends evenly",
		Text: [2]string{
			"At 8 s the server begins to refuse all calls, with a Retry-After.",
			"Without a gate each caller has to be refused before it knows, and all of them come back together; in a gate one refusal pauses all callers, and afterwards they leave one interval apart, without the burst that the others have saved, so it serves fewer.",
		},
		Sliders: []Slider{rateSlider(10), burstSlider(10), concurrencySlider(20), callersSlider(30), timeSlider(0.3), retrySlider(1, 6), limitSlider(12)},
		clients: []client{usual, gate},
		verdict: []string{"served", "refused", "after"},
		world: func(v map[string]float64) Scenario {
			s := world(v, 30)
			s.Demand.Workers = int(v["callers"])
			s.Server.Closed = [2]float64{8, 8 + v["retry"]}
			return s
		},
	}
}

func adaptiveStory() Story {
	guess := rateSlider(20) // of all fixed ones nearly the best
	guess.Label = "Your guess, for x/time/rate"
	limit, later := limitSlider(8), limitSlider(20)
	limit.Min, limit.Zero = 1, ""
	later.Min, later.Zero, later.Key, later.Label = 1, "", "later", "Upstream limit from 30 s on"
	return Story{
		Key: "adaptive", Title: "A gate finds an unknown limit",
		Text: [2]string{
			"The server grants a rate that it does not tell, and changes it half way.",
			"x/time/rate keeps the rate that it was given, and with the higher limit it serves most and is refused most; a gate without a rate measures what is granted between refusals, and follows.",
		},
		Sliders: []Slider{limit, later, guess, callersSlider(20), timeSlider(0.2)},
		clients: []client{usualRate, gateWithoutRate},
		verdict: []string{"served", "refused"},
		world: func(v map[string]float64) Scenario {
			v["burst"] = 1
			s := world(v, 60)
			s.Demand.Workers = int(v["callers"])
			s.Server.Limit = []Step{{0, v["limit"]}, {30, v["later"]}}
			s.Server.Hint = false
			return s
		},
	}
}

// leagueStory is two worlds of bench/league: the same numbers.
func leagueStory() Story {
	return Story{
		Key: "league", Title: "A world of the league",
		Text: [2]string{
			"The league plays 22 worlds with 17 strategies; these are two of them: “slow” grants one call each two seconds for a quarter of an hour, “steps” 20 per second, then 100, then 30.",
			"x/time/rate is told a rate, and a gate with no configuration is told nothing; choose the rate with which x/time/rate serves most, which somebody has to find, the rate at the beginning, half of it or twice as much (“steps” is 41,000 calls and takes some seconds).",
		},
		Sliders: []Slider{
			{Key: "world", Label: "World", Max: 1, Choices: []string{"slow", "steps"}},
			{Key: "told", Label: "x/time/rate is told", Max: 3, Value: 3,
				Choices: []string{"half the rate", "the rate", "twice the rate", "the best fixed rate"}},
		},
		clients: []client{usualRate, gateUnconfigured},
		verdict: []string{"served", "refused"},
		world: func(v map[string]float64) Scenario {
			i := int(v["world"])
			s := [2]func() Scenario{slowWorld, stepsWorld}[i]()
			s.Rate = [4]float64{s.Rate / 2, s.Rate, s.Rate * 2, bestFixed[i]}[int(v["told"])]
			return s
		},
	}
}

// bestFixed is the rate with which x/time/rate serves most calls in each of the two worlds:
// TestBestFixed tries others. In “slow” that is a little less than the rate, because a call
// whose way takes a little less time than that of the one before comes too early; in “steps”
// it is the highest of the three.
var bestFixed = [2]float64{0.488, 100}

func slowWorld() Scenario {
	return Scenario{
		Seconds: 900, Rate: 0.5, Burst: 1, Demand: Demand{Workers: 8},
		Server: Server{
			Limit: []Step{{0, 0.5}}, Burst: 1,
			RTT: 0.2, Jitter: 0.05, Takes: []Step{{0, 0.1}}, Spread: 0.1,
		},
	}
}

func stepsWorld() Scenario {
	return Scenario{
		Seconds: 600, Rate: 20, Burst: 1, Demand: Demand{Workers: 64},
		Server: Server{
			Limit: []Step{{0, 20}, {200, 100}, {400, 30}}, Burst: 20,
			RTT: 0.04, Jitter: 0.01, Takes: []Step{{0, 0.03}}, Spread: 0.1,
		},
	}
}

func freeStory() Story {
	rate, concurrency := rateSlider(10), concurrencySlider(8)
	rate.Min, rate.Zero = 0, "none"
	concurrency.Min, concurrency.Zero = 0, "none"
	return Story{
		Key: "free", Title: "All sliders",
		Text: [2]string{
			"Everything at once: callers that make one call after the other, a server with a limit, and at 10 s, if you set a Retry-After, a pause.",
			"Set the rate to none to see how the gate finds the limit by itself.",
		},
		Sliders: []Slider{rate, burstSlider(1), concurrency, callersSlider(20), timeSlider(0.5), retrySlider(0, 0), limitSlider(8)},
		clients: []client{usual, gate},
		verdict: []string{"served", "refused", "busiest", "even"},
		world: func(v map[string]float64) Scenario {
			s := world(v, 30)
			s.Demand.Workers = int(v["callers"])
			if v["retry"] > 0 {
				s.Server.Closed = [2]float64{10, 10 + v["retry"]}
			}
			return s
		},
	}
}

// roundTrip is the part of a call's time that a rejected call takes as well.
const roundTrip = 0.04

// world returns the scenario of sliders that mean the same in all stories.
func world(v map[string]float64, length float64) Scenario {
	s := Scenario{
		Seconds: length, Rate: v["rate"], Burst: max(1, int(v["burst"])), Concurrency: int(v["concurrency"]),
		Server: Server{RTT: roundTrip, Takes: []Step{{0, v["time"] - roundTrip}}, Hint: true},
	}
	if v["limit"] > 0 {
		s.Server.Limit = []Step{{0, v["limit"]}}
	}
	return s
}

// Scenario returns the world of a story with these values of its sliders; a slider that
// has none is where it is at the beginning. It returns an error for a value that a slider
// cannot have.
func (s *Story) Scenario(values map[string]float64) (Scenario, error) {
	v := map[string]float64{}
	for _, slider := range s.Sliders {
		x, ok := values[slider.Key]
		if !ok {
			x = slider.Value
		}
		if !(x >= slider.Min && x <= slider.Max) {
			return Scenario{}, fmt.Errorf("%s is %g: want %g to %g", slider.Label, x, slider.Min, slider.Max)
		}
		if len(slider.Choices) > 0 {
			x = math.Trunc(x)
		}
		v[slider.Key] = x
	}
	return s.world(v), nil
}
