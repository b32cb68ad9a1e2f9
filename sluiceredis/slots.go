package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// A pacing is a request for slots, and its response.
type pacing struct {
	spot                  // of the pacer
	takes, patience int64 // ns; takes 0: only looks. A local share multiplies takes
	here            bool  // decided by this process
	open            bool  // let through by it, by FailOpen

	ok   bool
	slot int64         // ns since 1970, by the server's clock
	wait time.Duration // until the slot
	at   time.Time     // when the reply arrived

	pauses kinds.Pauses
}

// span returns the slots that r was given.
func (r *pacing) span() span {
	return span{r.slot, r.takes, r.at.Add(r.wait), r.pauses.Mark, r.pauses.Pause > 0, r.here, r.open}
}

// askPacer runs the script of a pacer; see lua/pacer.lua.
func (s *Store) askPacer(ctx context.Context, what string, a spot, args ...int64) ([]int64, error) {
	texts := a.Args([]string{what}, "")
	for _, n := range args {
		texts = append(texts, format(n))
	}
	reply, err := s.run(ctx, pacerScript, []string{a.key}, texts)
	if err == nil {
		err = expect(pacerScript, reply, 7)
	}
	return reply, err
}

// grant admits r from the first free slot, and returns the one behind it; slots are times
// as long.
func (r *pacing) grant(free, times int64, pauses kinds.Pauses, at time.Time) int64 {
	r.at, r.wait, r.slot, r.pauses = at, time.Duration(max(0, free)), pauses.Now+free, pauses
	if r.ok = r.takes > 0 && free <= r.patience; r.ok {
		r.takes *= times
		free += r.takes
	}
	return free
}

// reserve reserves slots, along with other requests for the same pacer.
func (s *Store) reserve(ctx context.Context, a spot, r *pacing) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.spot = a
	switch {
	case s.alone:
		s.stats.local.Add(1)
		s.reserveHere(a, a.Rule, 1, []*pacing{r})
		return nil
	case s.isAway(a.key):
		return s.reserveOrElse(ctx, a.sign(), []*pacing{r})
	}
	return s.pacers.Do(ctx, a.sign(), r)
}

// reserveOrElse has slots reserved by the server or, if that is unavailable, by this process.
func (s *Store) reserveOrElse(ctx context.Context, _ sign, requests []*pacing) error {
	err := s.reserveSlots(ctx, requests)
	var away *outageError
	if err != nil && errors.As(err, &away) {
		return s.reserveAway(requests, away)
	}
	return err
}

// reserveSlots has requests for one pacer decided, in order, at the same time.
func (s *Store) reserveSlots(ctx context.Context, requests []*pacing) error {
	a := requests[0].spot
	if err := s.report(ctx, a); err != nil {
		return err
	}
	var args []int64
	for _, r := range requests {
		if r.takes > 0 {
			args = append(args, r.takes, r.patience)
		}
	}
	reply, err := s.askPacer(ctx, "reserve", a, args...)
	if err != nil {
		return err
	}
	at, pauses, free, granted := time.Now(), pausesIn(reply), reply[3], int64(0)
	for _, r := range requests {
		if free = r.grant(free, 1, pauses, at); r.ok {
			granted++
		}
	}
	s.keepSlots(a, requests, reply[6])
	s.stats.decisions.Add(uint64(len(requests)))
	s.stats.clamped.Add(uint64(reply[2]))
	if granted != reply[1] {
		return fmt.Errorf("sluiceredis: %s granted %d, which should be %d", pacerScript.Name, reply[1], granted)
	}
	return nil
}

// keepSlots keeps the share of a pacer up to date with a reply of the server.
func (s *Store) keepSlots(a spot, requests []*pacing, now int64) {
	_, among := s.followed(a.limit)
	if among == 0 {
		return
	}
	s.local().Set(now)
	next, pause := int64(0), int64(0)
	for _, r := range requests {
		if r.ok {
			next = max(next, r.slot+r.takes*among)
		}
		pause = max(pause, r.pauses.Pause)
	}
	s.onPacer(a, a.Rule, func(h *kinds.PaceHeld) { h.Sync(next, pause) })
}

// onPacer calls f with this process's state of a pacer.
func (s *Store) onPacer(a spot, rule kinds.Rule, f func(*kinds.PaceHeld)) {
	h := s.local().Open(a.key, rule)
	f(h.Held.(*kinds.PaceHeld))
	h.Close(false)
}

// reserveHere reserves slots of this process, in order; they are times as long.
func (s *Store) reserveHere(a spot, rule kinds.Rule, times int64, requests []*pacing) {
	at := time.Now()
	s.onPacer(a, rule, func(h *kinds.PaceHeld) {
		before, _ := h.Free()
		free := before
		for _, r := range requests {
			free = r.grant(free, times, h.Pauses(), at)
		}
		h.Reserve(free - before)
	})
}

// reserveAway has requests for slots decided while the server is unavailable.
func (s *Store) reserveAway(requests []*pacing, away *outageError) error {
	a, asked := requests[0].spot, uint64(0) // other requests only look
	for _, r := range requests {
		if r.here = r.takes > 0; r.here {
			asked++
		}
	}
	var err error
	switch s.policy(a.away) {
	case FailOpen:
		for _, r := range requests {
			r.ok, r.open, r.at, r.wait, r.slot, r.pauses = r.takes > 0, true, time.Now(), 0, s.local().Server()*1000, kinds.Pauses{}
		}
		s.local().Note(a.key, 0, a.Counts()) // so that nothing of it is returned to the server
		s.stats.open.Add(asked)
		return nil
	case LocalShare:
		if _, err = s.shareOf(a.limit, away); err == nil {
			slots := make([]int64, len(requests))
			for i, r := range requests {
				slots[i] = r.takes / a.Each()
			}
			s.reserveHere(a, a.Rule, s.instances.Load(), requests)
			for i, r := range requests {
				if r.ok {
					s.local().Note(a.key, slots[i], a.Counts())
				}
			}
			s.stats.local.Add(asked)
			return nil
		}
	default:
		err = away
	}
	s.stats.refused.Add(asked)
	return err
}

// cancelSlots returns slots, and reports whether that was possible.
func (s *Store) cancelSlots(ctx context.Context, a spot, slots span) (back bool) {
	end := slots.slot + slots.takes
	if slots.here || s.alone {
		s.onPacer(a, a.Rule, func(h *kinds.PaceHeld) { back = h.Cancel(end, slots.takes, slots.mark) })
		return back
	}
	reply, err := s.askPacer(ctx, "cancel", a, end, slots.takes, slots.mark)
	return err == nil && reply[1] == 1
}

// giveBackSlots returns the slots of callers that had left, the last first, so that
// those before it are at the tail then.
func (s *Store) giveBackSlots(_ sign, requests []*pacing) {
	for i := len(requests) - 1; i >= 0; i-- {
		r := requests[i]
		if !r.ok {
			continue
		}
		if s.cancelSlots(context.Background(), r.spot, r.span()) {
			s.stats.refunded.Add(1)
		} else {
			s.stats.lost.Add(1)
		}
	}
}
