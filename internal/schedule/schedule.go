// Package schedule computes slots: the instants at which evenly spaced calls
// may leave. It holds no lock, reads no clock and starts nothing.
//
// # How are calls spaced, and what has to be remembered?
//
// The simplest pacer remembers when the last call left and lets the next go T
// later, T being the interval: period ÷ count. It has three flaws.
//
// It loses time. A call that is woken 1 ms after its slot pushes all later
// ones back by 1 ms; at 5,000/s, where T is 0.2 ms, four calls in five never
// happen. So the slot counts, not the departure, and one instant is remembered
// instead: the theoretical arrival time, TAT, at which the next call would
// come if all were exactly T apart.
//
//	slot := max(now, TAT − τ)
//	TAT  := max(now, TAT) + n·T
//
// It cannot make up for idleness, which some APIs allow. That is the tolerance
// τ by which a call may come before its TAT. With B, the burst, calls may go
// together from idle, the first one included:
//
//	B = 1 + τ/T        τ = (B − 1)·T
//
// With T = 100 ms and B = 3 (τ = 200 ms), long idle, five callers at once:
//
//	call      1     2     3     4     5
//	TAT       0   100   200   300   400   before it
//	slot      0     0     0   100   200   = max(now, TAT − τ)
//
//	slots  ●●●   ●   ●   ●        B at once, then one each T
//	       0     100 200 300 ms
//
// It forgets the fraction. 3 per second is T = 333,333,333⅓ ns; dropping the
// third of a nanosecond is wrong by 1 ms after 3·10⁶ calls. So TAT is kept as
// whole nanoseconds and a remainder in units of 1/count ns. After k calls it
// is exactly start + k·period/count, rounded down only when it is read.
//
// n is paid afterwards, as in Guava: a call of weight 5 leaves at its slot and
// the next one waits 5·T.
//
// # What if a caller is late?
//
// If it is the caller who is late, the time is gone: an interval not used is
// not saved up beyond τ. If it is we who woke it late, by at most the catch-up
// C, its call is charged at its slot all the same, and those after it follow
// at the old slots, closer together until the delay is made up. Beyond C the
// time is forfeit. A caller who comes back after such a call finds TAT behind
// now; it is charged at TAT as long as the lag is no more than what remains of
// the lateness (credit), and at now otherwise. So every call is charged at an
// instant v with now − C ≤ v ≤ now, and the v are T apart but for the burst:
// hence the bound
//
//	permits in any window W  ≤  B + (W + C)/T + n_max − 1
//
// where n_max is the largest weight and T the smallest interval in force.
//
// Source of the algorithm: the generic cell rate algorithm in its virtual
// scheduling form (ITU-T Recommendation I.371, as secondary literature gives
// it), used to delay instead of to refuse; paying afterwards as in Guava's
// SmoothRateLimiter.
package schedule

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
)

// Config describes a schedule. The public packages document the fields.
type Config struct {
	Count     int64         // Count per Per; both 0 for no limit at all
	Per       time.Duration //
	Burst     int64         // B; 0 means 1, or whatever BurstTime allows
	BurstTime time.Duration // τ
	CatchUp   time.Duration // C; 0 means DefaultCatchUp, negative none

	WarmUp     time.Duration // W, see warmUp; 0 for none
	ColdFactor float64       // F; 0 means DefaultColdFactor

	// KeepDebt keeps what is owed as a time when the rate changes, as Guava
	// does, instead of re-pricing it.
	KeepDebt bool
}

// interval returns T in ns; 0 if there is no limit.
func (cfg *Config) interval() float64 {
	if cfg.Count == 0 {
		return 0
	}
	return float64(cfg.Per) / float64(cfg.Count)
}

// DefaultCatchUp is how much lateness of ours is made up unless told
// otherwise: about what a Go timer may be late on Linux.
const DefaultCatchUp = time.Millisecond

// A Schedule is the state: what is allowed, and when the next call comes. All
// instants are durations since its beginning, at which nothing is stored.
type Schedule struct {
	cfg     Config
	tau     time.Duration
	catchUp time.Duration

	// The theoretical arrival time is tat + rem/Count ns, 0 ≤ rem < Count.
	tat time.Duration
	rem int64

	// The last call, which SetRate needs: it was charged at last +
	// lastRem/Count ns, when debt was still owed for calls before it, and
	// weighed lastN. So TAT = last + debt + lastN·T.
	last    time.Duration
	lastRem int64
	debt    time.Duration // how much of τ was not stored; 0 without a burst, rounded up
	lastN   int64

	warm *warmUp // nil without a warm-up

	whole time.Duration // T, if calls of weight 1 need only that: see Plain; or −1

	credit time.Duration // what remains of our lateness, 0 ≤ credit ≤ catchUp
	pause  time.Duration // nothing leaves before this, and nothing is stored then
}

// New returns the schedule that cfg describes, or why there is none.
func New(cfg Config) (*Schedule, error) {
	tau, err := cfg.tolerance()
	if err != nil {
		return nil, err
	}
	s := &Schedule{cfg: cfg, tau: tau, catchUp: cfg.CatchUp, warm: newWarmUp(&cfg)}
	s.whole = s.wholeInterval()
	switch {
	case cfg.CatchUp == 0:
		s.catchUp = DefaultCatchUp
	case cfg.CatchUp < 0:
		s.catchUp = 0
	}
	return s, nil
}

// CheckRate returns an error unless count per per is a rate: both positive and
// at least a nanosecond from one to the next.
func CheckRate(count int64, per time.Duration) error {
	switch {
	case count <= 0:
		return fmt.Errorf("rate of %d per %v: the count must be positive", count, per)
	case per <= 0:
		return fmt.Errorf("rate of %d per %v: the period must be positive", count, per)
	case count > int64(per):
		return fmt.Errorf("rate of %d per %v: more than one per nanosecond", count, per)
	}
	return nil
}

// longest is the longest τ: half the range, so that now + τ does not leave it in
// the next 146 years. A TAT at the end of the range is never, also for the call
// that may come τ before it.
const longest = time.Duration(math.MaxInt64/2 + 1)

// tolerance checks cfg and returns its τ.
func (cfg *Config) tolerance() (time.Duration, error) {
	switch {
	case cfg.Burst < 0:
		return 0, fmt.Errorf("negative burst %d", cfg.Burst)
	case cfg.BurstTime < 0:
		return 0, fmt.Errorf("negative burst time %v", cfg.BurstTime)
	case cfg.Burst > 0 && cfg.BurstTime > 0:
		return 0, errors.New("burst given both as a count and as a time")
	}
	if err := cfg.checkWarmUp(); err != nil {
		return 0, err
	}
	if cfg.Count == 0 && cfg.Per == 0 && cfg.WarmUp == 0 { // no limit
		return 0, nil
	}
	if err := CheckRate(cfg.Count, cfg.Per); err != nil {
		return 0, err
	}
	if cfg.BurstTime > longest {
		return 0, fmt.Errorf("burst time of %v is longer than 146 years", cfg.BurstTime)
	}
	if cfg.Burst <= 1 {
		return cfg.BurstTime, nil
	}
	tau, _, ok := sat.MulDiv(cfg.Burst-1, int64(cfg.Per), 0, cfg.Count)
	if !ok || time.Duration(tau) > longest {
		return 0, fmt.Errorf("burst of %d at %d per %v lasts longer than 146 years", cfg.Burst, cfg.Count, cfg.Per)
	}
	return time.Duration(tau), nil
}

// Rate returns the rate in force.
func (s *Schedule) Rate() (count int64, per time.Duration) { return s.cfg.Count, s.cfg.Per }

// Interval returns T, rounded down to a nanosecond; 0 if there is no limit.
func (s *Schedule) Interval() time.Duration {
	if s.cfg.Count == 0 {
		return 0
	}
	return s.cfg.Per / time.Duration(s.cfg.Count)
}

// Paused returns the end of the last pause, which may be over.
func (s *Schedule) Paused() time.Duration { return s.pause }

// Slot returns the earliest instant for the next call. It may lie in the past;
// sat.Max is never.
func (s *Schedule) Slot() time.Duration {
	tat, _ := s.lifted()
	return s.early(tat)
}

// Wait returns how long from now on a call would wait that has ahead others
// before it, ahead being the sum of their weights, if those leave as soon as
// they may; sat.Max is never.
func (s *Schedule) Wait(now time.Duration, ahead int64) time.Duration {
	tat, rem := s.lifted()
	if ahead > 0 {
		tat, rem = s.charge(now, false)
	}
	if s.warm != nil {
		fresh, rest := s.warm.cost(s.warm.at(s.tat, tat, s.cfg.interval()), ahead, s.cfg.interval())
		tat, ahead = sat.Add(tat, rest), fresh
	}
	tat, _ = s.plus(tat, rem, ahead)
	if tat == sat.Max {
		return sat.Max
	}
	return max(0, s.early(tat)-now)
}

// early returns the instant τ before tat.
func (s *Schedule) early(tat time.Duration) time.Duration {
	if tat == sat.Max {
		return sat.Max
	}
	return tat - s.tau
}

// charge returns when a call that leaves at now is charged: at TAT, or at now
// if TAT has passed and our lateness does not explain that. If late, we woke
// it too late just now; then it is charged as much before now as that explains.
func (s *Schedule) charge(now time.Duration, late bool) (tat time.Duration, rem int64) {
	tat, rem = s.lifted()
	switch {
	case now-tat <= s.credit:
		return tat, rem
	case late:
		return now - s.credit, 0 // what lies beyond catchUp is forfeit
	}
	return now, 0
}

// Admit lets n leave at now and returns 0 if the slot has come. Otherwise it
// changes nothing and returns how long until it comes. due ≤ now is when the
// caller was to be woken: what lies between is our lateness.
func (s *Schedule) Admit(now, due time.Duration, n int64) time.Duration {
	late := due < now
	if n == 1 && !late {
		if next, interval, ok := s.Plain(); ok {
			// What follows, but without divisions.
			if now >= next {
				s.Took(now + interval)
			}
			return max(0, next-now)
		}
	}
	if wait := s.Wait(now, 0); wait > 0 {
		return wait
	}
	if late {
		ideal := max(due, s.Slot()) // when it would have left
		if tat, _ := s.lifted(); ideal-tat <= s.credit {
			// Then it would have been charged at TAT, for what is left of an earlier
			// lateness. To count only the new one would forget that: calls that were
			// admitted some µs after they came made up for T at most.
			ideal = tat
		}
		s.credit = min(s.catchUp, now-ideal)
	}
	tat, rem := s.charge(now, late)
	s.credit = max(0, now-tat) // what was not needed now is not owed later
	if s.tau == 0 {
		s.last, s.lastRem, s.debt = tat, rem, 0
	} else {
		s.last, s.lastRem, s.debt = now, 0, max(0, tat-now)
		if rem > 0 {
			s.debt++
		}
	}
	var rest time.Duration
	if s.warm != nil {
		n, rest = s.warm.take(s.tat, tat, n, s.cfg.interval())
		s.debt = rest
	}
	s.lastN = n
	s.tat, s.rem = s.plus(sat.Add(tat, rest), rem, n)
	return 0
}

// owed returns the theoretical arrival time that the last call left behind.
func (s *Schedule) owed() (tat time.Duration, rem int64) {
	return s.plus(sat.Add(s.last, s.debt), s.lastRem, s.lastN)
}

// SetRate changes the rate at now to count per per, both 0 for no limit. What
// is owed is re-priced: the next slot is the last departure plus what was taken
// then at the new price, never before now. A burst given as a count stays that
// count and what is stored of it that many calls; one given as a time stays
// that time. On error nothing changes.
func (s *Schedule) SetRate(now time.Duration, count int64, per time.Duration) error {
	cfg := s.cfg
	cfg.Count, cfg.Per = count, per
	tau, err := cfg.tolerance()
	if err != nil {
		return err
	}
	if s.warm != nil {
		s.warm.reprice(s.tat, now, s.cfg.interval(), cfg.interval())
	}
	stored := s.tau > 0 && s.Slot() <= now
	switch {
	case cfg.KeepDebt:
		s.last, s.lastRem, s.debt, s.lastN = s.tat, s.rem, 0, 0
	case stored:
		s.restore(now)
		if cfg.Burst > 1 {
			s.debt = scale(s.debt, s.cfg.Count, int64(per), int64(s.cfg.Per), count)
		}
	case cfg.Burst > 1 || s.warm != nil:
		s.debt = scale(s.debt, s.cfg.Count, int64(per), int64(s.cfg.Per), count)
	}
	if count == 0 { // nothing is owed to no limit, also if it was a time
		s.debt = 0
	}
	rem := scale(time.Duration(s.lastRem), count, 1, s.cfg.Count, 1)
	if s.lastRem = int64(rem); count > 0 && s.lastRem == count { // rounded up to a whole one
		s.last, s.lastRem = s.last+1, 0
	}
	s.cfg, s.tau = cfg, tau
	s.whole = s.wholeInterval()
	if s.tat, s.rem = s.owed(); !stored && !cfg.KeepDebt && tau > 0 && s.early(s.tat) < now {
		// Re-priced, it would have been owed no longer for a while; but that
		// while was not spent idle, and nothing was stored in it.
		s.last, s.lastRem, s.debt, s.lastN = now, 0, tau, 0
		s.tat, s.rem = s.owed()
	}
	return nil
}

// restore describes what is stored at now of a burst as what a call of no
// weight would leave behind now, so that it can be re-priced by itself.
func (s *Schedule) restore(now time.Duration) {
	tat, rem := s.lifted()
	s.last, s.lastRem, s.debt, s.lastN = now, 0, max(0, tat-now), 0
	if rem > 0 && tat >= now {
		s.debt++
	}
	s.pause = noPause // it is over, and in debt by now
}

// Plain returns when the next call may leave and the time from one call to the
// next, if that is all there is to know: a call of weight 1 at now then leaves
// if next ≤ now, and makes next now + interval; without a limit that is 0. It is
// not if there is a burst or a warm-up, the interval is no whole number of
// nanoseconds, or some of our lateness is not made up for yet.
func (s *Schedule) Plain() (next, interval time.Duration, ok bool) {
	if s.whole < 0 || s.credit != 0 {
		return 0, 0, false
	}
	next, rem := s.lifted()
	return next, s.whole, rem == 0 && next != sat.Max
}

// wholeInterval returns T if there is neither a burst nor a warm-up and T is a
// whole number of nanoseconds, and not so long that it takes care to add it; or −1.
func (s *Schedule) wholeInterval() time.Duration {
	switch {
	case s.tau != 0 || s.warm != nil:
		return -1
	case s.cfg.Count == 0:
		return 0
	case int64(s.cfg.Per)%s.cfg.Count != 0 || s.Interval() > furthest:
		return -1
	}
	return s.Interval()
}

// Took notes that calls of weight 1 have left since Plain and that next is when
// another may.
func (s *Schedule) Took(next time.Duration) {
	s.tat, s.rem = next, 0
	s.last, s.lastRem, s.debt, s.lastN = next-s.whole, 0, 0, 1
}

// noPause is the end of a pause that leaves no trace.
const noPause = time.Duration(math.MinInt64 / 2)

// scale returns d·a·b / (c·e), rounded up: never earlier than exact. It is
// rare and the product needs 190 bits, so it is done in big integers. Where
// there is or was no limit c or e is 0, and nothing is owed.
func scale(d time.Duration, a, b, c, e int64) time.Duration {
	if c == 0 || e == 0 {
		return 0
	}
	num, den := big.NewInt(int64(d)), big.NewInt(c)
	num.Mul(num, big.NewInt(a)).Mul(num, big.NewInt(b))
	den.Mul(den, big.NewInt(e))
	num.Add(num, den).Sub(num, big.NewInt(1)).Div(num, den)
	if !num.IsInt64() {
		return sat.Max
	}
	return time.Duration(num.Int64())
}

// Adjust changes by delta what the last calls weighed, once it is known what
// they cost. More delays the next slot; less brings it forward, at most to the
// last departure with all that is stored.
func (s *Schedule) Adjust(delta int64) {
	n := s.lastN + delta
	switch {
	case delta > 0 && n < 0: // overflow
		n = math.MaxInt64
	case n < 0:
		back, _ := s.plus(0, 0, -n)
		s.debt, n = max(0, s.debt-back), 0
	}
	s.lastN = n
	s.tat, s.rem = s.owed()
}

// PauseUntil lets nothing leave before t. A pause is only ever prolonged. When
// it ends nothing is stored: one call leaves at t, the next T later.
func (s *Schedule) PauseUntil(t time.Duration) {
	s.pause = max(s.pause, t)
}

// Resume ends a pause at now.
func (s *Schedule) Resume(now time.Duration) {
	s.pause = min(s.pause, now)
}

// lifted returns the theoretical arrival time, but at least the one that a
// pause leaves: τ after its end, as if that had just been used up.
func (s *Schedule) lifted() (tat time.Duration, rem int64) {
	if floor := sat.Add(s.pause, s.tau); s.tat < floor {
		return floor, 0
	}
	return s.tat, s.rem
}

// plus returns tat + rem/Count + n·T.
func (s *Schedule) plus(tat time.Duration, rem, n int64) (time.Duration, int64) {
	if s.cfg.Count == 0 || n == 0 {
		return tat, rem
	}
	quo, rem, ok := sat.MulDiv(n, int64(s.cfg.Per), rem, s.cfg.Count)
	if !ok {
		return sat.Max, 0
	}
	return sat.Add(tat, time.Duration(quo)), rem
}
