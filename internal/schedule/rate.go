package schedule

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/sluice-go/sluice/internal/rates"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// longest is the longest τ: half the range, so that now + τ does not leave it in
// the next 146 years. A TAT at the end of the range is never, also for the call
// that may come τ before it.
const longest = time.Duration(math.MaxInt64/2 + 1)

// tolerance returns the τ of rate, or why there cannot be a schedule of it with
// that warm-up.
func tolerance(rate limits.Rate, warmUp time.Duration) (time.Duration, error) {
	switch {
	case warmUp < 0:
		return 0, fmt.Errorf("negative warm-up %v", warmUp)
	case rate == limits.Rate{} && warmUp == 0: // no limit
		return 0, nil
	}
	if err := rates.Check(rate.Count, rate.Per, rate.Burst); err != nil {
		return 0, err
	}
	if rate.Burst <= 1 {
		return 0, nil
	}
	if warmUp > 0 {
		return 0, errors.New("a warm-up and a burst cannot be combined")
	}
	tau, _, ok := sat.MulDiv(rate.Burst-1, int64(rate.Per), 0, rate.Count)
	if !ok || time.Duration(tau) > longest {
		return 0, fmt.Errorf("burst of %d at %d per %v lasts longer than 146 years", rate.Burst, rate.Count, rate.Per)
	}
	return time.Duration(tau), nil
}

// exactInterval returns T in ns, with its fraction; 0 if there is no limit.
func exactInterval(rate limits.Rate) float64 {
	if rate.Count == 0 {
		return 0
	}
	return float64(rate.Per) / float64(rate.Count)
}

// Interval returns T, rounded down to a nanosecond; 0 if there is no limit.
func (s *Schedule) Interval() time.Duration { return s.interval }

// noteInterval notes T, and whether that is all there is to know: it is not if there is a burst or
// a warm-up, or T is no whole number of nanoseconds or so long that it takes care to add it.
func (s *Schedule) noteInterval() {
	s.interval = s.rate.Interval()
	whole := s.rate.Count == 0 || int64(s.rate.Per)%s.rate.Count == 0
	s.plain = s.tau == 0 && s.warm == nil && whole && s.interval <= furthest
}

// SetRate changes the rate and its burst at now; the zero Rate is no limit. On
// error nothing changes.
//
// The debt is re-priced: the next slot is where it would be if the last call had
// started under the new rate, never before now. The stored burst stays that many calls, but
// no more than the new burst allows. A larger burst stores nothing on its own: it fills
// from now on.
//
//	T = 100 ms, idle, B = 3: two calls are stored beside the one that may leave now
//	SetRate to B = 2         one is
//	SetRate to B = 5         two are, and after 200 ms four
//	SetRate to T = 1 s       two are
func (s *Schedule) SetRate(now time.Duration, rate limits.Rate) error {
	var over time.Duration
	if s.warm != nil {
		over = s.warm.over
	}
	tau, err := tolerance(rate, over)
	if err != nil {
		return err
	}
	if s.warm != nil {
		s.warm.reprice(s.tat, now, exactInterval(s.rate), exactInterval(rate))
	}
	stored := s.tau > 0 && s.Slot() <= now
	if stored {
		s.restore(now)
	}
	s.debt = reprice(s.debt, s.rate, rate)
	s.last, s.lastRem = convert(s.last, s.lastRem, s.rate.Count, rate.Count)
	s.rate, s.tau = rate, tau
	s.noteInterval()
	if s.tat, s.rem = s.owed(); !stored && tau > 0 && s.tat-tau < now {
		// Nothing is owed any more, by now perhaps for a while. But nothing was
		// stored in that while.
		s.last, s.lastRem, s.debt, s.lastN = now, 0, tau, 0
		s.tat, s.rem = s.owed()
	}
	return nil
}

// restore describes the burst that is stored at now as the state that a call of cost 0 would leave
// behind now, so that it can be re-priced on its own.
func (s *Schedule) restore(now time.Duration) {
	tat, rem := s.lifted()
	s.last, s.lastRem, s.debt, s.lastN = now, 0, max(0, tat-now), 0
	if rem > 0 && tat >= now {
		s.debt++
	}
	s.pause = noPause // it has ended, and in debt by now
}

// noPause is the end of a pause that leaves no trace.
const noPause = time.Duration(math.MinInt64 / 2)

// reprice returns the debt at the rate to of a schedule that has debt at the rate
// from, rounded up: never earlier than exact. A debt of m intervals means that
// from.Burst − 1 − m calls are stored; they stay as many, at most to.Burst − 1. The
// product needs 190 bits, so it is done in big integers.
func reprice(debt time.Duration, from, to limits.Rate) time.Duration {
	more := max(to.Burst, 1) - max(from.Burst, 1)
	if to.Count == 0 || debt == 0 && more <= 0 {
		return 0
	}
	if from.Count == 0 { // no limit: nothing is owed
		debt, from = 0, limits.Rate{Count: 1, Per: 1}
	}
	// debt·(T_to / T_from) + more·T_to, over the common denominator
	num, den := big.NewInt(int64(debt)), big.NewInt(int64(from.Per))
	num.Mul(num, big.NewInt(from.Count))
	grown := big.NewInt(more)
	num.Add(num, grown.Mul(grown, den))
	num.Mul(num, big.NewInt(int64(to.Per)))
	den.Mul(den, big.NewInt(to.Count))
	num.Add(num, den).Sub(num, big.NewInt(1)).Div(num, den)
	switch {
	case num.Sign() < 0:
		return 0
	case !num.IsInt64():
		return sat.Max
	}
	return time.Duration(num.Int64())
}

// convert returns t + rem/from ns as whole nanoseconds and a remainder in units of
// 1/to ns, rounded up.
func convert(t time.Duration, rem, from, to int64) (time.Duration, int64) {
	if from == 0 || to == 0 {
		return t, 0
	}
	rem, _, _ = sat.MulDiv(rem, to, from-1, from)
	if rem == to {
		return sat.Add(t, 1), 0
	}
	return t, rem
}
