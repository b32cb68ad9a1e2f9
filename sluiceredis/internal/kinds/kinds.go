// Package kinds is the kinds of limits that sluiceredis decides: the arguments and replies of
// scripts for each, and the decisions of a process on its own. Each kind is one file here and one
// in sluiceredis/lua. Nothing here sends, waits or locks.
//
// A script reads the state of a limit, decides how many of the requests that arrive together are
// admitted, and replies the state it found. These requests, and each result, are computed here from
// that, for each request in turn. Without a server, and for a local share, the same is computed
// from the state of the process.
package kinds

import (
	"errors"
	"math"
	"strconv"
	"sync/atomic"
	"time"
)

// A Kind is a kind of limit: the bit that stands for it.
type Kind uint

const (
	BucketKind Kind = 1 << iota
	SlidingKind
	FixedKind
	PaceKind

	Count = iota // of kinds
)

// String returns the name of the file of Lua, which is also the name of the kind in scripts.
func (k Kind) String() string {
	switch k {
	case BucketKind:
		return "bucket"
	case SlidingKind:
		return "sliding"
	case FixedKind:
		return "fixed"
	case PaceKind:
		return "pace"
	}
	return ""
}

// Found returns the number of numbers that a script replies of the state of a limit of kind k.
func (k Kind) Found() int {
	if k&(BucketKind|PaceKind) != 0 {
		return 2
	}
	return 3
}

// When reports whether take.lua replies, for each run, when its next request will fit.
func (k Kind) When() bool { return k == SlidingKind }

// ByEnd reports whether units can be returned only by the return value of Take for them.
func (k Kind) ByEnd() bool { return k == PaceKind }

// A Rule is a limit without its key: a kind and its numbers. It does not change.
type Rule interface {
	Kind() Kind

	// Tag is different for rules of one kind with different numbers.
	Tag() string

	// Args appends to args the arguments with which a script reads the limit. A sliding window
	// needs a name that no other call has.
	Args(args []string, name string) []string

	// Limit returns how many units a result says there are; Most how many one request
	// may take, AtOnce how many one script, and Each the count of scripts for one.
	Limit() int64
	Most() int64
	AtOnce() int64
	Each() int64

	// Cost returns n units in the count of scripts, as a script wants it.
	Cost(n int64) string

	// Counts returns the longest time for which admitted units apply.
	Counts() time.Duration

	// State returns the state a script found: the numbers that it replied of the limit, at the
	// server's clock, in µs. It may be kept in room, if that is not nil.
	State(found []int64, now int64, room *Room) State

	// Correction returns the amount a script is to add for delta ≥ −Most units of a call that was
	// admitted age ago, and further arguments; end is the return value of Take for the call, or 0.
	// It returns an error if delta is too large, or [ErrStranded] if it is too late.
	Correction(delta int64, age time.Duration, end int64) (add, arg int64, err error)

	// Share returns the share of one of m instances, or nil if there is none.
	Share(m int64) Rule

	// Open returns the state of a key in a process: old is the last kept state, one that was reset,
	// or nil; now is the time since c began. No other call for the key may come until it is closed.
	Open(old Held, now time.Duration, c *Clock) Held
}

// A State is the state of a limit while requests are decided, one after the other.
type State interface {
	// Wait returns 0 if n fit now, limits.Never if they never do, and otherwise the time until they
	// will.
	Wait(n int64) time.Duration

	// Take takes n > 0 that fit, and returns the value with which Correction returns exactly these,
	// or 0.
	Take(n int64) (end int64)

	// Holds returns the remaining units, the limit, and the time until all are available.
	Holds() (remaining, limit int64, reset time.Duration)
}

// A Room is memory for the State of the usual kind, which then needs no other.
type Room struct{ bucket BucketState }

// A Whener is a State of a kind with [Kind.When].
type Whener interface {
	// SetWhen sets when the next request will fit if it does not now, by the server's
	// clock, in µs.
	SetWhen(when int64)
}

// Held is the State in a process.
type Held interface {
	State

	// Add takes units whether they fit or not, or returns −delta of a call that was
	// admitted age ago. It returns the number of those units.
	Add(delta int64, age time.Duration, end int64) (made int64, err error)

	// Follow brings a share of one of m up to date with the units that the server has admitted for
	// this process and, if found is not nil, with its content then.
	Follow(found State, granted, m int64)

	// Owes returns how many of so many units that a share of one of m has admitted it
	// still holds, and the amount that a script is to add for them.
	Owes(units, m int64) (held, add int64)

	// Close reports whether this is to be kept for the next Open. If not, the kept state stays.
	// asked is whether anything was asked for.
	Close(asked bool) (keep bool)

	// Reset makes it as good as new, for another key.
	Reset()

	// Until returns the end of the time in which the kept state matters, by the time since the
	// clock began.
	Until() time.Duration
}

// ErrStranded reports that it is too late to return something.
var ErrStranded = errors.New("sluiceredis: too late to give back")

// Longest is the longest time in nanoseconds that scripts compute with: 104
// days, one second less than 2^53 ns, because the fraction of the present
// second is added to it.
const Longest = 1<<53 - 1 - int64(time.Second)

// unlimited is [Rule.AtOnce] of most kinds.
const unlimited = math.MaxInt64

// A Clock is the clock of a process, and the substitute for its server's clock.
type Clock struct {
	began  time.Time
	shift  atomic.Int64 // server's clock less the time since began, µs
	served atomic.Bool  // there is a server, whose clock that is
}

// NewClock returns a clock that begins now.
func NewClock() *Clock {
	c := &Clock{began: time.Now()}
	c.shift.Store(c.began.UnixMicro())
	return c
}

// Elapsed returns the time since c began.
func (c *Clock) Elapsed() time.Duration { return time.Since(c.began) }

// Server returns the estimate of the server's clock: microseconds since 1970. It
// goes on evenly, even if the wall clock is set.
func (c *Clock) Server() int64 { return c.shift.Load() + time.Since(c.began).Microseconds() }

// Set sets the server's clock to its time when a reply arrived, or a little before.
func (c *Clock) Set(now int64) {
	c.shift.Store(now - time.Since(c.began).Microseconds())
	c.served.Store(true)
}

// Calendar returns the clock that windows are aligned by: the wall clock, if there
// is no server.
func (c *Clock) Calendar() int64 {
	if c.served.Load() {
		return c.Server()
	}
	return time.Now().UnixMicro()
}

// Format returns n as scripts want it.
func Format(n int64) string { return strconv.FormatInt(n, 10) }

// Micro returns microseconds as a time.
func Micro(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// Microseconds returns d in those, rounded up: a window is never too short.
func Microseconds(d time.Duration) int64 { return Ceil(int64(d), int64(time.Microsecond)) }

// Ceil returns a ÷ b, for b > 0, rounded up if a is positive.
func Ceil(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}
