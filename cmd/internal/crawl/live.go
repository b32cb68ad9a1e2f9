package crawl

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/internal/cli"
	"github.com/sluice-go/sluice/observe/live"
)

// A livePage is what the page of -live shows: all requests, and below them those of each host
// that is crawled now. With a token the whole can be changed, but not a host: its delay is
// what it is owed.
type livePage struct{ shown atomic.Pointer[steering] }

// steering changes a crawl on its page, and says so on the screen.
type steering struct {
	c   *crawler
	log func(string)
}

// shows sets the crawl that is shown. Before that there is none.
func (p *livePage) shows(c *crawler, d *cli.Display) { p.shown.Store(&steering{c, d.Log}) }

func (p *livePage) gates(yield func(live.Gate) bool) {
	s := p.shown.Load()
	if s == nil || !yield(live.Gate{Stats: s.c.all.Stats(), Control: s}) {
		return
	}
	for g := range live.FromKeyed(s.c.addresses) {
		g.Control = nil
		if !yield(g) {
			return
		}
	}
	for g := range live.FromKeyed(s.c.gates) {
		g.Control = nil
		if !yield(g) {
			return
		}
	}
}

func (s *steering) PauseUntil(t time.Time, why string) {
	s.c.all.PauseUntil(t, why)
	s.log("-live: paused until " + t.Format(time.TimeOnly))
}

func (s *steering) Resume() {
	s.c.all.Resume()
	s.log("-live: resumed")
}

func (s *steering) SetRate(rate sluice.Rate) error {
	err := s.c.all.SetRate(rate)
	if err == nil {
		s.log(fmt.Sprintf("-live: rate %v", rate))
	}
	return err
}

func (s *steering) SetConcurrency(n int64) error {
	if n < 1 {
		return errors.New("want a number of jobs above 0")
	}
	err := s.c.all.SetConcurrency(n)
	if err == nil {
		s.log(fmt.Sprintf("-live: jobs %d", n))
	}
	return err
}
