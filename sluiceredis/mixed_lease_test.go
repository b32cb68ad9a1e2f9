package sluiceredis

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A lease lasts as long as its holder's machine says, whatever the leases of other
// machines are: they neither end it nor prolong it.
func TestMixedLeases(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		long := newSemaphore(t, s, "mixed", 2, SemaphoreConfig{Lease: 30 * sec})
		short := newSemaphore(t, s, "mixed", 2, SemaphoreConfig{Lease: sec})
		is := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		clock.set(time.Microsecond)
		is("a long one", asked(t, long, "a", 1), "[0 1 0 1 0]")
		is("a short one", asked(t, short, "b", 1), "[0 2 0 2 0]")
		clock.set(500 * ms)
		is("no more, for a long one", asked(t, long, "c", 1), "[1 0 500001 2 0]")
		is("no more, for a short one", asked(t, short, "c", 1), "[1 0 500001 2 0]")
		for _, key := range short.keys[:1] {
			if ttl := b.redis.PTTL(bg, key).Val(); ttl < 29*sec || ttl > 31*sec {
				t.Errorf("%s stays for %v", key, ttl)
			}
		}
		clock.set(sec + time.Microsecond)
		is("the short one is over", asked(t, short, "d", 1), "[0 1000001 0 2 0]")
		for at := 1900 * ms; at < 28*sec; at += 900 * ms {
			clock.set(at)
			is("the short one is renewed", renewed(t, short, "d"), "[0 1]")
			is("the long one is held", asked(t, short, "e", 1)[:2], "[1")
		}
		clock.set(29 * sec)
		is("the long one is renewed", renewed(t, long, "a"), "[0 1]")
		clock.set(59*sec - 1000)
		is("it is held", asked(t, short, "e", 2), "[1 0 1 1 0]")
		clock.set(59 * sec)
		is("it is over", asked(t, short, "e", 2), "[0 59000000 0 2 0]")
		// The clock steps back: each is as long as it could be, and no longer.
		is("released", released(t, short, "e"), "[0 1 0]")
		clock.set(100 * sec)
		is("a long one", asked(t, long, "f", 1), "[0 100000000 0 1 0]")
		is("a short one", asked(t, short, "g", 1), "[0 100000001 0 2 0]")
		clock.set(0)
		is("both, seen by a short one", asked(t, short, "h", 1), "[1 0 1000000 2 2]")
		clock.set(30*sec - 1000)
		is("the long one is held", asked(t, short, "h", 2), "[1 0 1 1 0]")
		clock.set(30 * sec)
		is("it is over", asked(t, long, "h", 2)[:2], "[0")
	})
}

// A deploy replaces four machines one by one, which changes the lease: no permit is
// leased twice, no holder loses what it holds, and what is released can be had.
func TestLeaseChangesMachineByMachine(t *testing.T) {
	for name, leases := range map[string][2]time.Duration{"shorter": {30 * sec, sec}, "longer": {sec, 30 * sec}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := onRedis(t)
			const limit = 4
			var holders []*Lease
			var all []*Semaphore
			machine := func(lease time.Duration) *Semaphore {
				m := newSemaphore(t, b.store(t), "deploy", limit, SemaphoreConfig{Lease: lease, Poll: 5 * ms})
				all = append(all, m)
				return m
			}
			full := func(when string) {
				t.Helper()
				for _, m := range all {
					if l, err := m.acquire(bg, 1, 0); l != nil || err != limits.ErrTimeout {
						t.Fatalf("%s: more than the limit is lent: %v", when, err)
					}
				}
			}
			for range limit {
				l, err := machine(leases[0]).acquire(bg, 1, sec)
				if err != nil {
					t.Fatal(err)
				}
				holders = append(holders, l)
			}
			full("before")
			for i := range holders {
				next := machine(leases[1])
				began := time.Now()
				for time.Since(began) < 1100*ms { // longer than the short lease
					full("while one of the others is replaced")
				}
				holders[i].Release()
				l, err := next.acquire(bg, 1, 10*sec)
				if err != nil {
					t.Fatalf("what was released cannot be had: %v", err)
				}
				holders[i] = l
			}
			full("after")
			for _, l := range holders {
				if isLost(l) {
					t.Error("a holder has lost its lease")
				}
				l.Release()
			}
			if lost := total(all, func(s Stats) uint64 { return s.LeasesLost + s.InvalidKeys }); lost != 0 {
				t.Errorf("%d leases lost, or errors", lost)
			}
		})
	}
}

func isLost(l *Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

func total(all []*Semaphore, of func(Stats) uint64) (n uint64) {
	for _, m := range all {
		n += of(m.store.Stats())
	}
	return n
}

// A server that has dropped one of the keys leases nothing twice. Holders lose nothing, and
// all is as before when the leases of then would have ended.
func TestSemaphoreOfWhichAKeyWasEvicted(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		sem := newSemaphore(t, s, "evicted", 5, SemaphoreConfig{Lease: 10 * sec})
		is := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		renew := func() string {
			reply, err := sem.run(bg, 4, "renew", "a", "2", "1", "b", "1", "4000000")
			return fmt.Sprint(reply[:3], err)
		}
		asked(t, sem, "a", 2)
		clock.set(4 * sec)
		asked(t, sem, "b", 1)
		b.redis.Del(bg, sem.keys[0])
		clock.set(5 * sec)
		is("more than is known to be lent", asked(t, sem, "c", 1), "[1 0 9000000 0 0]")
		is("released, by which nothing is known", released(t, sem, "d"), "[0 0 0]")
		is("renewed", renew(), "[0 2 2] <nil>")
		is("all is known, but not that it is", asked(t, sem, "c", 1), "[1 0 9000000 3 0]")
		clock.set(14*sec - 1000)
		is("renewed", renew(), "[0 2 2] <nil>")
		is("a µs before", asked(t, sem, "c", 1), "[1 0 1 3 0]")
		clock.set(14 * sec)
		is("renewed", renew(), "[0 1 1] <nil>")
		is("more than is left", asked(t, sem, "c", 3), "[1 0 1000000 3 0]") // as none ends before
		is("what is left", asked(t, sem, "c", 2), "[0 14000000 0 5 0]")
		// The token and what is next to it: nothing is leased twice, and tokens rise.
		b.redis.Del(bg, sem.keys[1])
		is("more than is left", asked(t, sem, "d", 1), "[1 0 10000000 5 0]")
		is("released", released(t, sem, "b"), "[0 1 4]")
		is("what is left", asked(t, sem, "d", 1), "[0 14000001 0 5 0]")
		for _, id := range []string{"a", "c", "d"} {
			released(t, sem, id)
		}
		if n := b.redis.Exists(bg, sem.keys[0]).Val(); n != 0 {
			t.Error("the key remains")
		}
		is("all at once", asked(t, sem, "e", 5), "[0 14000002 0 5 0]")
	})
}

// If the holders do not renew any more, what they held comes back within a lease.
func TestEvictedLeasesOfDeadHolders(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		sem := newSemaphore(t, s, "dead", 5, SemaphoreConfig{Lease: 10 * sec})
		asked(t, sem, "a", 2)
		clock.set(4 * sec)
		asked(t, sem, "b", 1)
		b.redis.Del(bg, sem.keys[0])
		for _, v := range []struct {
			at   time.Duration
			want string
		}{
			{5 * sec, "[1 0 9000000 0 0]"},
			{3 * sec, "[1 0 10000000 0 0]"}, // the clock stepped back: it does not take longer
			{13*sec - 1000, "[1 0 1000001 0 0]"},
			{14 * sec, "[0 14000000 0 5 0]"},
		} {
			clock.set(v.at)
			if got := asked(t, sem, "c", 5); got != v.want {
				t.Errorf("at %v: %s, want %s", v.at, got, v.want)
			}
		}
		// A lease that is none is an error, and left as it is.
		b.redis.HSet(bg, sem.keys[0], "c", "odd")
		clock.set(24 * sec)
		var data *keyError
		if _, err := sem.run(bg, 6, "acquire", "e", "1", "5"); !errors.As(err, &data) || data.key != sem.keys[0] {
			t.Errorf("%v", err)
		}
		if got := b.redis.HGet(bg, sem.keys[0], "c").Val(); got != "odd" {
			t.Errorf("it holds %q now", got)
		}
	})
}
