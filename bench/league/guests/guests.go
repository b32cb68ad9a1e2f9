// Package guests has the strategies of others that take part in the league. A guest is one file in this
// directory:
//
//	package guests
//
//	func init() {
//		Enter("steady", "ten calls per second, whatever happens", func(World) Strategy { return &steady{} })
//	}
//
//	type steady struct{ next time.Duration }
//
//	func (s *steady) Leave(now time.Duration, inFlight int, cost float64) time.Duration {
//		if now < s.next {
//			return s.next
//		}
//		s.next = now + 100*time.Millisecond
//		return now
//	}
//
//	func (s *steady) Done(Call)                              {}
//	func (s *steady) Retry(n int, r Reply) time.Duration     { return max(time.Second, r.RetryAfter) }
//
// No other file changes. It then plays in every world, next to all others:
//
//	go run ./bench/league -strategies steady,backoff -quick
//
// cinnamon.go is the example. A library with goroutines and timers is entered in library.go of
// the league instead, where it runs in a bubble.
package guests

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Never, as an instant, is after the next reply.
const Never = time.Duration(math.MaxInt64)

// A World is what a strategy is given.
type World struct {
	// Told is the rate that the documentation of the server would name, in cost per second; 0: none. A
	// strategy that uses it says so in its description.
	Told float64

	// Rand are the random numbers of the strategy, so that a seed repeats.
	Rand *rand.Rand
}

// A Strategy decides when the calls of one process start. Instants are durations since the world
// began. Its methods are called one after the other.
type Strategy interface {
	// Leave returns now if a call of cost may start, with inFlight others in flight; otherwise the
	// instant, after now, at which to ask again, or Never.
	Leave(now time.Duration, inFlight int, cost float64) time.Duration

	// Done is the reply to a call.
	Done(c Call)

	// Retry returns how long a call waits before it queues again, after its n-th attempt, from 1 on.
	Retry(n int, r Reply) time.Duration
}

// A Call is a call that has ended.
type Call struct {
	Left, Ended time.Duration // the instants
	InFlight    int           // with how many others it left
	Cost        float64
	Reply       Reply
}

// A Reply is the response of the server.
type Reply struct {
	OK         bool
	Throttled  bool          // by a limit; otherwise, if not OK, the call has failed
	RetryAfter time.Duration // 0: the server named none
}

// A Guest is an entry.
type Guest struct {
	Name, About string
	New         func(World) Strategy
}

// All are the guests, in the order in which they were entered.
var All []Guest

// Enter adds a strategy. It panics if there is one of that name, or none.
func Enter(name, about string, strategy func(World) Strategy) {
	for _, g := range All {
		if g.Name == name {
			panic(fmt.Sprintf("guests: %s was entered twice", name))
		}
	}
	if name == "" || strategy == nil {
		panic("guests: an entry needs a name and a strategy")
	}
	All = append(All, Guest{name, about, strategy})
}

// Backoff is a Retry for strategies that have none: full jitter of 1 s·2ⁿ, at most 20 s, and not before
// the Retry-After.
func Backoff(r *rand.Rand, n int, reply Reply) time.Duration {
	longest := math.Min(20, math.Pow(2, float64(n-1)))
	return max(time.Duration(r.Float64()*longest*float64(time.Second)), reply.RetryAfter)
}
