package observe_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/observe"
)

// A page is a handler that keeps what is written, in words.
type page struct {
	least slog.Level

	mu    sync.Mutex
	lines []string
}

func (p *page) Enabled(_ context.Context, l slog.Level) bool { return l >= p.least }
func (p *page) WithAttrs([]slog.Attr) slog.Handler           { return p }
func (p *page) WithGroup(string) slog.Handler                { return p }

func (p *page) Handle(_ context.Context, r slog.Record) error {
	line := fmt.Sprint(r.Level, " ", r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if a.Value.Kind() == slog.KindTime {
			a.Value = slog.DurationValue(a.Value.Time().Sub(r.Time)) // from now
		}
		line += " " + a.String()
		return true
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line)
	return nil
}

func (p *page) want(t *testing.T, lines ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.lines, lines) {
		t.Errorf("written\n\t%s\nwant\n\t%s", strings.Join(p.lines, "\n\t"), strings.Join(lines, "\n\t"))
	}
	p.lines = nil
}

func newLog(t *testing.T, least slog.Level, cfg observe.LoggerConfig) (func(sluice.Event), *page) {
	t.Helper()
	p := &page{least: least}
	return observe.NewLogger(slog.New(p), cfg), p
}

func TestNewLogger_Lines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLog(t, slog.LevelDebug, observe.LoggerConfig{})
		for _, e := range []sluice.Event{
			{Kind: sluice.EventQueued, Gate: "g", N: 1},
			{Kind: sluice.EventAdmitted, Gate: "g", N: 2, Wait: time.Second},
			{Kind: sluice.EventReleased, Gate: "g", N: 2, Held: time.Minute},
			{Kind: sluice.EventRejected, Gate: "g", N: 3, Reason: "busy"},
			{Kind: sluice.EventRejected, Gate: "g", N: 3, Reason: "canceled", Err: context.Canceled},
			{Kind: sluice.EventRejected, Gate: "g", N: 3, Reason: "closed", Err: limits.ErrClosed},
			{Kind: sluice.EventPaused, Gate: "g", Wait: time.Hour, Why: "429"},
			{Kind: sluice.EventResumed, Gate: "g"},
			{Kind: sluice.EventRetried, Gate: "g", Wait: time.Second, Attempt: 2, Err: errors.New("500")},
			{Kind: sluice.EventLearned, Gate: "g", Reason: "first throttled call", Why: "tracking: 19/s (first throttled call)"},
			{Kind: "unknown", Gate: "g"},
		} {
			l(e)
		}
		p.want(t,
			"DEBUG call queued gate=g n=1",
			"DEBUG call admitted gate=g n=2 wait=1s",
			"DEBUG call released gate=g n=2 held=1m0s",
			"DEBUG call rejected gate=g n=3 reason=busy",
			"DEBUG call rejected gate=g n=3 reason=canceled err=context canceled",
			"WARN call rejected gate=g n=3 reason=closed err=sluice: closed",
			"WARN gate paused gate=g wait=1h0m0s until=1h0m0s why=429",
			"INFO gate resumed gate=g",
			"INFO call to be retried gate=g attempt=2 wait=1s until=1s err=500",
			"INFO limit learned gate=g now=tracking: 19/s (first throttled call)",
			"DEBUG unknown gate=g",
		)
	})
}

func TestNewLogger_LimitsSimilarLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLog(t, slog.LevelInfo, observe.LoggerConfig{Every: time.Second, Burst: 2})
		pause := func(gate, why string) {
			l(sluice.Event{Kind: sluice.EventPaused, Gate: gate, Wait: time.Second, Why: why})
		}
		for i := range 5 {
			pause("a", fmt.Sprint(i)) // the same, whatever it says
		}
		pause("b", "x")
		l(sluice.Event{Kind: sluice.EventQueued, Gate: "a"}) // not wanted: not left out either
		l(sluice.Event{Kind: sluice.EventRejected, Gate: "a", Reason: "closed"})
		l(sluice.Event{Kind: sluice.EventRejected, Gate: "a", Reason: "deadline"})
		p.want(t,
			"WARN gate paused gate=a wait=1s until=1s why=0",
			"WARN gate paused gate=a wait=1s until=1s why=1",
			"WARN gate paused gate=b wait=1s until=1s why=x left_out=3",
			"WARN call rejected gate=a reason=closed",
			"WARN call rejected gate=a reason=deadline",
		)
		time.Sleep(time.Second - 1)
		pause("a", "too soon")
		time.Sleep(time.Nanosecond)
		pause("a", "again")
		pause("a", "and again")
		p.want(t, "WARN gate paused gate=a wait=1s until=1s why=again left_out=1")
	})
}

// A gate that refines its pace again and again writes a line a minute; a change for another
// reason is written immediately.
func TestNewLogger_Learned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLog(t, slog.LevelInfo, observe.LoggerConfig{})
		for i := range 61 {
			l(sluice.Event{Kind: sluice.EventLearned, Gate: "g", Reason: "measured", Why: fmt.Sprint(i, "/s")})
			if i == 30 {
				l(sluice.Event{Kind: sluice.EventLearned, Gate: "g", Reason: "latency", Why: "slowed"})
			}
			time.Sleep(time.Second)
		}
		p.want(t,
			"INFO limit learned gate=g now=0/s",
			"INFO limit learned gate=g now=slowed left_out=30",
			"INFO limit learned gate=g now=60/s left_out=29")
	})
}

// The line of a real gate.
func TestNewLogger_LearnedByAGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLog(t, slog.LevelInfo, observe.LoggerConfig{Level: func(e sluice.Event) slog.Level {
			if e.Kind == sluice.EventLearned {
				return slog.LevelInfo
			}
			return slog.LevelDebug
		}})
		g := mustGate(t, sluice.Config{Name: "g", Observer: l})
		for i := range 20 {
			g.Do(bg, func(context.Context) error {
				time.Sleep(100 * time.Millisecond)
				if i == 19 {
					return sluice.ThrottledFor(errors.New("429"), time.Second)
				}
				return nil
			})
		}
		p.want(t, "INFO limit learned gate=g now="+g.Stats().Learned.String())
	})
}

func TestNewLogger_Config(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retry := sluice.Event{Kind: sluice.EventRetried, Gate: "g"}
		l, p := newLog(t, slog.LevelInfo, observe.LoggerConfig{}) // once a minute
		for range 119 {
			l(retry)
			time.Sleep(time.Second)
		}
		p.want(t, "INFO call to be retried gate=g", "INFO call to be retried gate=g left_out=59")

		l, p = newLog(t, slog.LevelInfo, observe.LoggerConfig{Every: -1, Level: func(e sluice.Event) slog.Level {
			return slog.LevelError + slog.Level(e.Attempt)
		}})
		for i := range 3 {
			retry.Attempt = i
			l(retry)
		}
		p.want(t,
			"ERROR call to be retried gate=g",
			"ERROR+1 call to be retried gate=g attempt=1",
			"ERROR+2 call to be retried gate=g attempt=2")
	})
	for _, cfg := range []observe.LoggerConfig{
		{Burst: -1},
		{Every: 1},
		{Every: 365 * 24 * time.Hour, Burst: 150},
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "observe: NewLogger: ") {
					t.Errorf("%+v: panic %q", cfg, text)
				}
			}()
			observe.NewLogger(slog.Default(), cfg)
		}()
	}
	defer func() {
		if r := recover(); r != "observe: NewLogger(nil)" {
			t.Errorf("recovered %v", r)
		}
	}()
	observe.NewLogger(nil)
}

// A gate for each of a million hosts does not make a million lines in memory.
func TestNewLogger_MemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLog(t, slog.LevelInfo, observe.LoggerConfig{})
		const most = 100_000
		for i := range most + 10 {
			l(sluice.Event{Kind: sluice.EventResumed, Gate: fmt.Sprint(i)})
		}
		if n := len(p.lines); n != most {
			t.Errorf("%d lines", n)
		}
		p.lines = nil
		time.Sleep(time.Minute) // they are forgotten
		l(sluice.Event{Kind: sluice.EventResumed, Gate: "new"})
		p.want(t, "INFO gate resumed gate=new left_out=10")
	})
}
