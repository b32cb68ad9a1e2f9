package main

import (
	"net/http"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/sluicegrpc"
	"github.com/sluice-go/sluice/sluicehttp"
)

// ofSluice returns the clients that are Sluice with a configuration of its gate.
func ofSluice(gate func(s *server) sluice.Config) client {
	return client{http: overHTTP(func(s *server) sluicehttp.Config { return sluicehttp.Config{Gate: gate(s)} }), grpc: overGRPC(gate)}
}

func overHTTP(config func(s *server) sluicehttp.Config) func(*target) (caller, func() string) {
	return func(t *target) (caller, func() string) {
		cfg := config(t.server)
		if t.server.declared {
			cfg.Idempotent = func(*http.Request, []byte) bool { return true }
		}
		cfg.Gate.Observer = t.observer()
		transport := must(sluicehttp.New(t.tap, cfg))
		t.cleanup(transport.Close)
		return t.get(&http.Client{Transport: transport}), func() (said string) {
			transport.Stats(func(_ string, st sluicehttp.Stats) bool {
				said = st.String()
				return true
			})
			return said
		}
	}
}

func overGRPC(gate func(s *server) sluice.Config) func(*target) (caller, func() string) {
	return func(t *target) (caller, func() string) {
		cfg := sluicegrpc.Config{Gate: gate(t.server)}
		cfg.Gate.Observer = t.observer()
		i := must(sluicegrpc.New(cfg))
		return t.invoke(i.Unary), func() (said string) {
			i.Gates().Stats(func(_ string, st sluice.Stats) bool {
				said = st.String()
				return true
			})
			return said
		}
	}
}

// observer traces what a gate learns.
func (t *target) observer() func(sluice.Event) {
	if t.trace == nil {
		return nil
	}
	return func(e sluice.Event) {
		if e.Kind == sluice.EventLearned {
			t.trace(e.Why)
		}
	}
}

// told is the limit of a server as the configuration of a gate.
func told(s *server) sluice.Config {
	switch l := s.limit; l.kind {
	case inFlight:
		return sluice.Config{Concurrency: int64(l.n)}
	case bucket:
		if s.bursts {
			// A rate of a gate begins with none of its burst, a leaky bucket with all of it.
			return sluice.Config{Limits: []sluice.Limit{{Name: "told", Limiter: must(leaky.New(perHour(l)))}}}
		}
		// Without a burst: it is rarely known, and x/time/rate gets none either.
		if l.rate != float64(int64(l.rate)) {
			return sluice.Config{Rate: sluice.Rate{Count: perHour(l).Count, Per: time.Hour}}
		}
		return sluice.Config{Rate: sluice.Rate{Count: int64(l.rate), Per: time.Second}}
	case open, down:
		return sluice.Config{}
	default:
		return sluice.Config{Rate: sluice.Rate{Count: int64(l.n), Per: seconds(l.per)}}
	}
}

// perHour returns the rate and the burst of a bucket.
func perHour(l limit) sluice.Rate {
	return sluice.Rate{Count: int64(l.rate*3600 + .5), Per: time.Hour, Burst: int64(l.burst)}
}
