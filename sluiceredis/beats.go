package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/sluiceredis/internal/outage"
)

// # How many instances are there?
//
// Each writes its name and the server's time into one sorted set, every few seconds while it asks
// the server anything, and reads the number of others that have done so lately. One that has
// crashed, or is cut off, is counted a little longer, and the others have the smaller shares
// until then. While this one is cut off the number stays the same.
//
// An instance that joins is known to the others when they count the next time. If it
// had a share before, and they had the larger ones of before, all of them together
// would be more than the limit: of ten that start at one time the first would have all
// of it, the second a half, and so on, nearly three limits in all. So an instance has
// no share until it has counted a second time. The same if it has asked nothing for
// so long that the others do not count it any more, and then finds the server away:
// how many there are by then it does not know.

const (
	beatEvery = 3 * time.Second
	beatLasts = 10 * time.Second // three and a bit: two may be lost
)

var alive = script("alive")

// A beats is when this instance was counted.
type beats struct {
	fixed  bool         // the number is given
	wanted atomic.Bool  // some limit has shares
	next   atomic.Int64 // ns since the store was made
	made   time.Time

	mu     sync.Mutex
	joined time.Time   // when it was counted first, without a gap since; zero: never
	last   time.Time   // when it was counted last
	cut    time.Time   // since when it cannot be counted; zero: it can
	away   atomic.Bool // whether cut is not zero
}

// counted notes that this instance was counted at a time.
func (b *beats) counted(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.joined.IsZero() || at.Sub(b.last) > beatLasts {
		b.joined = at
	}
	b.last, b.cut = at, time.Time{}
	b.away.Store(false)
}

// answered notes whether the server that counts has answered a call.
func (b *beats) answered(answer bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case answer:
		b.cut = time.Time{}
	case b.cut.IsZero():
		b.cut = time.Now()
	}
	b.away.Store(!answer)
}

// unsure returns why the number of instances says nothing about shares, or "".
func (b *beats) unsure() string {
	if b.fixed {
		return ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	cut := b.cut
	if cut.IsZero() {
		cut = time.Now()
	}
	switch {
	case b.joined.IsZero():
		return "how many instances there are is not known"
	case b.last.Sub(b.joined) < beatEvery:
		return fmt.Sprintf("the instances have not been counted for %v yet and Config.Instances is 0", beatEvery)
	case cut.Sub(b.last) > beatLasts:
		return "this instance was counted too long before"
	}
	return ""
}

// beat tells the server that this instance is there, if it is time, in a goroutine
// that lasts no longer than Timeout.
func (s *Store) beat() {
	if s.beats.fixed || !s.beats.wanted.Load() {
		return
	}
	at := time.Now()
	now, next := int64(at.Sub(s.beats.made)), s.beats.next.Load()
	if now < next || !s.beats.next.CompareAndSwap(next, now+int64(beatEvery)) {
		return
	}
	go func() { _ = s.count(context.Background(), at) }() // an error leaves the number as it was
}

// aliveKey returns where instances are counted.
func (s *Store) aliveKey() string { return s.key("alive1", "instances", "", "") }

// hears notes the outcome of c for its server, and tells the one that counts instances.
func (s *Store) hears(c *sending, v outage.Verdict, err error, took time.Duration) {
	if v == outage.Answered || isReply(err) {
		s.pulse.Heard(c.place, took)
	}
	s.present(c.place, v)
	if v == outage.Answered {
		s.beat()
	}
}

// isReply reports whether err is a reply of a server.
func isReply(err error) bool {
	var reply *ServerError
	return errors.As(err, &reply)
}

// present notes the outcome of a call for the server at place, if that is the one that counts
// instances.
func (s *Store) present(place string, v outage.Verdict) {
	b := &s.beats
	away := v == outage.Unanswered || v == outage.Silent
	if b.fixed || !away && (v != outage.Answered || !b.away.Load()) { // nothing new
		return
	}
	if b.wanted.Load() && s.place(s.aliveKey()) == place {
		b.answered(!away)
	}
}

// count counts the instances at that time.
func (s *Store) count(ctx context.Context, at time.Time) error {
	reply, err := s.run(ctx, alive, []string{s.aliveKey()}, []string{s.id, format(int64(beatLasts / time.Microsecond))})
	if err == nil {
		err = expect(alive, reply, 3)
	}
	if err != nil {
		return err
	}
	s.beats.counted(at)
	n := reply[1]
	if n > mostInstances {
		n = 0 // no shares
	}
	s.instances.Store(n)
	return nil
}
