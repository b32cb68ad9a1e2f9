package sluicehttp

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A span is n granted calls, one every, with a common reset.
type span struct {
	n     int
	every time.Duration
	first int // remaining after the first one of the limit of 30; each further one takes one, or each, down to 0
	each  int
	reset time.Duration // since the first span began; 0: it moves, 10 s after each call
	after string        // what came before it: "429" a throttled call, with first remaining
}

func TestUnused(t *testing.T) {
	even := func(windows, n, first int) (all []span) { // a second between two windows in which none comes
		for i := range windows {
			all = append(all, span{n: n, every: 9 * time.Second / time.Duration(n), first: first, reset: time.Duration(i+1) * 10 * time.Second})
		}
		return all
	}
	bursts := even(1, 20, 19)
	for i := range 5 { // 18 are granted at once although only 8 remain
		bursts = append(bursts, span{n: 18, every: 20 * time.Millisecond, first: 8, reset: time.Duration(i+2) * 10 * time.Second})
	}
	var turns []span // a burst, and in the next window what it has left
	for i := range 3 {
		begins := time.Duration(2*i) * 10 * time.Second
		turns = append(turns, span{n: 28, every: 100 * time.Millisecond, first: 29, reset: begins + 10*time.Second}, span{n: 2, every: 4 * time.Second, first: 1, reset: begins + 20*time.Second})
	}
	points := even(4, 10, 28)
	for i := range points {
		points[i].each = 2
	}
	paused := append(even(4, 15, 29), even(6, 28, 27)[4:]...)
	paused = append(paused, even(16, 28, 27)[12:]...)
	per := func(n int64) sluice.Rate { return sluice.Rate{Count: n, Per: 10 * time.Second} }
	moving := []span{{n: 80, every: 500 * time.Millisecond, first: 29}}
	short := []span{{n: 20, every: 100 * time.Millisecond, first: 29, reset: 2 * time.Second}, {n: 20, every: 100 * time.Millisecond, first: 29, reset: 4 * time.Second}, {n: 20, every: 100 * time.Millisecond, first: 29, reset: 6 * time.Second}, {n: 20, every: 100 * time.Millisecond, first: 29, reset: 8 * time.Second}}
	refused := even(4, 15, 29)
	refused[1].after = "429"
	confirmed := even(4, 15, 29)
	confirmed[1].after, confirmed[1].first = "429", 0
	for name, c := range map[string]struct {
		says []span
		want sluice.Rate
	}{
		"half of each window is left":             {even(4, 15, 29), per(28)}, // 15 + 15, less two
		"that of two is not enough":               {even(2, 15, 29), sluice.Rate{}},
		"a quarter is left":                       {even(4, 23, 29), sluice.Rate{}},
		"others use the rest but ten":             {even(4, 15, 24), per(21)},
		"bursts get little of one that slides":    {bursts, per(28)},
		"each call takes two":                     {points, per(14)},
		"no call comes for a minute":              {paused, per(28)},
		"a burst in every other window":           {turns, per(28)},
		"few calls":                               {even(6, 4, 29), sluice.Rate{}},
		"windows of two seconds":                  {short, sluice.Rate{}},
		"a bucket":                                {moving, sluice.Rate{}},
		"a call was throttled with much left":     {refused, sluice.Rate{}},
		"a call was throttled with nothing left":  {confirmed, per(28)},
		"no more is granted at that rate":         {append(even(4, 15, 29), even(9, 15, 14)[4:]...), sluice.Rate{}},
		"as much as that is granted at that rate": {append(even(4, 15, 29), even(9, 28, 27)[4:]...), per(28)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := unusedAfter(t, c.says); got != c.want {
					t.Errorf("got %v, want %v", got, c.want)
				}
			})
		})
	}
}

// unusedAfter returns the rate of a limit of 30 after these responses to calls of a gate at 1 per second for which one
// waits.
func unusedAfter(t *testing.T, says []span) sluice.Rate {
	gate := sluice.Must(sluice.New(sluice.Config{Adaptive: sluice.Adaptive{Search: true, Start: sluice.PerSecond(1)}}))
	defer gate.Close()
	gate.PauseUntil(time.Now().Add(time.Hour), "")
	go func() { _, _ = gate.Acquire(t.Context()) }()
	synctest.Wait()
	var u unused
	start, calls := time.Now(), uint16(0)
	note := func(now, reset time.Time, remaining int, granted bool) {
		h := http.Header{"X-Ratelimit-Limit": {"30"}, "X-Ratelimit-Remaining": {strconv.Itoa(remaining)}, "X-Ratelimit-Reset": {strconv.FormatInt(reset.Unix(), 10)}}
		said, _ := ratelimit.Parse(http.StatusOK, h, now)
		calls++
		u.note(&said.Limits[0], 30, float64(remaining), &reply{gate: gate, spaces: true, now: now, call: calls, granted: granted, refused: !granted})
	}
	now := start
	for _, s := range says {
		if s.reset > 0 {
			now = start.Add(s.reset - 10*time.Second)
		}
		if s.after != "" {
			note(now, start.Add(s.reset), s.first, false)
		}
		for i := range s.n {
			reset := start.Add(s.reset)
			if s.reset == 0 {
				reset = now.Add(10 * time.Second)
			}
			note(now, reset, max(0, s.first-i*max(1, s.each)), true)
			now = now.Add(s.every)
		}
	}
	return u.rate()
}

// What has proven to be no help is not tried again for five minutes, then for ten, at most for an hour.
func TestUnused_Fail(t *testing.T) {
	var u unused
	now := time.Now()
	for i, want := range []time.Duration{5, 10, 20, 40, 60, 60} {
		u.calls = 28
		if u.fail(now); !u.barred.Equal(now.Add(want*time.Minute)) || u.calls != 0 {
			t.Errorf("%d times: barred until %v, of %v", i+1, u.barred.Sub(now), u.calls)
		}
	}
}

// A limit that turns out to be of a scope is no rate of its host any more.
func TestUnused_OfAScope(t *testing.T) {
	rt, err := New(nil, Config{})
	if err != nil {
		t.Fatal(err)
	}
	gate := sluice.Must(sluice.New(sluice.Config{}))
	defer gate.Close()
	st := newState(rt, key{}, gate, nil)
	said, _ := ratelimit.Parse(http.StatusTooManyRequests, http.Header{"X-Ratelimit-Limit": {"30"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"10"}}, time.Now())
	c, _ := st.claimOf(&said.Limits[0], "")
	c.unused = unused{calls: 28, length: 10 * time.Second}
	st.windowRate = c.unused.rate()
	st.renounce(&said)
	if r := c.unused.rate(); r.Count > 0 || st.inForce.Count > 0 {
		t.Errorf("the host still has the rate %v, in force %v", r, st.inForce)
	}
}
