// Package time is what package time is to rewritten code.
package time

import (
	"time"

	"github.com/sluice-go/sluice/internal/explore/sched"
)

type (
	Duration = time.Duration
	Time     = time.Time
	Ticker   = time.Ticker
)

const (
	Nanosecond  = time.Nanosecond
	Microsecond = time.Microsecond
	Millisecond = time.Millisecond
	Second      = time.Second
	Minute      = time.Minute
	Hour        = time.Hour
	RFC3339     = time.RFC3339
)

// Now returns the instant of the execution.
func Now() Time { return sched.Now() }

// Since is time.Since.
func Since(t Time) Duration { return Now().Sub(t) }

// Until is time.Until.
func Until(t Time) Duration { return t.Sub(Now()) }

// A Timer is a time.Timer.
type Timer struct {
	*sched.Timer
	C <-chan Time
}

// NewTimer is time.NewTimer.
func NewTimer(d Duration) *Timer {
	t := sched.NewTimer(d, nil)
	return &Timer{t, t.C}
}

// AfterFunc is time.AfterFunc.
func AfterFunc(d Duration, f func()) *Timer { return &Timer{sched.NewTimer(d, f), nil} }

// NewTicker is time.NewTicker: it is in no scene.
func NewTicker(d Duration) *Ticker { return time.NewTicker(d) }
