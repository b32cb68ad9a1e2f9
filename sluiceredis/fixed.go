package sluiceredis

import (
	"fmt"
	"time"

	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// FixedConfig says how [Store.Fixed] counts.
type FixedConfig struct {
	Limit  int64         // at least 1, at most 10^15
	Window time.Duration // positive, at most 104 days; rounded up to a microsecond

	// Aligned windows begin at multiples of Window since 1970, in UTC, Offset later: a Window of 24
	// hours is a day. Others begin with the first call after the one before has ended.
	Aligned bool

	// Offset moves aligned windows. With −2 hours a day begins at midnight of
	// UTC+2; with 4 days a Window of 168 hours begins on Mondays. 0 means no offset.
	Offset time.Duration

	// OnOutage is the policy for outages. 0 means the value of the store.
	OnOutage OutagePolicy
}

// A Counter allows at most its limit of units per window, for each key: see [Store.Sliding] and
// [Store.Fixed].
type Counter struct{ limiters }

// Fixed returns the fixed windows called name: at most cfg.Limit units in each window. Up to twice
// the limit can pass around the edge of two windows: use [Store.Sliding] unless the called server
// counts by the same edges. If the server's clock steps back the current window stays, for one
// window at most; nothing is allowed twice.
//
// Fixed returns an error if name is empty or cfg is not possible. The same name with another limit
// means the same windows: used units stay used. While machines use different values of Window and
// Offset, the calls of all are counted for each pair of them, and a call must fit into each window
// that has not ended.
func (s *Store) Fixed(name string, cfg FixedConfig) (*Counter, error) {
	if err := checkWindow(name, cfg.Limit, cfg.Window, kinds.MostFixed); err != nil {
		return nil, err
	}
	switch {
	case cfg.Window > time.Duration(kinds.Longest):
		return nil, fmt.Errorf("sluiceredis: window of %v: at most 104 days", cfg.Window)
	case !cfg.Aligned && cfg.Offset != 0:
		return nil, fmt.Errorf("sluiceredis: an offset of %v needs aligned windows", cfg.Offset)
	}
	f := new(Counter)
	if err := f.init(s, "fixed1", name, kinds.NewFixed(cfg.Limit, cfg.Window, cfg.Aligned, cfg.Offset), cfg.OnOutage); err != nil {
		return nil, err
	}
	return f, nil
}

// checkWindow returns an error unless a window of so many can be.
func checkWindow(name string, limit int64, window time.Duration, most int64) error {
	if err := checkName(name); err != nil {
		return err
	}
	switch {
	case limit <= 0:
		return fmt.Errorf("sluiceredis: limit of %d: it must be positive", limit)
	case limit > most:
		return fmt.Errorf("sluiceredis: limit of %d: at most %d", limit, most)
	case window <= 0:
		return fmt.Errorf("sluiceredis: window of %v: it must be positive", window)
	}
	return nil
}
