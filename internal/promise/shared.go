package promise

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/ext/peers"
)

// A company is the peers.Store of a gate that shares its learned limit.
type company struct {
	groups peers.Groups
	began  time.Time
	away   bool
}

var errAway = errors.New("the others are away")

func (c *company) Exchange(_ context.Context, group string, r peers.Report) (peers.Reply, error) {
	if c.away {
		return peers.Reply{}, errAway
	}
	return c.groups.Exchange(time.Since(c.began).Microseconds(), group, r), nil
}

// sharing returns setup with gates that share their learned limits. They are the only ones of their
// groups, so that they keep to the same times as if they shared nothing.
func sharing(setup Setup) Setup { return inCompany(setup, false) }

// sharingAway is sharing, but the others cannot be reached.
func sharingAway(setup Setup) Setup { return inCompany(setup, true) }

func inCompany(setup Setup, away bool) Setup {
	return func(tb testing.TB, l Limits) *Subject {
		l.peers = &company{began: time.Now(), away: away}
		s := setup(tb, l)
		s.Close = func() {
			for _, level := range s.Levels { // they report as long as they are used
				_ = level.Control.(*sluice.Gate).Shutdown(context.Background())
			}
		}
		return s
	}
}
