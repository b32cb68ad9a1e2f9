// Package sluiceotel exports metrics of gates to OpenTelemetry.
//
//	metrics, err := sluiceotel.New(provider, sluiceotel.Config{})
//	…
//	gate, err := sluice.New(sluice.Config{Name: "api", Observer: metrics.Observe})
//
// The instruments have the attribute sluice.gate.name, the Config.Name of the gate; docs/metrics.md
// lists them. Without Config.Gates they are those of events: waits, calls in flight, rejections and
// retries. With it, which costs calls nothing, they include the current state of the gates.
//
// [Spans] writes the waits of calls into their traces.
package sluiceotel

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// scope is the name of the instrumentation scope.
const scope = "github.com/sluice-go/sluice/observe/otel"

// Config configures an [Observer]. The zero Config is valid.
type Config struct {
	// MaxGates is the number of gates that have their own attributes, about 20 time series each: the
	// first ones that are used. All others are added up as "other". 0 means 100, and 10,000 is the
	// most. The SDK of OpenTelemetry has its own limit for each instrument.
	MaxGates int

	// MaxHistograms is the number of those gates that have their own histograms, likewise. 0 means
	// 100.
	MaxHistograms int

	// Gates, if set, provides the Stats of gates whenever metrics are collected:
	// see observe.Gates and observe.Keyed.
	Gates iter.Seq[sluice.Stats]

	// Limits, if set, provides the limits that servers publish whenever metrics are
	// collected: see sluicehttp.Transport.Limits.
	Limits iter.Seq2[string, []ratelimit.Limit]
}

// An Observer records the events of gates. It is safe for use by multiple goroutines and
// must be made by [New].
type Observer struct {
	instruments  []instrument // for events and responses
	byGate       func(string) *series
	timed        func(string) string // the name under which the histograms of a gate are
	registration metric.Registration // nil without Config.Gates and Config.Limits
}

// New returns an Observer that records to provider. It returns an error if cfg.MaxGates is negative
// or more than 10,000, if cfg.MaxHistograms is negative, or if provider does not create an
// instrument. It panics if provider is nil.
func New(provider metric.MeterProvider, cfg Config) (*Observer, error) {
	if provider == nil {
		panic("sluiceotel: New(nil)")
	}
	if err := check(cfg.MaxGates, cfg.MaxHistograms); err != nil {
		return nil, err
	}
	meter := provider.Meter(scope)
	o := &Observer{timed: observe.ByName(cfg.MaxHistograms, valid)}
	o.byGate = observe.ByName(cfg.MaxGates, o.seriesOf)
	var gauges []gauge
	var server published
	var errs []error
	for _, m := range observe.Metrics() {
		var err error
		asked := cfg.Gates != nil || cfg.Limits != nil
		switch {
		case m.Event == nil && m.Kind != "counter" && !asked:
			continue
		case m.OTel == "server.limit":
			server.limit, err = newGauge(meter, m)
		case m.OTel == "server.remaining":
			server.remaining, err = newGauge(meter, m)
		case m.Totals != nil:
			var g gauge
			g, err = newGauge(meter, m)
			gauges = append(gauges, g)
		default:
			var i instrument
			i, err = newInstrument(meter, m)
			o.instruments = append(o.instruments, i)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("sluiceotel: %w", err)
	}
	if err := o.register(meter, cfg, gauges, server); err != nil {
		return nil, fmt.Errorf("sluiceotel: %w", err)
	}
	return o, nil
}

// maxGates is the most gates that may have time their own series: 10,000 of them are
// 200,000 series, and as many as most servers of metrics take from one program.
const maxGates = 10_000

// check returns an error if the configured numbers of gates cannot be.
func check(gates, histograms int) error {
	switch {
	case gates < 0:
		return fmt.Errorf("sluiceotel: negative MaxGates %d", gates)
	case gates > maxGates:
		return fmt.Errorf("sluiceotel: MaxGates %d: at most %d gates can have metrics of their own, because each has about 20 time series; leave MaxGates at 0, and further gates are added up as \"other\"", gates, maxGates)
	case histograms < 0:
		return fmt.Errorf("sluiceotel: negative MaxHistograms %d", histograms)
	}
	return nil
}

// register has the instruments for Config.Gates and Config.Limits collected.
func (o *Observer) register(meter metric.Meter, cfg Config, gauges []gauge, server published) (err error) {
	if cfg.Gates == nil && cfg.Limits == nil {
		return nil
	}
	instruments := []metric.Observable{server.limit.Float64Observable, server.remaining.Float64Observable}
	for _, g := range gauges {
		instruments = append(instruments, g.Float64Observable)
	}
	o.registration, err = meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		if cfg.Limits != nil {
			server.observe(to, o, cfg.Limits)
		}
		if cfg.Gates == nil {
			return nil
		}
		for name, sum := range observe.Sum(cfg.Gates, func(name string) string { return o.byGate(name).gate }) {
			for _, g := range gauges {
				g.observe(to, sum, o.byGate(name))
			}
		}
		return nil
	}, instruments...)
	return err
}

// Close stops collecting Config.Gates. Events are still recorded.
func (o *Observer) Close() error {
	if o.registration == nil {
		return nil
	}
	return o.registration.Unregister()
}

// valid returns s without invalid UTF-8, which would lose the whole export.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// ObserveAttempt counts the response of an attempt by its status. It is a
// sluicehttp.Config.OnAttempt.
func (o *Observer) ObserveAttempt(key string, a sluicehttp.Attempt) {
	o.byGate(key).responses(strconv.Itoa(a.Status))(1)
}

// Observe records e, for [sluice.Config].Observer.
func (o *Observer) Observe(e sluice.Event) {
	for _, to := range o.byGate(e.Gate).changes[e.Kind] {
		record := to.record
		if to.byReason != nil {
			record = to.byReason(e.Reason)
		}
		record(to.value(e))
	}
}
