package sluiceotel

import (
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// Spans returns an observer that writes into the trace of a call why it took so long: an event of
// the span in the context of the call, if that span is recorded.
//
//	sluice.waited    it may start, but had to wait: message is such as "waited 3.2s for the rate"
//	sluice.rejected  it may not start: message is the error, error.type the reason, such as "deadline"
//	sluice.retried   another attempt follows: message is such as "attempt 2 in 1.5s: 503 Service Unavailable"
//
// All have the attribute sluice.gate.name. The first one also has sluice.wait, in seconds, and
// sluice.limited_by, the cause when the call began to wait; of several calls with one span, the last
// names it. Calls that need not wait add nothing, and no span is made. The observer can serve any
// number of gates:
//
//	Observer: observe.Multi(metrics.Observe, sluiceotel.Spans())
func Spans() func(sluice.Event) { return new(spans).observe }

// spans has the causes of waits of the calls that have a span.
type spans struct{ waiting sync.Map } // of limits.Cause, by place

// A place is where a call waits.
type place struct {
	trace trace.TraceID
	span  trace.SpanID
	gate  string
}

func (s *spans) observe(e sluice.Event) {
	if e.Context == nil {
		return
	}
	span := trace.SpanFromContext(e.Context)
	in := span.SpanContext()
	if !in.IsValid() {
		return
	}
	at := place{in.TraceID(), in.SpanID(), e.Gate}
	if !span.IsRecording() {
		// It may have ended while the call waited.
		if e.Kind == sluice.EventAdmitted || e.Kind == sluice.EventRejected {
			s.take(at)
		}
		return
	}
	switch e.Kind {
	case sluice.EventQueued:
		s.waiting.Store(at, e.LimitedBy)
	case sluice.EventAdmitted:
		by := s.take(at)
		if e.Wait > 0 {
			add(span, "sluice.waited", e.Gate, waited(e.Wait, by),
				attribute.Float64("sluice.wait", e.Wait.Seconds()), attribute.String("sluice.limited_by", string(by)))
		}
	case sluice.EventRejected:
		s.take(at)
		add(span, "sluice.rejected", e.Gate, fmt.Sprint(e.Err), attribute.String("error.type", e.Reason))
	case sluice.EventRetried:
		add(span, "sluice.retried", e.Gate, fmt.Sprintf("attempt %d in %v: %v", e.Attempt+1, roughly(e.Wait), e.Err))
	}
}

// take removes and returns the cause for which a call waited, if that is known.
func (s *spans) take(at place) limits.Cause {
	by, ok := s.waiting.LoadAndDelete(at)
	if !ok {
		return ""
	}
	return by.(limits.Cause)
}

func add(span trace.Span, name, gate, message string, more ...attribute.KeyValue) {
	span.AddEvent(name, trace.WithAttributes(append(more,
		attribute.String("sluice.gate.name", valid(gate)), attribute.String("message", valid(message)))...))
}

// waited reports the causes for which a call waited, with the times.
func waited(d time.Duration, by limits.Cause) string {
	text := "waited " + roughly(d).String()
	if by != "" {
		text += " for the " + string(by)
	}
	return text
}

// roughly rounds d for people.
func roughly(d time.Duration) time.Duration {
	for unit := time.Microsecond; unit < time.Second; unit *= 10 {
		if d < 100*unit {
			return d.Round(unit)
		}
	}
	return d.Round(100 * time.Millisecond)
}
