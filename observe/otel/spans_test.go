package sluiceotel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	sluiceotel "github.com/sluice-go/sluice/observe/otel"
)

// traced calls f in a span and returns the events of that span: name, gate and message.
func traced(t *testing.T, f func(context.Context)) (lines []string) {
	t.Helper()
	ended := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended))
	ctx, span := provider.Tracer("test").Start(bg, "work")
	f(ctx)
	span.End()
	for _, s := range ended.Ended() {
		for _, e := range s.Events() {
			set := attribute.NewSet(e.Attributes...)
			message, _ := set.Value("message")
			gate, _ := set.Value("sluice.gate.name")
			lines = append(lines, fmt.Sprintf("%s %s: %s", e.Name, gate.AsString(), message.AsString()))
		}
	}
	return lines
}

func sleep(d time.Duration) func(context.Context) error {
	return func(context.Context) error { time.Sleep(d); return nil }
}

// What a call waits for: each kind of limit, alone and in pairs.
func TestSpans(t *testing.T) {
	second := sluice.Rate{Count: 1, Per: 3200 * time.Millisecond}
	for _, tt := range []struct {
		name string
		cfg  sluice.Config
		do   func(context.Context, *sluice.Gate)
		want []string
	}{
		{"rate", sluice.Config{Rate: second}, func(ctx context.Context, g *sluice.Gate) {
			g.Do(ctx, sleep(0)) // need not wait
			g.Do(ctx, sleep(0))
		}, []string{"sluice.waited api: waited 3.2s for the rate"}},
		{"concurrency", sluice.Config{Concurrency: 1}, func(ctx context.Context, g *sluice.Gate) {
			go g.Do(bg, sleep(1500*time.Microsecond)) // no span
			synctest.Wait()
			g.Do(ctx, sleep(0))
		}, []string{"sluice.waited api: waited 1.5ms for the concurrency"}},
		{"pause", sluice.Config{Rate: second}, func(ctx context.Context, g *sluice.Gate) {
			g.PauseUntil(time.Now().Add(time.Minute), "maintenance")
			g.Do(ctx, sleep(0))
		}, []string{"sluice.waited api: waited 1m0s for the pause"}},
		{"limit", sluice.Config{Limits: []sluice.Limit{{Name: "daily"}}}, func(ctx context.Context, g *sluice.Gate) {
			g.Do(ctx, sleep(0))
			g.Do(ctx, sleep(0))
		}, []string{"sluice.waited api: waited 3.2s for the limit daily"}},
		{"refused", sluice.Config{Rate: second}, func(ctx context.Context, g *sluice.Gate) {
			g.Do(ctx, sleep(0))
			g.AcquireWithin(ctx, 1, time.Second)
		}, []string{"sluice.rejected api: sluice: api: would have to wait 3.2s for the rate of 1/3.2s, 1s were allowed"}},
		{"retried", sluice.Config{}, func(ctx context.Context, g *sluice.Gate) {
			n := 0
			sluice.Retry(ctx, g, func(context.Context) error {
				if n++; n == 1 {
					return errors.New("503 Service Unavailable")
				}
				return nil
			}, sluice.RetryPolicy{Backoff: sluice.Constant(1500 * time.Millisecond)})
		}, []string{"sluice.retried api: attempt 2 in 1.5s: 503 Service Unavailable"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for i := range tt.cfg.Limits { // its clock is that of the bubble
					tt.cfg.Limits[i].Limiter = limits.Must(leaky.New(second))
				}
				tt.cfg.Name, tt.cfg.Observer = "api", sluiceotel.Spans()
				g := mustGate(t, tt.cfg)
				if got := traced(t, func(ctx context.Context) { tt.do(ctx, g) }); !slices.Equal(got, tt.want) {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// A parent with the same observer says what its part of the wait was for.
func TestSpans_OfAParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observe := sluiceotel.Spans()
		parent := mustGate(t, sluice.Config{Name: "all", Rate: sluice.Rate{Count: 1, Per: time.Second}, Observer: observe})
		g := mustGate(t, sluice.Config{Name: "one", Parent: parent, Observer: observe})
		got := traced(t, func(ctx context.Context) {
			g.Do(ctx, sleep(0))
			g.Do(ctx, sleep(0))
		})
		if want := []string{"sluice.waited all: waited 1s for the rate", "sluice.waited one: waited 1s"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// What a call waits for is discarded when it no longer waits, also if its span has ended by then.
func TestSpans_EndedMeanwhile(t *testing.T) {
	for _, end := range []sluice.Event{{Kind: sluice.EventAdmitted, Wait: time.Second}, {Kind: sluice.EventRejected}} {
		observe := sluiceotel.Spans()
		span := &fakeSpan{recording: true}
		ctx := trace.ContextWithSpan(bg, span)
		send := func(e sluice.Event) { e.Context, e.Gate = ctx, "api"; observe(e) }
		send(sluice.Event{Kind: sluice.EventQueued, LimitedBy: limits.ByRate})
		span.recording = false
		send(end)
		span.recording = true // so that what is left can be seen
		send(sluice.Event{Kind: sluice.EventAdmitted, Wait: time.Second})
		if want := []string{"waited 1s"}; !slices.Equal(span.messages, want) {
			t.Errorf("after %v: got %q, want %q", end.Kind, span.messages, want)
		}
	}
}

// A fakeSpan begins and ends to record as a test wants it.
type fakeSpan struct {
	noop.Span
	recording bool
	messages  []string
}

func (s *fakeSpan) IsRecording() bool { return s.recording }

func (s *fakeSpan) SpanContext() trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})
}

func (s *fakeSpan) AddEvent(_ string, options ...trace.EventOption) {
	cfg := trace.NewEventConfig(options...)
	set := attribute.NewSet(cfg.Attributes()...)
	message, _ := set.Value("message")
	s.messages = append(s.messages, message.AsString())
}

// Baggage is what the call has, and a call without a recorded span costs nothing.
func TestSpans_LeavesTheContextAlone(t *testing.T) {
	observe := sluiceotel.Spans()
	member, _ := baggage.NewMember("user", "42")
	bag, _ := baggage.New(member)
	g := mustGate(t, sluice.Config{Observer: observe})
	traced(t, func(ctx context.Context) {
		g.Do(baggage.ContextWithBaggage(ctx, bag), func(ctx context.Context) error {
			if got := baggage.FromContext(ctx).String(); got != "user=42" {
				t.Errorf("baggage %q", got)
			}
			return nil
		})
	})
	if n := testing.AllocsPerRun(100, func() {
		observe(sluice.Event{Kind: sluice.EventQueued, Context: bg, LimitedBy: limits.ByRate})
		observe(sluice.Event{Kind: sluice.EventAdmitted, Context: bg, Wait: time.Second})
		observe(sluice.Event{Kind: sluice.EventRejected})
	}); n > 0 {
		t.Errorf("%v allocations without a span", n)
	}
}
