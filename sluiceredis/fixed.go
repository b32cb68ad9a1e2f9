package sluiceredis

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/limits"
)

var fixedTake = strictScript("fixed_take", "fixed")

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
// use a [Sliding].
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
	away                  OutagePolicy
}

// args returns what the scripts want to know of the window.
func (k *fixedKey) args() []string {
	return []string{format(k.limit), format(k.window), format(k.offset)}
}

// mostInFixed is the largest limit of a fixed window, and of a semaphore: a script
// counts with 16 digits.
const mostInFixed = 1_000_000_000_000_000

// Fixed returns the fixed windows called name. It returns an error if name is
// empty or cfg is not possible. The same name with another limit means the same
// windows: what was used stays used.
//
// Window and Offset may be changed machine by machine, too. While machines ask by
// different ones, each kind of window has a count of its own, in which the calls of
// all machines count, and a call is admitted only if it fits into all that are not
// over. So no machine is given more than either configuration allows, and a window
// that no machine uses any more counts until its end.
func (s *Store) Fixed(name string, cfg FixedConfig) (*Fixed, error) {
	if err := checkWindow(name, cfg.Limit, cfg.Window, mostInFixed); err != nil {
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

// OnOutage returns the same windows with a policy of their own for when the server
// cannot be asked. It panics if there is no such policy.
func (f *Fixed) OnOutage(p OutagePolicy) *Fixed {
	also := *f
	also.key.away = f.store.heed(p)
	return &also
}

func (f *Fixed) at(key string) fixedKey {
	k := f.key
	k.key = f.store.key("fixed1", f.name, key, "")
	return k
}

// Take takes n from the window of key if n fit now, and otherwise changes nothing
// and says when they will. n = 0 takes nothing and is always allowed; an n beyond
// the limit never is, and Err of the result is then [limits.ErrTooLarge]. Errors
// are those of [Bucket.Take]. It panics if n < 0.
func (f *Fixed) Take(ctx context.Context, key string, n int64) (limits.Result, error) {
	mustNotBeNegative(n)
	a := asking{n: n}
	if err := f.store.fixeds.do(ctx, f.at(key), &a); err != nil {
		return limits.Result{}, err
	}
	return a.result, nil
}

// Peek returns what Take of 0 does: the window as it is. It never writes.
func (f *Fixed) Peek(ctx context.Context, key string) (limits.Result, error) {
	return f.Take(ctx, key, 0)
}

// On returns the window of key as a meter, for a sluice.Gate or sluice.NewQueue.
func (f *Fixed) On(key string) *FixedLimiter { return &FixedLimiter{f, key} }

// A FixedMeter is one window of a Fixed, as a limits.Limiter.
type FixedLimiter struct {
	fixed *Fixed
	key   string
}

var _ limits.Limiter = (*FixedLimiter)(nil)

// Admit takes n and returns 0 if n fit now; otherwise it takes nothing and
// returns how long until they will. It returns ErrTooLarge if n is more than the
// limit, and the errors of Fixed.Take. It panics if n < 0.
func (m *FixedLimiter) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	return admit(m.fixed.Take(ctx, m.key, n))
}

// Adjust corrects by delta what a call took that was admitted age ago. A negative
// delta gives back if the window in which that was is not over; otherwise Adjust
// returns [ErrStranded]. A positive one takes without asking, beyond the limit if
// need be; what is beyond ends with the window.
func (m *FixedLimiter) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	k := m.fixed.at(m.key)
	return m.fixed.store.adjustOne(ctx, &k, delta, age)
}

// takeFromFixed has requests for one window answered, in order, at one instant.
func takeFromFixed(s *Store, ctx context.Context, k fixedKey, requests []*asking) error {
	if err := s.tellFixed(ctx, k); err != nil {
		return err
	}
	sent := time.Now()
	args := k.args()
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
	found, granted := fixedState{&k, reply[3], time.Duration(reply[4]) * time.Microsecond}, int64(0)
	units := int64(0)
	for _, a := range requests {
		a.now, a.sent = reply[5], sent
		a.result = decide(&found, a.n)
		if a.result.Allowed() && a.n > 0 {
			granted, units = granted+1, units+a.n
		}
	}
	s.keepFixed(k, units, found.used, reply[4], reply[5])
	return s.decided(fixedTake, len(requests), reply, granted)
}

// giveBackToFixed gives back what was taken for callers who had gone.
func giveBackToFixed(s *Store, k fixedKey, requests []*asking) {
	for _, a := range requests {
		_ = s.adjustOne(context.Background(), &k, -a.granted(), time.Since(a.sent)) // counted if it fails
	}
}
