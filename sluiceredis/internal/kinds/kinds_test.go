package kinds

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice/limits"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sec = time.Second

// rules returns rules of all kinds that have that many units.
func rules(t testing.TB, units int64) []Rule {
	bucket, err := NewBucket(limits.Rate{Count: 1, Per: sec, Burst: units}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return []Rule{
		bucket, NewSliding(units, 3*sec), NewFixed(units, 3*sec, false, 0), NewFixed(units, 3*sec, true, sec),
		NewPace(sec, time.Duration(units-1)*sec, time.Hour),
	}
}

// A key is what a process holds of one.
type key struct {
	clock *Clock
	held  Held
}

// open has f decide by a rule; f returns whether anything was asked for.
func (k *key) open(rule Rule, f func(Held) (asked bool)) {
	now := k.clock.Elapsed()
	h := rule.Open(k.held, now, k.clock)
	if h.Close(f(h)) {
		k.held = h
	}
	if k.held != nil && k.held.Until() <= now {
		k.held = nil
	}
}

func (k *key) take(rule Rule, n int64) (res limits.Result, end int64) {
	k.open(rule, func(h Held) bool {
		if res.RetryAfter = h.Wait(n); res.RetryAfter == 0 && n > 0 {
			end = h.Take(n)
		}
		res.Remaining, res.Limit, res.ResetAfter = h.Holds()
		return n > 0
	})
	return res, end
}

// Whatever the kind: what Wait says comes true and not earlier, what is returned immediately
// is as if it had never been taken, and what Until says does not count is not missed.
func TestHeld_KeepsItsWord(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		for i := range rules(t, 1) {
			synctest.Test(t, func(t *testing.T) {
				rule, k := rules(t, 1+r.Int64N(6))[i], &key{clock: NewClock()}
				fail := func(what string, args ...any) {
					t.Fatalf("seed %d, %v of %s: %s", seed, rule.Kind(), rule.Tag(), fmt.Sprintf(what, args...))
				}
				if full, _ := k.take(rule, 0); full.Remaining != rule.Limit() || full.ResetAfter != 0 {
					fail("%+v at first", full)
				}
				tick := time.Microsecond // of the clock
				if rule.Kind() == BucketKind {
					tick = 1
				}
				for range 60 {
					time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
					n := 1 + r.Int64N(rule.Limit())
					before, _ := k.take(rule, 0)
					res, end := k.take(rule, n)
					switch {
					case res.Allowed() && r.IntN(3) == 0:
						k.open(rule, func(h Held) bool {
							if made, err := h.Add(-n, 0, end); made != n || err != nil {
								fail("%d of %d given back, %v", made, n, err)
							}
							return true
						})
						if after, _ := k.take(rule, 0); after.Remaining != before.Remaining {
							fail("%d remain after %d were given back, and %d before", after.Remaining, n, before.Remaining)
						}
					case res.Allowed() && res.Remaining != before.Remaining-min(n, before.Remaining):
						fail("%d of %d taken, %d remain", n, before.Remaining, res.Remaining)
					case !res.Allowed() && r.IntN(3) == 0:
						time.Sleep(res.RetryAfter - tick)
						if early, _ := k.take(rule, n); early.Allowed() {
							fail("%d granted %v before the end of %v", n, tick, res.RetryAfter)
						}
						time.Sleep(tick)
						if late, _ := k.take(rule, n); !late.Allowed() {
							fail("%d not granted after %v but %v more", n, res.RetryAfter, late.RetryAfter)
						}
					}
				}
				k.take(rule, 1) // admitted or not, something is held then
				time.Sleep(k.held.Until() - k.clock.Elapsed())
				kept, _ := k.take(rule, 0)
				if fresh, _ := (&key{clock: k.clock}).take(rule, 0); kept != fresh {
					fail("%+v when it does not count any more, want %+v", kept, fresh)
				}
			})
		}
	}
}

// Shares have together no more than the whole, and there is none of less than a unit.
func TestRule_Share(t *testing.T) {
	for _, rule := range rules(t, 7) {
		for m := int64(1); m <= 8; m++ {
			share := rule.Share(m)
			switch {
			case rule.Kind() == PaceKind: // its slots are farther apart
				if share.Each() != m*rule.Each() {
					t.Errorf("%v: a slot of one of %d lasts %d", rule.Kind(), m, share.Each())
				}
			case m > 7:
				if share != nil {
					t.Errorf("%v: a share of one of %d", rule.Kind(), m)
				}
			case share.Limit() != 7/m:
				t.Errorf("%v: one of %d has %d", rule.Kind(), m, share.Limit())
			}
		}
		if share := rule.Share(0); share != nil {
			t.Errorf("%v: a share of one of 0", rule.Kind())
		}
	}
}

// Rules of different numbers have different tags: requests of the same tag are decided by
// the rule of one of them.
func TestRule_Tag(t *testing.T) {
	tags := map[string]Rule{}
	for units := int64(1); units < 5; units++ {
		for _, rule := range append(rules(t, units), NewSliding(units, sec), NewFixed(units, sec, true, 0), NewPace(2*sec, time.Duration(units)*sec, time.Hour)) {
			tag := rule.Kind().String() + rule.Tag()
			if tags[tag] != nil {
				t.Errorf("two rules are %s", tag)
			}
			tags[tag] = rule
		}
	}
}

// What is too late, or too much for one script, is rejected, by what a script is asked and
// by what a process holds.
func TestRule_Correction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, v := range []struct {
			rule  int
			delta int64
			age   time.Duration
			end   int64
			want  error // nil: fits
		}{
			{0, -2, 2 * sec, 0, ErrStranded},
			{0, -2, 2*sec - 1, 0, nil},
			{1, SlidingAtOnce, 0, 0, nil},
			{4, -1, 0, 0, ErrStranded},
			{4, 3601, 0, 0, limits.ErrTooLarge},
		} {
			rule, k := rules(t, 5)[v.rule], &key{clock: NewClock()}
			time.Sleep(10 * sec) // the rate is older than the call
			k.take(rule, 5)
			_, _, err := rule.Correction(v.delta, v.age, v.end)
			var here error
			k.open(rule, func(h Held) bool {
				_, here = h.Add(v.delta, v.age, v.end)
				return here == nil
			})
			if !errors.Is(err, v.want) || !errors.Is(here, v.want) || (v.want == nil) != (err == nil) {
				t.Errorf("%v, %+v: %v, %v", rule.Kind(), v, err, here)
			}
		}
		if _, _, err := NewSliding(5, sec).Correction(SlidingAtOnce+1, 0, 0); err == nil {
			t.Error("more than one script takes")
		}
	})
}

// The end of what was taken gives exactly these slots back, unless others came after them.
func TestPaceHeld_Add_ByEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule, k := NewPace(sec, 4*sec, time.Hour), &key{clock: NewClock()}
		_, first := k.take(rule, 1)
		_, second := k.take(rule, 1)
		k.open(rule, func(h Held) bool {
			if made, err := h.Add(-1, 0, first); made != 0 || !errors.Is(err, ErrStranded) {
				t.Errorf("the first of two: %d, %v", made, err)
			}
			if made, err := h.Add(-1, 0, second); made != 1 || err != nil {
				t.Errorf("the second: %d, %v", made, err)
			}
			return true
		})
	})
}
