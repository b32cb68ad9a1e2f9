package observe

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/defaults"
	"github.com/sluice-go/sluice/internal/sentence"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

// LoggerConfig configures [NewLogger]. The zero LoggerConfig is valid.
type LoggerConfig struct {
	// Every is the interval between similar lines: those with the same gate, kind and reason. 0
	// means a minute, negative means no limit.
	Every time.Duration

	// Burst is the number of similar lines that may be written together. 0 means 1.
	Burst int64

	// Level returns the level of an event. nil means Warn for pauses and for rejected calls, except
	// those rejected by TryAcquire or given up by their caller; Info for retries, for Resume, and
	// for learned limits; Debug for all else.
	Level func(e sluice.Event) slog.Level
}

// defaultLevel is the default of LoggerConfig.Level.
func defaultLevel(e sluice.Event) slog.Level {
	switch e.Kind {
	case sluice.EventPaused:
		return slog.LevelWarn
	case sluice.EventRejected:
		if e.Reason != "busy" && e.Reason != "canceled" {
			return slog.LevelWarn
		}
	case sluice.EventRetried, sluice.EventResumed, sluice.EventLearned:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// maxLines bounds the memory of a logger, at about 50 bytes for each kind of line. Beyond
// it, new kinds of lines are left out.
const maxLines = 100_000

type logger struct {
	to      *slog.Logger
	level   func(e sluice.Event) slog.Level
	often   *leaky.Keyed[line] // nil means no limit
	leftOut atomic.Uint64
}

// A line identifies similar lines.
type line struct {
	gate   string
	kind   sluice.EventKind
	reason string
}

// NewLogger returns an observer that writes events to a slog.Logger, and limits the rate of similar
// lines:
//
//	WARN gate paused gate=api wait=1m0s until=2026-11-21T12:01:00Z why="429 Too Many Requests"
//	WARN call rejected gate=api n=1 reason=deadline err="sluice: api: would have to wait 1m0s for the pause (429 Too Many Requests), until 12:01:00, 5s were allowed" left_out=999
//	INFO limit learned gate=api now="tracking: 19.4/s, 18.9/s accepted, 20.3/s throttled (measured between throttled calls)"
//
// The learned limit is [sluice.Learned] in one line, with the reason of the change in parentheses.
// left_out is the number of lines, of any kind, that were left out since the previous line.
// Attributes without a value are not written. A slog.Handler that blocks delays calls.
//
// NewLogger panics if to is nil, Burst is negative, Every is positive and less than 1 µs, or Burst
// times Every is more than 146 years.
func NewLogger(to *slog.Logger, options ...LoggerConfig) func(sluice.Event) {
	cfg := defaults.Option("observe.NewLogger", options)
	switch {
	case to == nil:
		panic("observe: NewLogger(nil)")
	case cfg.Burst < 0:
		panic(fmt.Sprintf("observe: NewLogger: negative Burst %d", cfg.Burst))
	}
	l := &logger{to: to, level: cfg.Level}
	if l.level == nil {
		l.level = defaultLevel
	}
	if cfg.Every < 0 {
		return l.observe
	}
	if cfg.Every == 0 {
		cfg.Every = time.Minute
	}
	var err error
	l.often, err = leaky.NewKeyed[line](
		limits.Rate{Count: 1, Per: cfg.Every, Burst: max(1, cfg.Burst)},
		limits.KeyedConfig{MaxKeys: maxLines},
	)
	if err != nil {
		panic(fmt.Sprintf("observe: NewLogger: %d lines together, and one every %v: %v", max(1, cfg.Burst), cfg.Every, err))
	}
	return l.observe
}

// waitOf returns the cause of a wait that begins, and its end, in the words of sluice.Stats.Why.
func waitOf(e sluice.Event, now time.Time) string {
	w := sentence.Wait{For: string(e.LimitedBy), Why: e.Why}
	if e.Wait > 0 {
		w.End = now.Add(e.Wait)
	}
	return w.Clause(now)
}

var messages = map[sluice.EventKind]string{
	sluice.EventQueued:   "call queued",
	sluice.EventAdmitted: "call admitted",
	sluice.EventRejected: "call rejected",
	sluice.EventPaused:   "gate paused",
	sluice.EventResumed:  "gate resumed",
	sluice.EventRetried:  "call to be retried",
	sluice.EventLearned:  "limit learned",
	sluice.EventReleased: "call released",
}

// observe writes e unless its level is disabled or a similar line was just written.
func (l *logger) observe(e sluice.Event) {
	ctx, level := context.Background(), l.level(e)
	if !l.to.Enabled(ctx, level) {
		return
	}
	if l.often != nil && !l.often.Take(line{e.Gate, e.Kind, e.Reason}, 1).Allowed() {
		l.leftOut.Add(1)
		return
	}
	now := time.Now()
	message, known := messages[e.Kind]
	if !known {
		message = string(e.Kind)
	}
	r := slog.NewRecord(now, level, message, 0) // the event does not come from this line
	r.AddAttrs(slog.String("gate", e.Gate))
	if e.N != 0 {
		r.AddAttrs(slog.Int64("n", e.N))
	}
	if e.Reason != "" && e.Kind != sluice.EventLearned { // whose Why contains it
		r.AddAttrs(slog.String("reason", e.Reason))
	}
	if e.Attempt != 0 {
		r.AddAttrs(slog.Int("attempt", e.Attempt))
	}
	if e.Wait != 0 {
		r.AddAttrs(slog.Duration("wait", e.Wait))
		if e.Kind != sluice.EventAdmitted { // which has waited
			r.AddAttrs(slog.Time("until", now.Add(e.Wait)))
		}
	}
	if e.Held != 0 {
		r.AddAttrs(slog.Duration("held", e.Held))
	}
	if e.Err != nil {
		r.AddAttrs(slog.Any("err", e.Err))
	}
	switch {
	case e.Kind == sluice.EventLearned:
		r.AddAttrs(slog.String("now", e.Why))
	case e.LimitedBy != "":
		r.AddAttrs(slog.String("why", "waits "+waitOf(e, now)))
	case e.Why != "":
		r.AddAttrs(slog.String("why", e.Why))
	}
	if n := l.leftOut.Swap(0); n != 0 {
		r.AddAttrs(slog.Uint64("left_out", n))
	}
	_ = l.to.Handler().Handle(ctx, r) // as package slog does
}
