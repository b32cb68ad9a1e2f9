package sluiceredis

import (
	"time"

	"github.com/sluice-go/sluice/internal/keyed"
	"github.com/sluice-go/sluice/kind"
	"github.com/sluice-go/sluice/limits"
)

// slidings are sliding windows of one length in memory, one for each key.
type slidings struct {
	window time.Duration
	keys   *keyed.Map[string, *kind.SlidingState]
}

func newSlidings(window time.Duration) *slidings {
	return &slidings{window, keyed.New[string](keyed.Most, kind.Sliding{Limit: mostInLog, Window: window}.Idle)}
}

// TakeLimit takes n from the window of key by a limit of the call's own.
func (l *slidings) TakeLimit(key string, limit, n int64) (res limits.Result) {
	if l.update(key, func(s *kind.SlidingState, now time.Duration) {
		res = kind.Sliding{Limit: limit, Window: l.window}.Take(s, now, n)
	}) != nil {
		return limits.Result{RetryAfter: limits.Never}
	}
	return res
}

// Adjust changes by delta what was admitted for key age ago.
func (l *slidings) Adjust(key string, delta int64, age time.Duration) error {
	return l.update(key, func(s *kind.SlidingState, now time.Duration) {
		kind.Sliding{Limit: mostInLog, Window: l.window}.Adjust(s, now, delta, age)
	})
}

// Len returns how many keys are remembered.
func (l *slidings) Len() int { return l.keys.Len() }

func (l *slidings) update(key string, f func(s *kind.SlidingState, now time.Duration)) error {
	return l.keys.Update(key, func(s *kind.SlidingState, now time.Duration) *kind.SlidingState {
		if s == nil {
			s = new(kind.SlidingState)
		}
		f(s, now)
		return s
	})
}
