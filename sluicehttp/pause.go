package sluicehttp

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/rates"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

const (
	defaultMaxPause = 24 * time.Hour // daily quotas are common; monthly ones are not worth waiting for
	defaultEvictAt  = 10_000         // gates of about 3 kB each
)

// mostPause returns the longest pause that a server can cause.
func (cfg *Config) mostPause() time.Duration {
	switch {
	case cfg.MaxPause < 0:
		return limits.Never
	case cfg.MaxPause == 0:
		return max(defaultMaxPause, cfg.Retry.MaxServerWait)
	}
	return cfg.MaxPause
}

// cut returns at, which is from the field source, or the end of the longest pause if that
// is earlier. Then it notes a warning.
func (st *state) cut(at, now time.Time, source string) time.Time {
	asked, most := at.Sub(now), st.t.mostPause
	if asked <= most {
		return at
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.warnCut(source, asked)
	return now.Add(most)
}

// cutRate returns r, which is from the field source, or one call per longest pause if that
// is faster: one call in ten years is a pause, too. st.mu is held.
func (st *state) cutRate(r sluice.Rate, source string) sluice.Rate {
	if r.Count <= 0 || r.Per/time.Duration(r.Count) <= st.t.mostPause {
		return r
	}
	st.warnCut(source, r.Per/time.Duration(r.Count))
	return sluice.Rate{Count: 1, Per: st.t.mostPause}
}

// warnCut notes that a server asked for too long a wait. st.mu is held.
func (st *state) warnCut(source string, asked time.Duration) {
	st.warnings++
	st.warning = ratelimit.Warning{
		Field: source,
		Value: asked.Round(time.Second).String(),
		Why:   "the wait is cut to the longest pause, " + st.t.mostPause.String(),
	}
}

// PauseUntil is [sluice.Gate.PauseUntil] for the requests of a key, and reports whether the
// transport has that key, spelled as in Stats.
func (t *Transport) PauseUntil(key string, until time.Time, why string) bool {
	found := false
	for gate, st := range t.states.Range {
		if st.(*state).key.String() == key {
			found = true
			st.(*state).pausedByUser.Store(&pause{until, why})
			gate.(*sluice.Gate).PauseUntil(until, why)
		}
	}
	return found
}

// SetRate changes the configured rate of the gate of a key, spelled as in Stats, until it is
// evicted, and reports whether the transport has that key. A slower rate from Published.Spread
// stays; a rate that the server publishes is replaced, and applies again if rate is zero.
func (t *Transport) SetRate(key string, rate sluice.Rate) (found bool, err error) {
	for _, st := range t.states.Range {
		if st := st.(*state); st.key.String() == key {
			found = true
			err = errors.Join(err, st.configure(rate))
		}
	}
	return found, err
}

// configure is SetRate for one gate.
func (st *state) configure(rate sluice.Rate) error {
	if rate != (sluice.Rate{}) {
		if err := rates.Check(rate.Count, rate.Per, rate.Burst); err != nil {
			return fmt.Errorf("sluicehttp: %w", err)
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.configured, st.policy = rate, sluice.Rate{}
	st.setRate()
	return nil
}

// SetConcurrency changes how many requests of a key, spelled as in Stats, may be in flight, until
// its gate is evicted, and reports whether the transport has that key. 0 means no limit, or that of
// the server with a [Published].Spread of 1.
func (t *Transport) SetConcurrency(key string, limit int64) (found bool, err error) {
	for _, st := range t.states.Range {
		if st := st.(*state); st.key.String() == key {
			found = true
			err = errors.Join(err, st.place(limit))
		}
	}
	return found, err
}

// place is SetConcurrency for one gate.
func (st *state) place(limit int64) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.gate.SetConcurrency(limit); err != nil {
		return err
	}
	st.own, st.placesInForce = limit > 0, limit
	return nil
}

// Resume ends the pause of a key, spelled as in Stats and [Hop], and reports whether the transport
// has that key. Waiting calls start at the rate. Resume also drops a slower rate from
// [Published].Spread and the like, but not a rate that the server publishes, or the retry budget.
func (t *Transport) Resume(key string) bool {
	found := t.global.lift(named(key))
	for _, st := range t.states.Range {
		st := st.(*state)
		if st.key.String() == key {
			found = true
			st.resume()
		} else if st.key.route != "" && st.server.Load().String() == key { // a scope of it
			st.resume()
		}
	}
	return found
}

func named(name string) func(key) bool {
	return func(k key) bool { return k.String() == name }
}

// resume is Resume for one gate.
func (st *state) resume() {
	// First the server: otherwise the next request would find it paused.
	if server := st.server.Load(); server != nil {
		st.t.global.lift(func(k key) bool { return k == *server })
	}
	st.pausedByUser.Store(nil)
	st.scopes.resume()
	st.mu.Lock()
	st.floorUntil = time.Time{}
	st.floors.Store(0)
	st.spread.Store(0)
	st.setRate()
	st.mu.Unlock()
	st.published.forget()
	st.gate.Resume()
}
