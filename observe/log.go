package observe

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
)

// LogConfig is what [NewLog] may be told. Every field may be left out.
type LoggerConfig struct {
	// Every is how often a line may be written, in the long run, that differs
	// from others by its numbers and texts at most. 0 means once a minute,
	// negative as often as it happens.
	Every time.Duration

	// Burst is how many of such lines may be written together. 0 means 1.
	// Negative is an error.
	Burst int64

	// Level says how important an event is. nil means Level.
	Level func(e sluice.Event) slog.Level
}

// Level is how important a [Log] takes events to be unless it is told. Most
// lines should not be there, so only these are above Debug: Warn for a pause and
// for calls that were refused, except by TryAcquire or because their caller
// gave up; Info for a retry and for the end of a pause by Resume.
func Level(e sluice.Event) slog.Level {
	switch e.Kind {
	case sluice.EventPaused:
		return slog.LevelWarn
	case sluice.EventRefused:
		if e.Reason != "busy" && e.Reason != "cancelled" {
			return slog.LevelWarn
		}
	case sluice.EventRetried, sluice.EventResumed:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// maxLines bounds the memory of a Log: a line is 50 bytes or so. Beyond it lines
// that are new are left out, too.
const maxLines = 100_000

// A Log is an observer that writes events to a [slog.Logger], and the same line
// only so often: if 1,000 calls are refused in a second because a gate is paused,
// one line says so. Lines count as the same if gate, kind and reason are the
// same, whatever the rest says.
//
//	WARN gate paused gate=api wait=1m0s until=2026-11-21T12:01:00Z why="429 Too Many Requests"
//	WARN call refused gate=api n=1 reason=deadline err="sluice: api: would have to wait 1m0s for the pause, 5s were allowed" left_out=999
//
// left_out is how many lines, of whatever kind, were left out since the last one
// that was written. Attributes that say nothing are not written.
//
// A Log is safe for use by multiple goroutines and must be made by [NewLog]. It
// calls the handler of the logger in the goroutine of the call: a handler that
// blocks delays calls.
type Logger struct {
	logger  *slog.Logger
	level   func(e sluice.Event) slog.Level
	often   *leaky.Keyed[line] // nil: without bound
	leftOut atomic.Uint64
}

// A line is what makes lines the same.
type line struct {
	gate   string
	kind   sluice.EventKind
	reason string
}

// NewLog returns a Log that writes to logger. It returns an error if cfg.Burst is
// negative, Every positive but less than 1 µs, or both together more than 146 years.
// It panics if logger is nil.
func NewLogger(logger *slog.Logger, cfg LoggerConfig) (*Logger, error) {
	switch {
	case logger == nil:
		panic("observe: NewLog(nil)")
	case cfg.Burst < 0:
		return nil, fmt.Errorf("observe: negative Burst %d", cfg.Burst)
	}
	l := &Logger{logger: logger, level: cfg.Level}
	if l.level == nil {
		l.level = Level
	}
	if cfg.Every < 0 {
		return l, nil
	}
	if cfg.Every == 0 {
		cfg.Every = time.Minute
	}
	var err error
	l.often, err = leaky.NewKeyed[line](
		leaky.Quota{Capacity: max(1, cfg.Burst), Count: 1, Per: cfg.Every},
		leaky.KeyedConfig{MaxKeys: maxLines},
	)
	if err != nil {
		return nil, fmt.Errorf("observe: %d lines at once, and one every %v: %w", max(1, cfg.Burst), cfg.Every, err)
	}
	return l, nil
}

var messages = map[sluice.EventKind]string{
	sluice.EventQueued:   "call queued",
	sluice.EventGranted:  "call granted",
	sluice.EventRefused:  "call refused",
	sluice.EventPaused:   "gate paused",
	sluice.EventResumed:  "gate resumed",
	sluice.EventRetried:  "call to be retried",
	sluice.EventReleased: "call released",
}

// Observe writes e, unless its level is not enabled or the same was written just
// now.
func (l *Logger) Observe(e sluice.Event) {
	ctx, level := context.Background(), l.level(e)
	if !l.logger.Enabled(ctx, level) {
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
	r := slog.NewRecord(now, level, message, 0) // from here is not where it comes from
	r.AddAttrs(slog.String("gate", e.Gate))
	if e.N != 0 {
		r.AddAttrs(slog.Int64("n", e.N))
	}
	if e.Reason != "" {
		r.AddAttrs(slog.String("reason", e.Reason))
	}
	if e.Attempt != 0 {
		r.AddAttrs(slog.Int("attempt", e.Attempt))
	}
	if e.Wait != 0 {
		r.AddAttrs(slog.Duration("wait", e.Wait))
		if e.Kind != sluice.EventGranted { // which has waited
			r.AddAttrs(slog.Time("until", now.Add(e.Wait)))
		}
	}
	if e.Held != 0 {
		r.AddAttrs(slog.Duration("held", e.Held))
	}
	if e.Err != nil {
		r.AddAttrs(slog.Any("err", e.Err))
	}
	if e.Why != "" {
		r.AddAttrs(slog.String("why", e.Why))
	}
	if n := l.leftOut.Swap(0); n != 0 {
		r.AddAttrs(slog.Uint64("left_out", n))
	}
	_ = l.logger.Handler().Handle(ctx, r) // slog ignores it as well: there is nowhere to say so
}
