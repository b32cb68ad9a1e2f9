package sluiceredis

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// For a lease after the epoch nothing is leased, and who renews gets back what he
// held.
func TestLeasesAfterLoss(t *testing.T) {
	at := epoch.Microseconds()
	old := func(b *backend, sem *Semaphore) { // b has ended, as far as is known
		b.redis.HSet(bg, sem.keys[0], "b", fmt.Sprint("2 ", at+2, " 10000000 ", at), "=", fmt.Sprint("4 ", at, " 0"))
	}
	for _, v := range []struct {
		name    string
		renewed bool // before others ask, who remove what has ended
		lose    func(b *backend, sem *Semaphore)
	}{
		{"all is lost", false, func(b *backend, sem *Semaphore) { b.redis.Del(bg, sem.keys...) }},
		{"all is there", false, func(*backend, *Semaphore) {}},
		{"one was not yet lent", true, func(b *backend, sem *Semaphore) {
			b.redis.HDel(bg, sem.keys[0], "b")
			b.redis.HSet(bg, sem.keys[0], "=", fmt.Sprint("2 ", at, " 0"))
			b.redis.Set(bg, sem.keys[1], fmt.Sprint(at, " ", at+10_000_000, " ", at), 0)
		}},
		{"one was not yet renewed", false, old},
		{"one was not yet renewed, but is now", true, old},
	} {
		t.Run(v.name, func(t *testing.T) {
			b := onRedis(t)
			s, clock, replace := b.freezeStrictly(t)
			sem := newSemaphore(t, s, "loss", 5, SemaphoreConfig{Lease: 10 * sec})
			is := func(what, got, want string) {
				t.Helper()
				if got != want {
					t.Errorf("%s: %s, want %s", what, got, want)
				}
			}
			renew := func(args ...string) string { // id, weight and token, for each
				t.Helper()
				reply, err := sem.run(bg, len(args)/3+2, "renew", args...)
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprint(reply[:len(reply)-1])
			}
			token := func(n int64) string { return format(epoch.Microseconds() + n) }
			clock.set(time.Microsecond)
			is("two", asked(t, sem, "a", 2), "[0 1 0 2 0]")
			is("two more", asked(t, sem, "b", 2), "[0 2 0 4 0]")
			is("renewed", renew("a", "2", token(1), "b", "2", token(2), "c", "1", "7"), "[0 1 1 0]")
			v.lose(b, sem)
			replace()
			clock.set(5 * sec)
			if v.renewed {
				is("renewed first", renew("a", "2", token(1), "b", "2", token(2)), "[0 2 2]")
			}
			if got := asked(t, sem, "c", 1); !strings.HasPrefix(got, "[1 0 10000000 ") {
				t.Errorf("lent after the loss: %s", got)
			}
			is("renewed", renew("a", "2", token(1), "b", "2", token(2)), "[0 2 2]")
			is("the same again", renew("a", "2", token(1), "b", "2", token(2)), "[0 2 2]")
			clock.set(15*sec - 1000)
			is("a µs before a lease is over", asked(t, sem, "c", 1), "[1 0 1 4 0]")
			is("renewed", renew("a", "2", token(1), "b", "2", token(2)), "[0 2 2]")
			clock.set(15 * sec)
			is("more than is left", asked(t, sem, "c", 2), "[1 0 9999999 4 0]")
			is("what is left", asked(t, sem, "c", 1), "[0 15000000 0 5 0]")
			is("unknown ones are lost again", renew("a", "2", token(1), "d", "1", "7"), "[0 1 0]")
			is("released", released(t, sem, "a"), "[0 1 3]")
			is("released", released(t, sem, "b"), "[0 1 1]")
			is("released", released(t, sem, "c"), "[0 1 0]")
			if n := b.redis.Exists(bg, sem.keys[0]).Val(); n != 0 {
				t.Errorf("%d keys remain", n)
			}
		})
	}
}

// Tokens rise over those that were renewed, also if the new server's clock is
// behind.
func TestTokensAfterLoss(t *testing.T) {
	b := onRedis(t)
	s, clock, replace := b.freezeStrictly(t)
	sem := newSemaphore(t, s, "loss", 5, SemaphoreConfig{Lease: 10 * sec})
	replace()
	far := epoch.Microseconds() + 20_000_000
	if _, err := sem.run(bg, 3, "renew", "a", "2", format(far)); err != nil {
		t.Fatal(err)
	}
	clock.set(10 * sec)
	if got := asked(t, sem, "b", 1); got != "[0 20000001 0 1 0]" {
		t.Errorf("%s", got)
	}
}

// A lease that is put back after its holder has ceased to believe in it is not
// his: another may have had it. It is released.
func TestLeasePutBackTooLate(t *testing.T) {
	for _, v := range []struct {
		name   string
		stop   func(l *Lease) // before the renewal is answered
		answer time.Duration
		lost   bool
	}{
		{"in time", func(*Lease) {}, 0, false},
		{"the timer is late", func(l *Lease) { l.timer.Stop() }, 2 * sec, true},
		{"the timer was in time", func(*Lease) {}, 2 * sec, true},
		{"it was released", func(l *Lease) { l.semaphore.drop(l) }, 0, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &lender{renewed: make(chan chan bool), released: make(chan string, 1)}
				s := strictOn(t, c, "late")
				sem := newSemaphore(t, s, "late", 1, SemaphoreConfig{Lease: sec})
				l, err := sem.acquire(bg, 1, 0)
				if err != nil {
					t.Fatal(err)
				}
				answer := <-c.renewed
				v.stop(l)
				time.Sleep(v.answer)
				answer <- true
				synctest.Wait()
				select {
				case <-l.Lost():
					if !v.lost {
						t.Error("it is lost")
					}
				default:
					if v.lost {
						t.Error("it is held")
					}
				}
				select {
				case id := <-c.released:
					if v.name == "in time" || id != l.id {
						t.Errorf("released %q", id)
					}
				default:
					if v.name != "in time" {
						t.Error("it is still there")
					}
				}
				sem.drop(l)
			})
		})
	}
}

// A lender is a client of a server that leases everything, is another one when it
// is to renew something, and does not answer that until it is told to.
type lender struct {
	unreachable
	renewed  chan chan bool
	released chan string
}

func (c *lender) Run(_ context.Context, _ *Script, _, args []string) ([]int64, error) {
	switch args[0] {
	case "acquire":
		return []int64{0, 1, 0, 1, 0, 1}, nil
	case "renew":
		answer := make(chan bool)
		c.renewed <- answer
		<-answer
		return []int64{0, 2, 1}, nil
	}
	c.released <- args[2]
	return []int64{0, 1, 0, 1}, nil
}
