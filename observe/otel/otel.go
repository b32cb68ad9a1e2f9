// Package sluiceotel exports metrics of gates to OpenTelemetry.
//
//	metrics, err := sluiceotel.New(provider, sluiceotel.Config{})
//	…
//	gate, err := sluice.New(sluice.Config{Name: "api", Observer: metrics.Observe})
//
// An [Observer] can serve any number of gates. Its instruments have the attribute
// sluice.gate.name, the Config.Name of the gate:
//
//	sluice.queue.duration   histogram, s: time that granted calls waited
//	sluice.call.duration    histogram, s: time that calls were in flight
//	sluice.active_calls     up-down counter, {call}: calls in flight
//	sluice.admitted_calls   counter, {call}: admitted calls
//	sluice.queued_calls     counter, {call}: calls that had to wait
//	sluice.refused_calls    counter, {call}: refused calls; error.type is the reason, such as "deadline"
//	sluice.retries          counter, {retry}: retries
//	sluice.pauses           counter, {pause}: pauses, and extensions of a pause
//	sluice.learned.changes  counter, {change}: how often a gate changed its mind about the limit of the server; sluice.learned.reason is why
//
// With Config.Gates there are also these, which cost calls nothing:
//
//	sluice.waiting_calls    up-down counter, {call}: calls that wait
//	sluice.oldest_wait      gauge, s: how long the call has waited that has waited longest; the histogram has only calls that do not wait any more
//	sluice.limited_gates    up-down counter, {gate}: 1 while calls wait; sluice.limited_by is what the first of them waits for
//	sluice.rate             gauge, 1/s: rate in force
//	sluice.concurrency      up-down counter, {call}: most calls in flight, in force
//	sluice.paused_gates     up-down counter, {gate}: 1 while the gate is paused
//	sluice.pause.left       gauge, s: time until the pause ends
//	sluice.retry.tokens     up-down counter, {token}: tokens in the retry budget
//
// and, for gates that have learned something about the limit of their server, see
// [sluice.Learned], these. All but the last have the attribute sluice.unit. A value that a
// gate does not have is left out:
//
//	sluice.learned.pace          up-down counter, 1/s: pace at which calls leave
//	sluice.learned.rate          up-down counter, 1/s: rate that the server is believed to grant
//	sluice.learned.proven_rate   up-down counter, 1/s: lower bound of that rate
//	sluice.learned.refuted_rate  up-down counter, 1/s: upper bound of that rate
//	sluice.learned.share         up-down counter, 1: part of the limit that the gate may use, with sluice.Adaptive.Peers
//	sluice.learned.peers         up-down counter, {gate}: gates that share the limit, this one included; 0 while the others cannot be reached
//	sluice.learned.concurrency   up-down counter, {call}: bound of the calls in flight
//	sluice.learned.refusals      up-down counter, {call}: calls that the server refused; it falls when a Keyed forgets a gate
//	sluice.blocked_gates         up-down counter, {gate}: 1 while the server grants nothing
//
// For a sluicehttp.Transport there are also these. The first one needs Config.OnAttempt of
// the transport, the others Config.Limits:
//
//	sluice.responses         counter, {response}: http.response.status_code is the status; without a response error.type is "no_response"
//	sluice.server.limit      gauge: limit that the server publishes; it has sluice.limit.name and sluice.limit.unit
//	sluice.server.remaining  gauge: what remains of it, as of the last response
//
// A call counts as 1 whatever it costs. Gates with the same name are added up. A call that
// need not wait takes about 0.8 µs more, and no memory.
//
// [Spans] writes into the traces of calls what they waited for.
package sluiceotel

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe"
	"github.com/sluice-go/sluice/observe/internal/metrics"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// scope is the name of the instrumentation scope.
const scope = "github.com/sluice-go/sluice/observe/otel"

// Config configures an [Observer]. The zero Config is valid.
type Config struct {
	// MaxGates is how many gates have attributes of their own: the first ones
	// that are used. All others are added up as "other". 0 means 100, and 10,000 is the
	// most. Each gate has about 20 time series; the SDK of OpenTelemetry has a limit of its
	// own for each instrument.
	MaxGates int

	// MaxHistograms is how many of those gates have histograms of their own, of about
	// 20 time series each. Those of all others are added up as "other". 0 means 100.
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
	queue, call        metric.Float64Histogram
	active             metric.Int64UpDownCounter
	admitted, queued   metric.Int64Counter
	refused, retries   metric.Int64Counter
	pauses             metric.Int64Counter
	changes, responses metric.Int64Counter

	table        *observe.Table[*attributes]
	registration metric.Registration // nil without Config.Gates and Config.Limits
}

// attributes are those of one gate, in the slices that measurements take. They are made
// once, so that calls do not allocate.
type attributes struct {
	name    string
	set     metric.MeasurementOption
	add     []metric.AddOption
	record  []metric.RecordOption
	refused map[string][]metric.AddOption      // by reason
	changes *observe.Table[[]metric.AddOption] // by reason, once there was one
	answers *observe.Table[[]metric.AddOption] // by status code, once there was one
}

// New returns an Observer that records to provider. It returns an error if cfg.MaxGates is
// negative or more than 10,000, if cfg.MaxHistograms is negative, or if provider does not create an instrument. It panics if provider is nil.
func New(provider metric.MeterProvider, cfg Config) (*Observer, error) {
	if provider == nil {
		panic("sluiceotel: New(nil)")
	}
	if err := metrics.Check(cfg.MaxGates, cfg.MaxHistograms); err != nil {
		return nil, fmt.Errorf("sluiceotel: %w", err)
	}
	meter := provider.Meter(scope)
	timed := observe.NewTable(cfg.MaxHistograms, recordOptions)
	o := &Observer{table: observe.NewTable(cfg.MaxGates, func(gate string) *attributes {
		return attributesOf(gate, timed.Of(gate))
	})}
	var errs []error
	seconds := metric.WithExplicitBucketBoundaries(metrics.Buckets()...)
	histogram := func(name, what string) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), seconds)
		errs = append(errs, err)
		return h
	}
	counter := func(name, unit, what string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	var err error
	o.queue = histogram("sluice.queue.duration", "Time that granted calls waited.")
	o.call = histogram("sluice.call.duration", "Time that calls were in flight.")
	o.active, err = meter.Int64UpDownCounter("sluice.active_calls",
		metric.WithUnit("{call}"), metric.WithDescription("Calls in flight."))
	errs = append(errs, err)
	o.admitted = counter("sluice.admitted_calls", "{call}", "Admitted calls.")
	o.queued = counter("sluice.queued_calls", "{call}", "Calls that had to wait.")
	o.refused = counter("sluice.refused_calls", "{call}", "Refused calls, by reason.")
	o.retries = counter("sluice.retries", "{retry}", "Retries.")
	o.pauses = counter("sluice.pauses", "{pause}", "Pauses, and extensions of a pause.")
	o.changes = counter("sluice.learned.changes", "{change}", "Changes of what is learned about the limit of the server, by reason.")
	o.responses = counter("sluice.responses", "{response}", "HTTP responses, by status code.")
	if cfg.Gates != nil || cfg.Limits != nil {
		errs = append(errs, o.register(meter, cfg))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(fmt.Errorf("sluiceotel: %w", err), o.Close())
	}
	return o, nil
}

// register creates the instruments for Config.Gates and Config.Limits.
func (o *Observer) register(meter metric.Meter, cfg Config) error {
	gauges, err := newGauges(meter)
	published, failed := newPublished(meter)
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	instruments := []metric.Observable{published.limit, published.remaining}
	for _, g := range gauges {
		instruments = append(instruments, g.Float64Observable)
	}
	o.registration, err = meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		if cfg.Limits != nil {
			published.observe(to, o, cfg.Limits)
		}
		if cfg.Gates == nil {
			return nil
		}
		for name, sum := range observe.Sum(cfg.Gates, func(name string) string { return o.table.Of(name).name }) {
			for _, g := range gauges {
				g.observe(to, sum, o.table.Of(name))
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

// maxReasons is more than there are reasons to learn; further ones are added up as "other".
const maxReasons = 20

// maxCodes is more than a server has; further ones are added up.
const maxCodes = 30

// recordOptions are those with which the histograms of a gate are recorded.
func recordOptions(gate string) []metric.RecordOption {
	return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attribute.String("sluice.gate.name", valid(gate))))}
}

// attributesOf returns the attributes of a gate whose histograms are recorded with record.
func attributesOf(gate string, record []metric.RecordOption) *attributes {
	gate = valid(gate)
	name := attribute.String("sluice.gate.name", gate)
	set := metric.WithAttributeSet(attribute.NewSet(name))
	a := &attributes{
		name:   gate,
		set:    set,
		add:    []metric.AddOption{set},
		record: record,

		refused: make(map[string][]metric.AddOption),
	}
	a.changes = observe.NewTable(maxReasons, func(reason string) []metric.AddOption {
		reason = valid(reason)
		set := attribute.NewSet(name, attribute.String("sluice.learned.reason", reason))
		return []metric.AddOption{metric.WithAttributeSet(set)}
	})
	a.answers = observe.NewTable(maxCodes, func(code string) []metric.AddOption {
		status := attribute.String("error.type", "no_response")
		if n, err := strconv.Atoi(code); err != nil || n > 0 {
			status = attribute.Int("http.response.status_code", n) // 0: other ones
		}
		return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(name, status))}
	})
	for reason := range (sluice.Refusals{}).All() {
		set := attribute.NewSet(name, attribute.String("error.type", reason))
		a.refused[reason] = []metric.AddOption{metric.WithAttributeSet(set)}
	}
	return a
}

// valid returns s without invalid UTF-8, which would lose the whole export.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// ObserveAttempt counts the response of an attempt by its status. It is a
// sluicehttp.Config.OnAttempt.
func (o *Observer) ObserveAttempt(key string, a sluicehttp.Attempt) {
	o.responses.Add(context.Background(), 1, o.table.Of(key).answers.Of(strconv.Itoa(a.Status))...)
}

// Observe records e. It is a [sluice.Observer].
func (o *Observer) Observe(e sluice.Event) {
	ctx := context.Background() // events have no context
	a := o.table.Of(e.Gate)
	switch e.Kind {
	case sluice.EventQueued:
		o.queued.Add(ctx, 1, a.add...)
	case sluice.EventGranted:
		o.admitted.Add(ctx, 1, a.add...)
		o.queue.Record(ctx, e.Wait.Seconds(), a.record...)
		o.active.Add(ctx, 1, a.add...)
	case sluice.EventReleased:
		o.call.Record(ctx, e.Held.Seconds(), a.record...)
		o.active.Add(ctx, -1, a.add...)
	case sluice.EventRefused:
		refused, known := a.refused[e.Reason]
		if !known { // a reason of a later version
			refused = a.refused["other"]
		}
		o.refused.Add(ctx, 1, refused...)
	case sluice.EventRetried:
		o.retries.Add(ctx, 1, a.add...)
	case sluice.EventPaused:
		o.pauses.Add(ctx, 1, a.add...)
	case sluice.EventLearned:
		o.changes.Add(ctx, 1, a.changes.Of(e.Reason)...)
	}
}
