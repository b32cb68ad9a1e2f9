package sluiceredis

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
)

var (
	fixedTake   = script("fixed_take")
	fixedAdjust = script("fixed_adjust")
)

// FixedConfig says how a [Fixed] counts.
type FixedConfig struct {
	Limit  int64         // at least 1, at most 10^15
	Window time.Duration // positive, at most 104 days; rounded up to a microsecond

	// Aligned windows begin at multiples of Window since 1970, in UTC, Offset
	// later: a Window of 24 hours is a day. Others begin with the first call
	// after the one before is over.
	Aligned bool

	// Offset moves aligned windows. With −2 hours a day begins at midnight of
	// UTC+2; with 4 days a Window of 168 hours begins on Mondays.
	Offset time.Duration
}

// A Fixed admits at most limit in each of its windows, for each key, on all
// machines together. Windows follow one another and do not slide, so up to twice
// the limit can pass within a moment around the edge of two: that is what a fixed
// window is. If the other side counts by the same edges it is right; otherwise
// use a [Log].
//
// Only the server's clock counts. If that is put back the window in force stays,
// for as long as one window at most; nothing is granted twice.
//
// A Fixed is safe for use by multiple goroutines.
type Fixed struct {
	store *Store
	name  string
	key   fixedKey
}

// A fixedKey is a counter and how it is asked.
type fixedKey struct {
	key                   string
	limit, window, offset int64 // µs; an offset of −1 means anchored
}

// mostInFixed is the largest limit of a fixed window: what a script counts with.
const mostInFixed = 1_000_000_000_000_000

// Fixed returns the fixed windows called name. It returns an error if name is
// empty or cfg is not possible. The same name with another limit means the same
// windows: what was used stays used.
func (s *Store) Fixed(name string, cfg FixedConfig) (*Fixed, error) {
	if err := checkWindow(name, cfg.Limit, cfg.Window, mostInFixed-1); err != nil {
		return nil, err
	}
	switch {
	case cfg.Window > time.Duration(longest):
		return nil, fmt.Errorf("sluiceredis: window of %v: at most 104 days", cfg.Window)
	case !cfg.Aligned && cfg.Offset != 0:
		return nil, fmt.Errorf("sluiceredis: an offset of %v needs aligned windows", cfg.Offset)
	}
	k := fixedKey{limit: cfg.Limit, window: microseconds(cfg.Window), offset: -1}
	if cfg.Aligned {
		k.offset = int64(cfg.Offset/time.Microsecond) % k.window
		if k.offset < 0 {
			k.offset += k.window
		}
	}
	return &Fixed{s, name, k}, nil
}

func (f *Fixed) at(key string) fixedKey {
	k := f.key
	k.key = f.store.key("fixed1", f.name, key, "")
	return k
}

// Take takes n from the window of key if n fit now, and otherwise changes nothing
// and says when they will. n = 0 takes nothing and is always allowed; an n beyond
// the limit never is, and Err of the result is then [leaky.ErrTooLarge]. Errors
// are those of [Leaky.Take]. It panics if n < 0.
func (f *Fixed) Take(ctx context.Context, key string, n int64) (leaky.Result, error) {
	mustNotBeNegative(n)
	a := asking{n: n}
	if err := f.store.fixeds.do(ctx, f.at(key), &a); err != nil {
		return leaky.Result{}, err
	}
	return a.result, nil
}

// Peek returns what Take of 0 does: the window as it is. It never writes.
func (f *Fixed) Peek(ctx context.Context, key string) (leaky.Result, error) {
	return f.Take(ctx, key, 0)
}

// On returns the window of key as a meter, for a sluice.Gate or sluice.Block.
func (f *Fixed) On(key string) *FixedMeter { return &FixedMeter{f, key} }

// A FixedMeter is one window of a Fixed, as a sluice.Meter.
type FixedMeter struct {
	fixed *Fixed
	key   string
}

var _ sluice.Meter = (*FixedMeter)(nil)

// Admit takes n and returns 0 if n fit now; otherwise it takes nothing and
// returns how long until they will. It returns ErrTooLarge if n is more than the
// limit, and the errors of Fixed.Take. It panics if n < 0.
func (m *FixedMeter) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	return admit(m.fixed.Take(ctx, m.key, n))
}

// Adjust corrects by delta what a call took that was admitted age ago. A negative
// delta gives back if the window in which that was is not over; otherwise Adjust
// returns [ErrStranded]. A positive one takes without asking, beyond the limit if
// need be; what is beyond ends with the window.
func (m *FixedMeter) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	delta = min(max(delta, -mostInFixed), mostInFixed)
	return m.fixed.store.adjustFixed(context.WithoutCancel(ctx), m.fixed.at(m.key), delta, age)
}

func (s *Store) adjustFixed(ctx context.Context, k fixedKey, delta int64, age time.Duration) error {
	if delta == 0 {
		return nil
	}
	age = min(max(0, age), time.Duration(longest))
	args := []string{format(k.window), format(k.offset), format(delta), format(microseconds(age))}
	reply, err := s.run(ctx, fixedAdjust, []string{k.key}, args)
	if err == nil {
		err = expect(fixedAdjust, reply, 3)
	}
	return s.settled(delta, reply, err)
}

// takeFromFixed has requests for one window answered, in order, at one instant.
func takeFromFixed(s *Store, ctx context.Context, k fixedKey, requests []*asking) error {
	sent := time.Now()
	args := []string{format(k.limit), format(k.window), format(k.offset)}
	inRuns(requests, k.limit, func(run []*asking) {
		args = append(args, format(run[0].n), format(int64(len(run))))
	})
	reply, err := s.run(ctx, fixedTake, []string{k.key}, args)
	if err == nil {
		err = expect(fixedTake, reply, 6)
	}
	if err != nil {
		return err
	}
	used, left, granted := reply[3], time.Duration(reply[4])*time.Microsecond, int64(0)
	for _, a := range requests {
		a.now, a.sent = reply[5], sent
		a.result = leaky.Result{Limit: k.limit, RetryAfter: leaky.NoRetry}
		switch {
		case a.n == 0:
			a.result.Allowed = true
		case a.n > k.limit: // never
		case used > k.limit-a.n:
			a.result.RetryAfter = left
		default:
			a.result.Allowed = true
			used += a.n
			granted++
		}
		a.result.Remaining = max(0, k.limit-used)
		if used > 0 {
			a.result.ResetAfter = left
		}
	}
	return s.decided(fixedTake, len(requests), reply, granted)
}

// giveBackToFixed gives back what was taken for callers who had gone.
func giveBackToFixed(s *Store, k fixedKey, requests []*asking) {
	for _, a := range requests {
		_ = s.adjustFixed(context.Background(), k, -a.granted(), time.Since(a.sent)) // counted if it fails
	}
}
