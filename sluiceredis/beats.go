package sluiceredis

import (
	"context"
	"sync/atomic"
	"time"
)

// # How many instances are there?
//
// Each writes its name and the server's time into one sorted set, every few
// seconds while it asks the server anything, and reads how many others have done
// so lately. One that has crashed, or is cut off, is counted a little longer, and
// the others have the smaller shares meanwhile. While this one is cut off the number
// stays what it was.

const (
	beatEvery = 3 * time.Second
	beatLasts = 10 * time.Second // three and a bit: two may be lost
)

var alive = script("alive")

// A beats is when this instance has told that it is there.
type beats struct {
	fixed  bool         // the number is given
	wanted atomic.Bool  // some limit has shares
	next   atomic.Int64 // ns since the store was made
	made   time.Time
}

// beat tells the server that this instance is there, if it is time, in a goroutine
// that lasts no longer than Timeout.
func (s *Store) beat() {
	if s.beats.fixed || !s.beats.wanted.Load() {
		return
	}
	now, next := int64(time.Since(s.beats.made)), s.beats.next.Load()
	if now < next || !s.beats.next.CompareAndSwap(next, now+int64(beatEvery)) {
		return
	}
	go func() { _ = s.count(context.Background(), "1") }() // an error leaves the number as it was
}

// Leave has this instance not counted any more by the others, whose local shares
// grow at once. It counts again when it asks the server the next time. Leave is
// for the end of a program, and need not be called: without it the others
// notice after 10 s.
func (s *Store) Leave(ctx context.Context) error {
	if s.beats.fixed || s.alone || !s.beats.wanted.Load() {
		return nil
	}
	s.beats.next.Store(int64(time.Since(s.beats.made) + beatEvery)) // not by this very call
	err := s.count(ctx, "0")
	s.beats.next.Store(0)
	return err
}

// count counts the instances; here says whether this is one.
func (s *Store) count(ctx context.Context, here string) error {
	reply, err := s.run(ctx, alive, []string{s.key("alive1", "instances", "", "")}, []string{s.id, format(int64(beatLasts / time.Microsecond)), here})
	if err == nil {
		err = expect(alive, reply, 3)
	}
	if err != nil || here == "0" {
		return err
	}
	n := reply[1]
	if n > mostInstances {
		n = 0 // no shares
	}
	if s.instances.Swap(n) != n {
		b := &s.breaker
		b.mu.Lock()
		b.events.add(Event{At: time.Now(), Mode: Asking, Instances: int(n)})
		b.mu.Unlock()
		b.events.flush()
	}
	return nil
}
