package sluicehttp

import (
	"math"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/rates"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A series is calls of which each is answered after 10 ms: n of them, one every, after a wait.
type series struct {
	wait  int // all times in ms
	n     int
	every int
	first int // remaining after the first one; each further one takes one, down to 0
	left  int // until the reset, after the first one
}

func TestShortWindow_Note(t *testing.T) {
	// A window of 20 per second: 20 calls in 380 ms, and none until the reset.
	window := series{wait: 620, n: 20, every: 20, first: 19, left: 1000}
	untold := series{n: 20, every: 20, first: 19}
	paced := func(seconds int) []series { // at the rate
		var all []series
		for range seconds {
			all = append(all, series{wait: 50, n: 20, every: 50, first: 19, left: 1000})
		}
		return all
	}
	join := func(all ...[]series) (joined []series) {
		for _, one := range all {
			joined = append(joined, one...)
		}
		return joined
	}
	second := sluice.Rate{Count: 20, Per: time.Second}
	none := sluice.Rate{}
	for _, c := range []struct {
		name   string
		stated time.Duration
		says   []series
		want   sluice.Rate
	}{
		{"one that ends within a second", 0, []series{window}, second},
		{"one that ends some time", 0, []series{untold}, none},
		{"and a part of another one", 0, []series{untold, {wait: 620, n: 8, every: 20, first: 19}}, second},
		{"too small a part", 0, []series{untold, {wait: 620, n: 6, every: 20, first: 19}}, none},
		{"too quick a part", 0, []series{untold, {wait: 620, n: 8, every: 10, first: 19}}, none},
		{"a part in which one comes back", 0, []series{untold, {wait: 620, n: 3, every: 20, first: 19}, {wait: 20, n: 8, every: 20, first: 17}}, none},
		{"one that ends within two seconds", 0, []series{{n: 20, every: 20, first: 19, left: 2000}}, none},
		{"one that is hardly used", 0, []series{{n: 10, every: 50, first: 19, left: 1000}}, none},
		{"a stated one", time.Second, []series{window}, second},
		{"a stated one that is long", time.Minute, []series{window, window, window, window}, none},
		{"a stated one of several routes", time.Second, []series{{n: 3, every: 20, first: 19}, {wait: 5, n: 2, every: 20, first: 8}, {wait: 5, n: 3, every: 20, first: 16}, {wait: 5, n: 7, every: 20, first: 6}}, none},
		{"little is used", 0, []series{{n: 3, every: 20, first: 19}, {wait: 900, n: 3, every: 20, first: 19}, {wait: 900, n: 3, every: 20, first: 19}, {wait: 900, n: 3, every: 20, first: 19}}, none},
		{"the shortest one counts", 0, []series{window, {wait: 1500, n: 20, every: 20, first: 19}, window, {wait: 1400, n: 20, every: 20, first: 19}}, second},
		{"windows of 10 s", 0, []series{{n: 20, every: 20, first: 19}, {wait: 9620, n: 20, every: 20, first: 19}, {wait: 9620, n: 20, every: 20, first: 19}, {wait: 9620, n: 20, every: 20, first: 19}}, none},
		{"windows of 2 s", 0, []series{{n: 20, every: 20, first: 19}, {wait: 1620, n: 20, every: 20, first: 19}, {wait: 1620, n: 20, every: 20, first: 19}, {wait: 1620, n: 20, every: 20, first: 19}}, sluice.Rate{Count: 20, Per: 2 * time.Second}},
		{"it proves true", 0, join([]series{window, window, window, window}, paced(20)), second},
		// 20 calls in each of which only 8 are counted: those of one of several users.
		{"it does not", 0, join([]series{window, window, window, window}, []series{
			{wait: 50, n: 8, every: 50, first: 19}, {wait: 50, n: 12, every: 50, first: 19}, {wait: 50, n: 8, every: 50, first: 19}, {wait: 50, n: 12, every: 50, first: 19},
			{wait: 50, n: 8, every: 50, first: 19}, {wait: 50, n: 12, every: 50, first: 19}, {wait: 50, n: 8, every: 50, first: 19}, {wait: 50, n: 12, every: 50, first: 19},
			{wait: 50, n: 8, every: 50, first: 19}, {wait: 50, n: 12, every: 50, first: 19}, {wait: 50, n: 8, every: 50, first: 19}, {wait: 50, n: 12, every: 50, first: 19},
		}), none},
		{"few calls", 0, join([]series{window, window, window, window}, paced(3), []series{
			{wait: 4000, n: 20, every: 50, first: 19}, {wait: 4000, n: 20, every: 50, first: 19}, {wait: 4000, n: 2, every: 50, first: 19},
		}), none},
		{"more remains than there is", 0, []series{window, window, window, window, {wait: 50, n: 1, first: 40}}, none},
		{"more is granted than it grants", 0, []series{window, window, window, window, {wait: 50, n: 50, every: 10, first: 19}}, none},
		// A bucket is full the later the emptier it is.
		{"a bucket", time.Second, []series{{n: 1, first: 19, left: 100}, {wait: 10, n: 1, first: 1, left: 1900}}, none},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := rateAfter(t, c.stated, c.says); got != c.want {
					t.Errorf("got %v, want %v", got, c.want)
				}
			})
		})
	}
}

// rateAfter returns the rate of a limit of 20 after these responses to calls of a gate for which one waits.
func rateAfter(t *testing.T, stated time.Duration, says []series) sluice.Rate {
	gate := sluice.Must(sluice.New(sluice.Config{}))
	defer gate.Close()
	gate.PauseUntil(time.Now().Add(time.Hour), "")
	go func() { _, _ = gate.Acquire(t.Context()) }()
	synctest.Wait()
	k, now, calls := new(claim), time.Now(), 0
	for _, s := range says {
		now = now.Add(time.Duration(s.wait) * time.Millisecond)
		reset := now.Add(time.Duration(s.left) * time.Millisecond)
		for i := range s.n {
			header := http.Header{
				"X-Ratelimit-Limit": {"20"}, "X-Ratelimit-Remaining": {strconv.Itoa(max(0, s.first-i))},
				"X-Ratelimit-Reset": {strconv.FormatFloat(float64(reset.UnixMilli())/1000, 'f', 3, 64)},
			}
			said, _ := ratelimit.Parse(http.StatusOK, header, now)
			l := &said.Limits[0]
			l.Window = stated
			calls++
			r := reply{gate: gate, now: now, call: uint16(calls), sent: now.Add(-10 * time.Millisecond), total: uint32(calls), granted: true}
			remaining, _ := l.Remaining.Value()
			k.short.note(l, remaining, 0, &r)
			now = now.Add(time.Duration(s.every) * time.Millisecond)
		}
	}
	return k.short.rate(20, 0)
}

// A limit that has not proven true is no rate for a minute, then for two, at most for an hour.
func TestShortWindow_Fail(t *testing.T) {
	var w shortWindow
	now := time.Now()
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		w.length = time.Second
		if w.fail(now); !w.barred.Equal(now.Add(want*time.Minute)) || w.length != 0 {
			t.Errorf("%d times: no rate until %v, of %v", i+1, w.barred.Sub(now), w.length)
		}
	}
}

// A maximum may be any number.
func TestShortWindow_Rate(t *testing.T) {
	w := shortWindow{length: time.Second}
	for most, want := range map[float64]int64{2: 2, 3.9: 3, 1e9: 1e9, 1e9 + 1: 0, 2e9: 0, 1 << 62: 0, math.MaxFloat64: 0} {
		if r := w.rate(most, 0); r.Count != want || want > 0 && rates.Check(r.Count, r.Per, r.Burst) != nil {
			t.Errorf("%g per second: %v, want %d", most, r, want)
		}
	}
	if r := w.rate(2, 1.9); r.Count != 1 {
		t.Errorf("the least rate is %v", r)
	}
}
